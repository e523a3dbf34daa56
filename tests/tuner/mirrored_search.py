"""A search under a MirroredStrategy of two logical CPUs, as a program: python -m tests.tuner.mirrored_search DIRECTORY."""

import sys

import tensorflow as tf

if __name__ == "__main__":
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

    from tests.tuner import killed_search, small
    from tf_ext import tuner

    def search(name, build):
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        made = tuner.GridSearch(
            build, "val_loss", seed=5, directory=sys.argv[1], project_name=name, distribution_strategy=strategy
        )
        made.search(*small.data(), validation_split=0.25, epochs=killed_search.EPOCHS, verbose=0)
        return made

    import keras

    def build_with(rates):
        return lambda hp: small.model(keras.optimizers.SGD(tuner.sequence(hp, "learning_rate", rates), momentum=0.9))

    shared = search("shared", build_with(["0.1@0|0.02@2", "0.1@0|0.01@3"]))
    alone = search("alone", build_with(["0.1@0|0.01@3"]))
    ((key, history),) = small.histories(alone).items()
    found = small.histories(shared)[key]
    assert found[:2] == history[:2]  # later masks of the second replica differ
    assert abs(found[-1]["val_loss"] - history[-1]["val_loss"]) < 0.1
    assert small.totals(shared)["steps"] * 4 == small.totals(alone)["steps"] * 6  # two epochs, and two for each trial
    x, y = small.data()
    value = shared.get_best_models()[0].evaluate(x[144:], y[144:], verbose=0)[0]
    score = shared.oracle.get_best_trials()[0].score
    assert abs(value - score) < 0.02, (value, score)
    print("well")

"""Several studies over one plan, models that are handed out, and what a tuner of Keras Tuner does besides."""

import os
import subprocess
import sys
import threading

import keras
import keras_tuner
import numpy as np
import pytest

from tests.tuner import small
from tf_ext import tuner
from tf_ext.tuner import oracles

X, Y = small.data()
FIT = {"validation_split": 0.25, "epochs": 4, "verbose": 0}


def build(hp, rates=("0.1@0|0.02@2", "0.1@0|0.01@3")):
    return small.model(keras.optimizers.SGD(tuner.sequence(hp, "learning_rate", rates), momentum=0.9))


def build_more(hp):
    return small.model(
        keras.optimizers.SGD(tuner.sequence(hp, "learning_rate", ["0.1@0|0.02@2", "0.1@0|0.05@2"]), momentum=0.9)
    )


def grid(tmp_path, name="study", make=build, **arguments):
    return tuner.GridSearch(make, "val_accuracy", seed=5, directory=tmp_path, project_name=name, **arguments)


def test_a_second_study_trains_nothing_that_the_first_did(tmp_path):
    first = grid(tmp_path, "first", plan=tmp_path / "plan")
    first.search(X, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        before = plan.totals()["steps"]
    second = grid(tmp_path, "second", plan=tmp_path / "plan")
    second.search(X, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        assert plan.totals()["steps"] == before
        assert [study["name"] for study in plan.studies()] == [str(tmp_path / n) for n in ("first", "second")]
    assert [t.score for t in first.oracle.get_best_trials(2)] == [t.score for t in second.oracle.get_best_trials(2)]
    for search in (first, second):
        assert search.get_best_models()[0].evaluate(X[144:], Y[144:], verbose=0)[1] == pytest.approx(
            search.oracle.get_best_trials()[0].score
        )


@pytest.mark.parametrize("what", ["data", "seed", "build"])
def test_what_differs_is_not_shared(tmp_path, what):
    grid(tmp_path, "first", plan=tmp_path / "plan").search(X, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        before = plan.totals()["steps"]
    scaled = X * 2 if what == "data" else X
    make = (lambda hp: build(hp)) if what == "build" else build
    second = tuner.GridSearch(
        make,
        "val_accuracy",
        seed=6 if what == "seed" else 5,
        directory=tmp_path,
        project_name="second",
        plan=tmp_path / "plan",
    )
    second.search(scaled, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        assert plan.totals()["steps"] == 2 * before


def test_what_cannot_be_told_apart_is_not_shared(tmp_path):
    """What the build functions close over has no fingerprint; their studies have nothing in common, but resume."""

    def made(width):
        lock = threading.Lock()

        def build(hp):
            with lock:
                model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(width), keras.layers.Dense(2)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(hp.Choice("rate", [0.1])), loss, metrics=["accuracy"], jit_compile=False)
            return model

        return build

    searches = [grid(tmp_path, name, made(width), plan=tmp_path / "plan") for name, width in (("a", 2), ("b", 64))]
    for search in searches:
        search.search(X, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        totals = plan.totals()
        assert totals["run"] == 2
    grid(tmp_path, "a", made(2), plan=tmp_path / "plan").search(X, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        assert plan.totals()["steps"] == totals["steps"]


def test_studies_at_the_same_time_share(tmp_path):
    """Two processes: each stage is trained by one of them."""
    program = (
        "import sys; from tests.tuner import studies_test as s; "
        "s.grid(sys.argv[1], sys.argv[2], plan=sys.argv[1] + '/plan').search(s.X, s.Y, **s.FIT)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name], stderr=subprocess.DEVNULL)
        for name in ("first", "second")
    ]
    assert [process.wait(300) for process in processes] == [0, 0]
    alone = grid(tmp_path, "alone")
    alone.search(X, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        totals = plan.totals()
        scores = [{r.trial: r.score for r in plan.trials(study["id"])} for study in plan.studies()]
    assert totals["steps"] == small.totals(alone)["steps"]
    assert scores[0] == scores[1] == {name: trial.score for name, trial in alone.oracle.trials.items()}


def test_best_models(tmp_path):
    objective = keras_tuner.Objective("loss", "min")  # best at the last epoch, which the two do not share
    made = [lambda hp: build(hp, ("0.1@0|0.02@2", "0.1@0|0.0@3"))]
    search = tuner.GridSearch(made[0], objective, seed=5, directory=tmp_path, keep_best_models=1)
    search.search(X, Y, **FIT)
    best, other = search.get_best_models(2)
    kept, again = search.oracle.get_best_trials(2)
    for model, trial in ((best, kept), (other, again)):
        evaluated = model.evaluate(X[144:], Y[144:], verbose=0, return_dict=True)["loss"]
        assert evaluated == pytest.approx(trial.metrics.get_history("val_loss")[0].value[0], rel=1e-6)
    with tuner.Plan(search.project_dir) as plan:
        assert len(plan.checkpoints("best")) == 1
        assert not plan.checkpoints()
    reloaded = tuner.GridSearch(made[0], objective, seed=5, directory=tmp_path, keep_best_models=1)
    np.testing.assert_array_equal(reloaded.get_best_models()[0].get_weights()[0], best.get_weights()[0])
    with pytest.raises(ValueError, match="keep_best_models"):
        reloaded.get_best_models(2)


def test_unknown_objective_is_found_before_training(tmp_path):
    search = tuner.GridSearch(build, keras_tuner.Objective("val_auc", "max"), directory=tmp_path)
    with pytest.raises(keras_tuner.errors.FatalValueError, match="val_accuracy"):
        search.search(X, Y, **FIT)
    assert not os.path.exists(os.path.join(search.project_dir, "plan.sqlite"))


def test_trials_whose_build_raises_fail_and_others_go_on(tmp_path):
    def fragile(hp):
        if hp.Choice("units", [8, 9, 10]) == 9:
            raise RuntimeError("nine is unlucky")
        return build(hp)

    search = grid(tmp_path, make=fragile)
    search.search(X, Y, **FIT)
    trials = list(search.oracle.trials.values())
    failed = [t for t in trials if t.status == "FAILED"]
    assert {t.hyperparameters.values["units"] for t in failed} == {9}
    assert all("nine is unlucky" in t.message for t in failed)
    assert len(failed) == 2 and len(trials) == 6


def test_losses_that_are_no_numbers(tmp_path):
    search = grid(tmp_path, make=lambda hp: build(hp, ("0.1@0", "1e30@0")))
    search.search(X, Y, validation_split=0.25, epochs=2, verbose=0)
    statuses = sorted(trial.status for trial in search.oracle.trials.values())
    assert "COMPLETED" in statuses


def test_a_schedule_that_is_too_short(tmp_path):
    search = grid(tmp_path, make=lambda hp: build(hp, (tuner.cosine(0.1, epochs=3), "0.1@0")))
    search.search(X, Y, **FIT)
    short, whole = sorted(search.oracle.trials.values(), key=lambda t: t.status == "COMPLETED")
    assert "ends after 3" in short.message and short.status == "FAILED" and whole.status == "COMPLETED"


def test_overridden_fit_runs_separately(tmp_path, caplog):
    class Own(keras_tuner.HyperModel):
        def build(self, hp):
            return small.model(keras.optimizers.SGD(hp.Choice("learning_rate", [0.1, 0.01])))

        def fit(self, hp, model, *args, **kwargs):
            return model.fit(*args, batch_size=hp.Choice("batch", [16, 32]), **kwargs)

    search = grid(tmp_path, make=Own())
    search.search(X, Y, **FIT)
    assert "Own.fit is overridden" in caplog.text
    assert all(t.status == "COMPLETED" for t in search.oracle.trials.values())
    assert len(search.oracle.trials) >= 2
    exact = grid(tmp_path, "exact", make=Own(), exact=True)
    with pytest.raises(tuner.SharingError, match="overridden"):
        exact.search(X, Y, **FIT)


def test_data_that_cannot_be_reproduced(tmp_path):
    import tensorflow as tf

    shuffled = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(100).batch(16)
    with pytest.raises(tuner.InexactDataError, match="ShuffleDataset"):
        grid(tmp_path, exact=True).search(shuffled, validation_data=(X, Y), epochs=2, verbose=0)


def test_dataset_functions_and_pydatasets(tmp_path):
    import tensorflow as tf

    def batches(epoch, seed, batch_size=16):
        order = np.random.default_rng([seed, epoch]).permutation(len(X))
        return tf.data.Dataset.from_tensor_slices((X[order], Y[order])).batch(batch_size)

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            return X[16 * i : 16 * (i + 1)], Y[16 * i : 16 * (i + 1)]

    for number, data in enumerate([tuner.data.dataset_fn(batches), Batches()]):
        shared = grid(tmp_path, f"shared{number}", exact=True)
        shared.search(data, validation_data=(X, Y), epochs=4, verbose=0)
        alone = grid(tmp_path, f"alone{number}", make=lambda hp: build(hp, ("0.1@0|0.02@2",)), exact=True)
        alone.search(data, validation_data=(X, Y), epochs=4, verbose=0)
        ((key, history),) = small.histories(alone).items()
        assert small.histories(shared)[key] == history


def test_stock_oracles(tmp_path):
    search = tuner.Tuner(
        keras_tuner.oracles.RandomSearchOracle("val_accuracy", max_trials=2, seed=5), build, directory=tmp_path
    )
    search.search(X, Y, **FIT)
    assert len(search.oracle.trials) == 2
    assert isinstance(search.oracle, oracles.StageOracle)


def test_chief_and_workers_of_keras_tuner(tmp_path):
    """The environment variables of Keras Tuner; chief and worker are processes of their own."""
    program = (
        "import sys; from tests.tuner import studies_test as s; s.grid(sys.argv[1], 'far').search(s.X, s.Y, **s.FIT)"
    )
    common = {**os.environ, "KERASTUNER_ORACLE_IP": "127.0.0.1", "KERASTUNER_ORACLE_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**common, "KERASTUNER_TUNER_ID": name},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in ("chief", "worker")
    ]
    try:
        assert processes[1].wait(240) == 0
        assert processes[0].wait(60) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
    search = grid(tmp_path, "far")
    assert sorted(t.status for t in search.oracle.trials.values()) == ["COMPLETED"] * 2
    alone = grid(tmp_path, "near")
    alone.search(X, Y, **FIT)
    assert [t.score for t in search.oracle.get_best_trials(2)] == [t.score for t in alone.oracle.get_best_trials(2)]


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_cross_validation(tmp_path):
    search = tuner.KFoldTuner(
        oracles.GridSearchOracle("val_accuracy", seed=5), build, folds=3, directory=tmp_path, exact=True
    )
    search.search(X, Y, epochs=4, verbose=0)
    histories = small.histories(search)
    assert len(histories) == 2 * 3
    for trial in search.oracle.trials.values():
        values = tuple(sorted(trial.hyperparameters.values.items()))
        bests = [max(e["val_accuracy"] for e in histories[values, fold, 4]) for fold in range(3)]
        assert trial.score == np.mean(bests)
    assert small.totals(search)["steps"] < 0.8 * 2 * 3 * 4 * 8


def test_rerun_from_the_command_line(tmp_path):
    """A trial that shared its prefix, by itself and in another process: equal bit for bit."""
    search = grid(tmp_path)
    search.search(X, Y, **FIT)
    command = [sys.executable, "-m", "tf_ext.cli", "tuner", "rerun", search.project_dir, "0001"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "4 epochs, equal to the plan bit for bit" in done.stdout


def test_tensorboard_callback(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    search = grid(tmp_path)
    search.search(X, Y, callbacks=[keras.callbacks.TensorBoard(log_dir=str(tmp_path / "logs"))], **FIT)
    histories = list(small.histories(search).values())
    for trial, history in zip(sorted(search.oracle.trials), histories, strict=True):
        log = EventAccumulator(str(tmp_path / "logs" / trial / "execution0" / "validation"))
        log.Reload()
        logged = [tf_value(event) for event in log.Tensors("epoch_loss")]
        assert logged == pytest.approx([epoch["val_loss"] for epoch in history])


def tf_value(event):
    import tensorflow as tf

    return float(tf.make_ndarray(event.tensor_proto))


def test_a_later_study_goes_on_from_what_is_kept(tmp_path):
    """Another end on the same beginning: the beginning is not trained again where its state was kept."""
    grid(tmp_path, "first", plan=tmp_path / "plan").search(X, Y, **FIT)
    grid(tmp_path, "more", make=build, plan=tmp_path / "plan").search(X, Y, validation_split=0.25, epochs=6, verbose=0)
    with tuner.Plan(tmp_path / "plan") as plan:
        totals = plan.totals()
    assert totals["again"] == 0
    whole = grid(tmp_path, "whole")
    whole.search(X, Y, validation_split=0.25, epochs=6, verbose=0)
    assert small.totals(whole)["steps"] == totals["steps"]
    nothing = grid(tmp_path, "nothing", plan=tmp_path / "plan", keep_checkpoints=1)
    nothing.search(X, Y, **FIT)
    with tuner.Plan(tmp_path / "plan") as plan:
        assert sum(size for _, size in plan.checkpoints().values()) <= 1


def test_under_a_mirrored_strategy(tmp_path):
    command = [sys.executable, "-m", "tests.tuner.mirrored_search", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "well"
    assert "masks of replicas" in done.stderr


def test_what_the_tuner_compiles_with_replaces_what_the_model_was_compiled_with(tmp_path):
    """As in Keras Tuner; what is not given stays, a metric that is an object too."""

    def made(hp):
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(hp.Choice("units", [2, 3]))])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        top = keras.metrics.SparseTopKCategoricalAccuracy(k=1, name="top")
        model.compile("sgd", loss, metrics=[top], jit_compile=False)
        return model

    for name, arguments, metric in (
        ("optimizer", {"optimizer": keras.optimizers.Adam(0.02)}, "val_top"),
        ("metrics", {"metrics": ["accuracy"]}, "val_accuracy"),
    ):
        search = tuner.GridSearch(
            made, keras_tuner.Objective(metric, "max"), seed=5, directory=tmp_path, project_name=name, **arguments
        )
        search.search(X, Y, **FIT)
        assert [t.status for t in search.oracle.trials.values()] == ["COMPLETED"] * 2
        model = search.get_best_models()[0]
        assert isinstance(model.optimizer, keras.optimizers.Adam if name == "optimizer" else keras.optimizers.SGD)
        named = {n.removeprefix("val_") for h in small.histories(search).values() for e in h for n in e}
        assert named == {"loss", metric.removeprefix("val_")}

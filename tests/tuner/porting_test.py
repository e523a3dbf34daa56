"""What programs of Keras Tuner do, with the import exchanged."""

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf

from tf_ext import tuner
from tf_ext.tuner import errors

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(64, 4)).astype("float32")
Y = X[:, 0]


def build(hp):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(hp.Float("learning_rate", 0.01, 0.1)), "mse", jit_compile=False)
    return model


def random_search(tmp_path, hypermodel=build, objective="loss", **settings):
    settings = {"max_trials": 2, "seed": 1, "directory": tmp_path, **settings}
    return tuner.RandomSearch(hypermodel, objective, **settings)


def test_names_of_keras_tuner_are_here():
    for name in ("HyperModel", "HyperParameters", "Objective", "Oracle", "SklearnTuner"):
        assert getattr(tuner, name) is getattr(keras_tuner, name)
    assert tuner.applications is keras_tuner.applications
    assert errors.FailedTrialError is keras_tuner.errors.FailedTrialError
    with pytest.raises(AttributeError, match="nothing"):
        errors.nothing  # noqa: B018


def test_lists_of_inputs_and_outputs(tmp_path):
    def of_two(hp):
        inputs = [keras.Input((2,)), keras.Input((2,))]
        hidden = keras.layers.Dense(hp.Int("units", 2, 4))(keras.layers.concatenate(inputs))
        outputs = [keras.layers.Dense(1, name=name)(hidden) for name in ("one", "two")]
        model = keras.Model(inputs, outputs)
        model.compile("sgd", ["mse", "mae"], metrics=[["mae"], ["mse"]], jit_compile=False)
        return model

    search = random_search(tmp_path, of_two, tuner.Objective("val_one_mae", "min"))
    search.search([X[:, :2], X[:, 2:]], [Y, Y], validation_split=0.25, epochs=1, verbose=0)
    assert all(trial.status == "COMPLETED" for trial in search.oracle.trials.values())


class Stepping(keras.Model):
    """Has a step of its own, and no loss of Keras's."""

    def __init__(self, units):
        super().__init__()
        self.inner = keras.layers.Dense(units)
        self.outer = keras.layers.Dense(1)

    def call(self, inputs):
        return self.outer(self.inner(inputs))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            error = tf.reduce_mean((self(x, training=True) - y[:, None]) ** 2)
        self.optimizer.apply_gradients(
            zip(tape.gradient(error, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"error": error}


def test_a_train_step_that_names_its_metrics(tmp_path):
    def stepping(hp):
        model = Stepping(hp.Int("units", 2, 4))
        model.compile("sgd", jit_compile=False)
        return model

    search = random_search(tmp_path, stepping, tuner.Objective("error", "min"))
    search.search(X, Y, epochs=1, verbose=0)
    assert all(trial.score > 0 for trial in search.oracle.trials.values())
    wrong = random_search(tmp_path, stepping, tuner.Objective("other", "min"), project_name="wrong")
    with pytest.raises(errors.FatalValueError, match="'other'"):
        wrong.search(X, Y, epochs=1, verbose=0)


def test_validation_data_that_are_read_once_are_not_shared(tmp_path):
    def endless():
        while True:
            yield X[:16], Y[:16]

    arguments = {"validation_data": endless(), "validation_steps": 1, "epochs": 1, "verbose": 0}
    with pytest.raises(tuner.SharingError, match="validation data of type generator"):
        random_search(tmp_path, objective="val_loss", exact=True).search(X, Y, **arguments)


def test_executions_of_which_some_were_validated_at_their_best(tmp_path):
    search = random_search(tmp_path, executions_per_trial=2)
    search.search(X, Y, validation_split=0.25, validation_freq=2, epochs=2, verbose=0)
    entry = type("Entry", (), {"paths": {0: 0, 1: 1}})()
    logs = [{"loss": 1.0, "val_loss": 2.0}, {"loss": 3.0}]
    engine = type("Engine", (), {"best": lambda _, path: (0, 0), "history": lambda _, path: [logs[path]]})()
    from tf_ext.tuner._search import Search

    one = Search.__new__(Search)
    one._engine, one._oracle = engine, search.oracle
    assert one._metrics(entry) == ({"loss": 2.0}, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": None}, "expected training data"),
        ({"x": X.tolist(), "y": Y.tolist()}, "a list of numbers"),
        ({"epochs": 0}, "`epochs` to be a whole number from 1 on, got 0"),
        ({"epochs": "2"}, "`epochs` to be a whole number"),
        ({"epochs": 2.5}, "`epochs` to be a whole number"),
        ({"batch_size": 0}, "`batch_size` to be a whole number from 1 on"),
        ({"steps_per_epoch": 0}, "`steps_per_epoch` to be a whole number from 1 on"),
        ({"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)}, "got `y` as well"),
        ({"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(8), "y": None, "validation_split": 0.5}, "_split` as"),
        ({"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat(), "y": None}, "has no end"),
        ({"x": tf.data.Dataset.from_tensor_slices((X[:0], Y[:0])).batch(8), "y": None}, "has none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_arguments_that_cannot_be_meant(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        random_search(tmp_path).search(**{"x": X, "y": Y, "epochs": 1, "verbose": 0, **arguments})
    assert not list(tmp_path.rglob("plan.sqlite"))


def test_sequences_that_nothing_would_change_are_refused(tmp_path):
    def endless():
        while True:
            yield X[:16], Y[:16]

    def changing(hp):
        model = build(hp)
        model.optimizer.learning_rate = tuner.sequence(hp, "rate", ["0.1@0|0.01@1", "0.1@0"])
        return model

    with pytest.raises(
        tuner.SharingError, match="sequences rate can change during the training.*generator can be read"
    ):
        random_search(tmp_path, changing).search(endless(), steps_per_epoch=1, epochs=2, verbose=0)


class Twofold(Stepping):
    """Trains its parts by optimizers of their own."""

    def compile(self, second, **settings):
        super().compile(**settings)
        self.second = second


def test_models_of_several_optimizers_are_not_shared(tmp_path):
    def twofold(hp):
        model = Twofold(hp.Int("units", 2, 4))
        model.compile(keras.optimizers.Adam(), optimizer="sgd", jit_compile=False)
        return model

    search = random_search(tmp_path, twofold, tuner.Objective("error", "min"), exact=True)
    with pytest.raises(tuner.SharingError, match="the model's second"):
        search.search(X, Y, epochs=1, verbose=0)


def test_validation_data_by_chance_are_not_exact(tmp_path):
    validation = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(64).take(8).batch(8)
    with pytest.raises(tuner.InexactDataError, match="validation data draw random numbers"):
        random_search(tmp_path, exact=True).search(X, Y, validation_data=validation, epochs=1, verbose=0)


def test_subclasses_of_model_without_build(tmp_path):
    class Plain(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.inner, self.outer = keras.layers.Dense(units), keras.layers.Dense(1)

        def call(self, inputs):
            return self.outer(self.inner(inputs))

    def plain(hp):
        model = Plain(hp.Int("units", 2, 4))
        model.compile("sgd", "mse", jit_compile=False)
        return model

    random_search(tmp_path, plain, "val_loss").search(X, Y, validation_data=(X, Y), epochs=1, verbose=0)
    again = random_search(tmp_path, plain, "val_loss")  # no data are at hand
    best = again.oracle.get_best_trials()[0]
    assert again.get_best_models()[0].evaluate(X, Y, verbose=0) == best.score

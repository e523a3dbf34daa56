"""Hyper-parameters that only some trials have, or that mean another thing in some trials."""

import keras
import numpy as np
import pytest

from tf_ext import tuner

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(64, 4)).astype("float32")
Y = X[:, 0]
ALL = {"verbose": 0, "shuffle": False}


def one_layer(optimizer):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def scores(search):
    return {tuple(t.hyperparameters.values.values()): t.score for t in search.oracle.trials.values()}


def plain(build, hp, seed, epochs):
    """What Keras alone makes of a trial with constant values and all data in one batch."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    return min(build(hp).fit(X, Y, batch_size=64, epochs=epochs, **ALL).history["loss"])


def test_what_is_asked_for_in_loops_is_searched(tmp_path):
    def build(hp):
        layers = [keras.layers.Dense(hp.Int(f"units_{i}", 2, 12)) for i in range(hp.Int("layers", 1, 2))]
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        return model

    search = tuner.RandomSearch(build, "loss", max_trials=5, seed=3, directory=tmp_path, project_name="loops")
    search.search(X, Y, epochs=1, verbose=0)
    found = [t.hyperparameters.values.get("units_1") for t in search.oracle.trials.values()]
    assert "units_1" in search.oracle.get_space()
    assert len(set(found) - {None}) > 1


def test_a_rate_that_one_optimizer_scales(tmp_path):
    def build(hp):
        rate, name = hp.Choice("learning_rate", [0.001, 0.002]), hp.Choice("optimizer", ["adam", "sgd"])
        return one_layer(keras.optimizers.Adam(rate) if name == "adam" else keras.optimizers.SGD(10 * rate))

    search = tuner.GridSearch(build, "loss", seed=1, directory=tmp_path, project_name="scaled")
    search.search(X, Y, batch_size=64, epochs=2, **ALL)
    for trial in search.oracle.trials.values():
        assert trial.score == plain(build, trial.hyperparameters, 1, 2), trial.hyperparameters.values


def test_a_rate_that_one_branch_uses_twice(tmp_path):
    def build(hp):
        rate, penalty = hp.Choice("learning_rate", [0.01, 0.02]), hp.Boolean("penalty")
        layer = keras.layers.Dense(1, kernel_regularizer=keras.regularizers.L2(rate) if penalty else None)
        model = keras.Sequential([keras.Input((4,)), layer])
        model.compile(keras.optimizers.SGD(rate), "mse", jit_compile=False)
        return model

    search = tuner.GridSearch(build, "loss", seed=1, directory=tmp_path, project_name="twice")
    search.search(X, Y, batch_size=64, epochs=2, **ALL)
    for trial in search.oracle.trials.values():
        assert trial.score == plain(build, trial.hyperparameters, 1, 2), trial.hyperparameters.values


def test_a_sequence_of_a_scope_that_is_not_active_at_first(tmp_path):
    def build(hp):
        hp.Choice("kind", ["a", "b"])
        with hp.conditional_scope("kind", ["b"]):
            if hp.get("kind") == "b":
                tuner.sequence(hp, "batch_size", ["8@0", "64@0"])
        return one_layer("sgd")

    search = tuner.GridSearch(build, "loss", seed=1, directory=tmp_path, project_name="scope")
    search.search(X, Y, batch_size=32, epochs=1, **ALL)
    assert len(set(scores(search).values())) == 3


def test_a_sequence_that_is_found_too_late_fails_its_trials(tmp_path):
    def build(hp):
        if hp.Choice("kind", ["a", "b"]) == "b":
            tuner.sequence(hp, "batch_size", ["8@0", "64@0"])
        return one_layer("sgd")

    search = tuner.GridSearch(build, "loss", seed=1, directory=tmp_path, project_name="late")
    search.search(X, Y, epochs=1, **ALL)
    ended = {t.hyperparameters.values["kind"]: t for t in search.oracle.trials.values()}
    assert ended["a"].status == "COMPLETED"
    assert ended["b"].status == "FAILED"
    assert "hp.conditional_scope" in ended["b"].message


def test_a_plain_choice_of_batch_size(tmp_path):
    def build(hp):
        hp.Choice("batch_size", [8, 64])
        return one_layer("sgd")

    search = tuner.GridSearch(build, "loss", seed=1, directory=tmp_path, project_name="batch")
    search.search(X, Y, epochs=1, **ALL)
    small, large = scores(search).values()
    assert small < large


def test_a_batch_size_without_effect_is_refused(tmp_path):
    import tensorflow as tf

    def build(hp):
        tuner.sequence(hp, "batch_size", ["8@0", "64@0"])
        return one_layer("sgd")

    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    search = tuner.GridSearch(build, "loss", directory=tmp_path, project_name="lost")
    with pytest.raises(tuner.InvalidSequenceError, match="made with 'batch_size', got a tf.data.Dataset"):
        search.search(data, epochs=1, verbose=0)

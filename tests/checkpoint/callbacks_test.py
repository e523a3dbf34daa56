"""Callbacks go on where they stopped, though `fit` resets them when it begins."""

import keras
import numpy as np
import pytest

from tests.checkpoint.training import difference, make_model, train
from tf_ext import checkpoint
from tf_ext.checkpoint import Store


class Counter(keras.callbacks.Callback):
    """A callback of one's own, with a state of every kind."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def on_train_begin(self, logs=None):
        self.seen = {
            "epochs": (),
            "by number": {3: np.float32(1.5)},
            "last": None,
            "a/b": np.arange(2),
            "a": {"b": np.arange(3)},
        }

    def on_epoch_end(self, epoch, logs=None):
        self.seen["epochs"] += (epoch,)
        self.seen["last"] = [logs["loss"], np.array([epoch, 7], np.int8)]

    def get_state(self):
        return self.seen

    def set_state(self, state):
        self.seen = state


class Recorder(keras.callbacks.Callback):
    """Decides what the others see: the loss comes from a list, so that it stops improving when the test wants."""

    losses = (5.0, 4.0, 4.5, 4.4, 4.3, 4.2)

    def on_epoch_end(self, epoch, logs=None):
        logs["watched"] = self.losses[epoch]


def _callbacks(tmp_path):
    watched = {"monitor": "watched", "mode": "min"}
    return [
        keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True, **watched),
        keras.callbacks.ReduceLROnPlateau(patience=2, factor=0.5, cooldown=1, **watched),
        keras.callbacks.ModelCheckpoint(
            str(tmp_path / "best.weights.h5"), save_best_only=True, save_weights_only=True, **watched
        ),
        Counter(),
    ]


def _plain(callbacks):
    stopping, plateau, best, counter = callbacks
    learnt = [stopping.wait, stopping.best, stopping.best_epoch, plateau.wait, plateau.best, plateau.cooldown_counter]
    return [*learnt, best.best, counter.seen["epochs"]]


def test_callbacks_go_on_where_they_stopped(tmp_path):
    whole, callbacks = make_model("sgd", seed=1), _callbacks(tmp_path)
    train(whole, 0, 6, [Recorder(), *callbacks])

    first, before = make_model("sgd", seed=1), _callbacks(tmp_path)
    # The state in the midst of `fit`: at its end EarlyStopping puts back the best weights.
    taken = []
    capture = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: taken.append(checkpoint.keras.capture(first, callbacks=before))
    )
    train(first, 0, 3, [Recorder(), *before, capture])
    store = Store(tmp_path / "store")
    checkpoint.keras.save(store, "epoch-3", taken[-1])
    best_weights = before[0].best_weights
    assert taken[-1].nbytes > sum(value.nbytes for _, value in [*taken[-1].model, *(taken[-1].optimizer or ())])

    state = checkpoint.keras.load(store, "epoch-3")
    second, after = make_model("sgd", seed=99), _callbacks(tmp_path)
    checkpoint.keras.restore(second, state)
    restored = []
    look = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: restored.append(_plain(after)))
    train(second, 3, 6, [Recorder(), *after, checkpoint.keras.ResumeCallbacks(state, after), look])
    assert restored == [[1, 4.0, 1, 1, 4.0, 0, 4.0, (0, 1, 2)]]
    assert _plain(after) == _plain(callbacks)
    assert after[0].stopped_epoch == callbacks[0].stopped_epoch == 5
    assert difference(whole, second) == 0.0  # the learning rate, and the best weights of an epoch before the restart
    assert all((a == b).all() for a, b in zip(best_weights, second.get_weights(), strict=True))


def test_values_of_every_kind_keep_their_type(tmp_path):
    model, counter = make_model("sgd", seed=1), Counter()
    train(model, 0, 1, [counter])
    store = Store(tmp_path)
    checkpoint.keras.save(store, "x", checkpoint.keras.capture(model, callbacks=[counter]))
    ((name, loaded),) = checkpoint.keras.load(store, "x").callbacks
    assert name == "Counter"
    assert list(loaded) == ["epochs", "by number", "last", "a/b", "a"]
    assert (loaded["epochs"], loaded["by number"]) == ((0,), {3: 1.5})
    assert type(loaded["by number"][3]) is np.float32
    assert loaded["last"][0] == counter.seen["last"][0]
    assert (loaded["last"][1].dtype, loaded["last"][1].tolist()) == (np.int8, [0, 7])
    assert (loaded["a/b"].tolist(), loaded["a"]["b"].tolist()) == ([0, 1], [0, 1, 2])


def test_resuming_leaves_the_state_as_it_was():
    model, counter = make_model("sgd", seed=1), Counter()
    train(model, 0, 1, [counter])
    state = checkpoint.keras.capture(model, callbacks=[counter])
    for _ in range(2):
        train(model, 1, 2, [counter, checkpoint.keras.ResumeCallbacks(state, [counter])])
        assert counter.seen["epochs"] == (0, 1)


def test_other_callbacks_are_refused():
    model = make_model("sgd", seed=1)
    stopping, plateau = keras.callbacks.EarlyStopping(), keras.callbacks.ReduceLROnPlateau()
    state = checkpoint.keras.capture(model, callbacks=[stopping, plateau])
    for callbacks in ([], [stopping], [plateau, stopping]):
        with pytest.raises(checkpoint.StateMismatchError, match=r"\['EarlyStopping', 'ReduceLROnPlateau'\], got"):
            checkpoint.keras.ResumeCallbacks(state, callbacks)
    with pytest.raises(checkpoint.InvalidBlobError, match="got CSVLogger. Give it the two methods"):
        checkpoint.keras.capture(model, callbacks=[keras.callbacks.CSVLogger("log.csv")])


def test_a_state_that_cannot_be_stored_is_refused_by_its_place(tmp_path):
    model, counter = make_model("sgd", seed=1), Counter()
    counter.seen = {"a": [1, {2, 3}]}
    state = checkpoint.keras.capture(model, callbacks=[counter])
    with pytest.raises(checkpoint.InvalidBlobError, match=r"callbacks/0/Counter/0:a/1: expected arrays.*got set"):
        checkpoint.keras.save(Store(tmp_path), "x", state)

"""The state of callbacks: what they have learnt so far, which `fit` makes them forget when it begins.

`EarlyStopping` and `ReduceLROnPlateau` reset themselves in `on_train_begin`, so that their state is put back after it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import keras

from tf_ext.checkpoint.errors import InvalidBlobError, StateMismatchError

# Public and private attributes that change while the callback runs. What its constructor was given is not among them.
_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_weights", "best_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.LearningRateScheduler: (),
    keras.callbacks.TerminateOnNaN: (),
}


def capture_callbacks(callbacks: Sequence[keras.callbacks.Callback]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Returns the class name and the state of each callback.

    Raises:
        InvalidBlobError: It is not known what the state of one is.
    """
    states = []
    for callback in callbacks:
        if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
            state = dict(callback.get_state())
        else:
            state = {name: getattr(callback, name) for name in _attributes(callback) if hasattr(callback, name)}
        states.append((type(callback).__name__, copy.deepcopy(state)))
    return tuple(states)


def unknown_callbacks(callbacks: Sequence[keras.callbacks.Callback]) -> list[str]:
    """The class names of the callbacks whose state `capture` cannot take."""
    names = []
    for callback in callbacks:
        try:
            capture_callbacks([callback])
        except InvalidBlobError:
            names.append(type(callback).__name__)
    return names


def put_back(callback: keras.callbacks.Callback, state: dict[str, Any]) -> None:
    """Gives a callback the state that `capture_callbacks` took."""
    state = copy.deepcopy(state)
    if hasattr(callback, "set_state"):
        callback.set_state(state)
        return
    for name, value in state.items():
        setattr(callback, name, value)


def check_callbacks(
    callbacks: Sequence[keras.callbacks.Callback], states: Sequence[tuple[str, dict[str, Any]]]
) -> None:
    """Compares callbacks with those whose state was taken.

    Raises:
        StateMismatchError: They are others, or come in another order.
    """
    expected = [name for name, _ in states]
    got = [type(callback).__name__ for callback in callbacks]
    if expected != got:
        raise StateMismatchError(
            f"expected the callbacks whose state was captured, {expected}, got {got}. Give the same ones in the same order."
        )


def _attributes(callback: keras.callbacks.Callback) -> tuple[str, ...]:
    for kind, names in _ATTRIBUTES.items():
        if isinstance(callback, kind):
            return names
    raise InvalidBlobError(
        f"expected callbacks of {', '.join(sorted(kind.__name__ for kind in _ATTRIBUTES))}, or with methods get_state() and "
        f"set_state(state), got {type(callback).__name__}. Give it the two methods, or leave it out if it keeps no state."
    )

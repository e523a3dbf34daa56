"""The exact state of a Keras model, for going on with its training bit for bit.

    from tf_ext import checkpoint

    store = checkpoint.Store("/data/checkpoints")
    model.fit(data, epochs=2, callbacks=[stopping, checkpoint.keras.SaveEveryEpoch(store, callbacks=[stopping])])

    state = checkpoint.keras.load(store, "epoch-2")  # another process, a new model of the same making
    checkpoint.keras.restore(model, state)
    resume = checkpoint.keras.ResumeCallbacks(state, [stopping])
    model.fit(data, initial_epoch=2, epochs=4, callbacks=[stopping, resume])

The weights file of Keras leaves out the states of seed generators, and with them the masks of `Dropout`; here all of
`model.variables` and `optimizer.variables` are taken. What a model does not hold cannot be taken: the order of the data
must be a function of the epoch, and layers must draw their random numbers from a `keras.random.SeedGenerator` of their own,
as those of Keras do. Settings of an optimizer that are not variables, such as a momentum, come from its constructor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tf_ext.errors import OperatorLibraryError

try:
    import keras
except ModuleNotFoundError as _error:
    raise OperatorLibraryError(
        "tf_ext.checkpoint.keras takes the state of Keras models, and expected Keras, which is not installed. "
        "It comes with TensorFlow; install one: pip install 'tensorflow-cpu>=2.21,<2.22'"
    ) from _error

from tf_ext.checkpoint._callbacks import capture_callbacks, check_callbacks, put_back, unknown_callbacks
from tf_ext.checkpoint._matching import check_variables
from tf_ext.checkpoint._state import RESERVED, State, Variables, from_blobs, to_blobs
from tf_ext.checkpoint.errors import InvalidBlobError, StateMismatchError
from tf_ext.checkpoint.store import Store

__all__ = ["ResumeCallbacks", "SaveEveryEpoch", "State", "capture", "load", "restore", "save", "unknown_callbacks"]


def capture(model: keras.Model, *, callbacks: Sequence[keras.callbacks.Callback] = (), metrics: bool = False) -> State:
    """Copies the state of a model between two epochs.

    At its end `fit` may exchange the weights: for the best ones (`EarlyStopping`) or for averages (an optimizer with
    `use_ema`). A training that is to go on as if it had not stopped is captured before that: see `SaveEveryEpoch`.

    Args:
        model: A built model. Its optimizer is taken too if it was compiled; one that has not trained yet is built.
        callbacks: Callbacks whose state is taken: those of Keras that change with the training, and any with methods
            `get_state()` and `set_state(state)`.
        metrics: Take the variables of the compiled metrics as well. `fit` resets them when an epoch begins, so that they
            matter to loops of one's own only.

    Returns:
        The state.

    Raises:
        StateMismatchError: The model is not built.
        InvalidBlobError: It is not known what the state of a callback is.

    Example:
        state = capture(model)
        model.fit(data)
        restore(model, state)  # as if it had not been trained
    """
    _require_built(model)
    optimizer = _optimizer_of(model)
    return State(
        model=_copy(model.variables),
        optimizer=None if optimizer is None else _copy(optimizer.variables),
        metrics=_copy(model.metrics_variables) if metrics else None,
        callbacks=capture_callbacks(callbacks),
    )


def restore(model: keras.Model, state: State) -> None:
    """Gives a model, its optimizer and its metrics the values of a state. `ResumeCallbacks` does it for callbacks.

    Variables are told by position and path, where the numbers that Keras appends to names may be others. All are compared
    before any is changed. An optimizer that has not trained yet is built.

    Args:
        model: A built model of the same making, compiled if the state has an optimizer.
        state: What `capture` or `load` returned.

    Raises:
        StateMismatchError: Number, path, shape or dtype of the variables differ; none was changed.
    """
    _require_built(model)
    groups = [("model", model.variables, state.model)]
    _check(*groups[0])  # before an optimizer is built for variables that are others
    if state.optimizer is not None:
        optimizer = _optimizer_of(model)
        if optimizer is None:
            raise StateMismatchError(
                "expected a model with an optimizer, since the state has one, got a model that was not compiled. "
                "Compile it first."
            )
        groups.append(("optimizer", optimizer.variables, state.optimizer))
    if state.metrics is not None:
        groups.append(("metrics", model.metrics_variables, state.metrics))
    for group in groups[1:]:
        _check(*group)
    for _, variables, values in groups:
        for variable, (_, value) in zip(variables, values, strict=True):
            variable.assign(value)


class ResumeCallbacks(keras.callbacks.Callback):
    """Puts the state of callbacks back when `fit` begins, after they have reset themselves. Comes last in the list.

    Args:
        state: What `capture` or `load` returned.
        callbacks: As many callbacks of the same classes, in the same order, as `capture` was given.

    Raises:
        StateMismatchError: They are others.

    Example:
        resume = ResumeCallbacks(state, [stopping])
        model.fit(data, initial_epoch=2, epochs=4, callbacks=[stopping, resume])
    """

    def __init__(self, state: State, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        super().__init__()
        check_callbacks(callbacks, state.callbacks)
        self._pairs = [(callback, values) for callback, (_, values) in zip(callbacks, state.callbacks, strict=True)]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Puts the state back, once: a later `fit` begins anew, as it would have."""
        for callback, values in self._pairs:
            put_back(callback, values)
        self._pairs = []


class SaveEveryEpoch(keras.callbacks.Callback):
    """Saves the state of the training at the end of each epoch. Comes last in the list.

    Args:
        store: Where to.
        name: Name of the checkpoint; ``{epoch}`` stands for the number of epochs that are done, which the metadata tells
            as ``"epoch"``. A name without it has the latest state only.
        callbacks: Callbacks whose state is saved as well; see `capture`.

    Example:
        model.fit(data, epochs=4, callbacks=[stopping, SaveEveryEpoch(store, callbacks=[stopping])])
        restore(model, load(store, "epoch-2"))
    """

    def __init__(
        self, store: Store, name: str = "epoch-{epoch}", callbacks: Sequence[keras.callbacks.Callback] = ()
    ) -> None:
        super().__init__()
        self._store, self._name, self._callbacks = store, name, list(callbacks)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves the state. Keras counts epochs from 0, their number is one more."""
        state = capture(self.model, callbacks=self._callbacks)
        save(self._store, self._name.format(epoch=epoch + 1), state, {"epoch": epoch + 1})


def save(store: Store, name: str, state: State, metadata: Mapping[str, Any] | None = None) -> None:
    """Writes a state as a checkpoint, in the place of an older one of that name.

    Args:
        store: Where to.
        name: Name of the checkpoint; see `Store.save`.
        state: What `capture` returned.
        metadata: More metadata, which `store.metadata(name)` returns, next to an entry of this module.

    Raises:
        InvalidBlobError: The metadata or a callback's state cannot be stored; nothing was changed.
    """
    if metadata is not None and RESERVED in metadata:
        raise InvalidBlobError(
            f"expected metadata without {RESERVED!r}, which is kept for the state. Rename the entry."
        )
    blobs, record = to_blobs(state)
    store.save(name, blobs, {**(metadata or {}), **record})


def load(store: Store, name: str) -> State:
    """Reads the state that `save` wrote, and compares its checksums.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptedCheckpointError: It is not what was written, or no state of a model.
    """
    with store.load(name) as checkpoint:
        return from_blobs(checkpoint, checkpoint.metadata)


def _require_built(model: keras.Model) -> None:
    if not model.built:
        raise StateMismatchError(
            f"expected a built model, got {model.name!r}, which has no variables yet. Call model.build(input_shape), or "
            "the model on an example."
        )


def _optimizer_of(model: keras.Model) -> keras.optimizers.Optimizer | None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    return optimizer


def _copy(variables: Sequence[keras.Variable]) -> Variables:
    # TensorFlow's `numpy()` may be a view of the variable's own memory, which training writes to.
    return tuple((v.path, keras.ops.convert_to_numpy(v).copy()) for v in variables)


def _check(group: str, variables: Sequence[keras.Variable], values: Variables) -> None:
    paths = [path for path, _ in values]
    check_variables(group, variables, paths, [v.shape for _, v in values], [str(v.dtype) for _, v in values])

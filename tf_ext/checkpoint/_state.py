"""The state of a training as a value, and how it lies in a store: arrays under keys, the rest in the metadata."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tf_ext.checkpoint.errors import CorruptedCheckpointError, InvalidBlobError

# The entry of a checkpoint's metadata that is ours; all others are the user's.
RESERVED = "tf_ext.checkpoint.keras"
_VERSION = 1

Array = np.ndarray[Any, Any]
Variables = tuple[tuple[str, Array], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """The exact state of a training between two epochs. Copies, which later training does not change.

    Attributes:
        model: Path and value of each of `model.variables`: weights, statistics, states of seed generators.
        optimizer: The same of `optimizer.variables`, iterations and loss scale included; None if there is no optimizer.
        metrics: The same of `model.metrics_variables`; None where they were not asked for.
        callbacks: Class name and state of each callback.
    """

    model: Variables
    optimizer: Variables | None = None
    metrics: Variables | None = None
    callbacks: tuple[tuple[str, dict[str, Any]], ...] = ()

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes of all arrays, those of the callbacks included."""
        return sum(array.nbytes for array in to_blobs(self)[0].values())


def to_blobs(state: State) -> tuple[dict[str, Array], dict[str, Any]]:
    """Returns what a store keeps of a state: its arrays, and what is none as metadata.

    Raises:
        InvalidBlobError: A callback's state holds what is neither an array nor plain.
    """
    blobs: dict[str, Array] = {}
    groups: dict[str, list[str] | None] = {}
    for group in ("model", "optimizer", "metrics"):
        variables: Variables | None = getattr(state, group)
        groups[group] = None if variables is None else []
        for position, (path, value) in enumerate(variables or ()):
            blobs[f"{group}/{position:05d}/{path}"] = value
            groups[group] = [*(groups[group] or ()), path]
    callbacks = []
    for position, (name, values) in enumerate(state.callbacks):
        callbacks.append([name, _encode(values, f"callbacks/{position}/{name}", blobs)])
    return blobs, {RESERVED: {"version": _VERSION, "groups": groups, "callbacks": callbacks}}


def from_blobs(blobs: Mapping[str, Any], metadata: Mapping[str, Any]) -> State:
    """Returns the state that `to_blobs` took apart.

    Raises:
        CorruptedCheckpointError: It is not one.
    """
    record = metadata.get(RESERVED)
    if not isinstance(record, dict) or record.get("version") != _VERSION:
        raise CorruptedCheckpointError(
            f"expected the state of a Keras model (metadata {RESERVED!r}, version {_VERSION}), got metadata with "
            f"{sorted(metadata)}. Load what `tf_ext.checkpoint.keras.save` of this version wrote."
        )
    groups: dict[str, Variables | None] = {}
    for group, paths in record["groups"].items():
        groups[group] = None
        if paths is not None:
            groups[group] = tuple(
                (path, blobs[f"{group}/{position:05d}/{path}"]) for position, path in enumerate(paths)
            )
    callbacks = tuple((name, _decode(values, blobs)) for name, values in record["callbacks"])
    return State(groups["model"] or (), groups["optimizer"], groups["metrics"], callbacks)


def _encode(value: Any, where: str, blobs: dict[str, Array]) -> Any:
    """Turns a value into what JSON gives back: containers become ``[kind, parts]``, arrays the key of their blob."""
    if isinstance(value, np.ndarray | np.generic):
        blobs[where] = np.asarray(value)
        return ["scalar" if isinstance(value, np.generic) else "array", where]
    if isinstance(value, list | tuple):
        parts = [_encode(part, f"{where}/{position}", blobs) for position, part in enumerate(value)]
        return ["tuple" if isinstance(value, tuple) else "list", parts]
    if isinstance(value, dict):
        # Keys of any plain type, so as pairs.
        pairs = [
            [_encode(key, f"{where}/{position}", blobs), _encode(part, f"{where}/{position}:{key}", blobs)]
            for position, (key, part) in enumerate(value.items())
        ]
        return ["dict", pairs]
    if value is None or type(value) in (bool, int, float, str):
        return ["plain", value]
    raise InvalidBlobError(
        f"{where}: expected arrays, lists, tuples, dicts, numbers, text, booleans or None, got {type(value).__name__}. "
        "Leave it out of what get_state() returns, or convert it there."
    )


def _decode(record: list[Any], blobs: Mapping[str, Any]) -> Any:
    kind, content = record
    decoders: dict[str, Callable[[], Any]] = {
        "plain": lambda: content,
        "array": lambda: blobs[content],
        "scalar": lambda: blobs[content][()],
        "list": lambda: [_decode(part, blobs) for part in content],
        "tuple": lambda: tuple(_decode(part, blobs) for part in content),
        "dict": lambda: {_decode(key, blobs): _decode(part, blobs) for key, part in content},
    }
    return decoders[kind]()

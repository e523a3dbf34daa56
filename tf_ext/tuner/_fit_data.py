"""What `search` is given, in parts: training data as a source, validation data, and the other arguments of `fit`."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_ext.tuner._sources import (
    DEFAULT_BATCH,
    DatasetFn,
    EpochData,
    OnceOnly,
    PlainDataset,
    PlainPyDataset,
    Source,
    random_operations,
)
from tf_ext.tuner.errors import InexactDataError

__all__ = ["FitData", "require_exact", "source_of"]


class _Batches:
    """Validation arrays as data sets, one for each batch size, made once."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts = parts
        self._datasets: dict[int, tf.data.Dataset] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_parts": self._parts, "_datasets": {}}

    def of(self, batch: int) -> tf.data.Dataset:
        """The batches in order."""
        if batch not in self._datasets:
            tensors = tf.nest.map_structure(tf.convert_to_tensor, self._parts)
            # No function of Python's: an iterator over one takes ten times as long to make, for each validation.
            self._datasets[batch] = tf.data.Dataset.from_tensor_slices(tensors).batch(batch)
        return self._datasets[batch]


@dataclasses.dataclass(frozen=True)
class FitData:
    """What `search` was given, in parts.

    Attributes:
        source: The training data.
        validation: `validation_data`, or None.
        rest: The other arguments of `fit`.
    """

    source: Source
    validation: Any
    rest: dict[str, Any]

    def validation_arguments(self, batch: int | None) -> dict[str, Any]:
        """The arguments by which `fit` validates.

        Args:
            batch: The batch size of the training, which counts unless `validation_batch_size` is given.
        """
        if self.validation is None:
            return {}
        batch = self.rest.get("validation_batch_size") or batch
        if not self._validation_arrays:
            return {"validation_data": self.validation} | ({"validation_batch_size": batch} if batch else {})
        return {"validation_data": self._validation_arrays.of(int(batch or DEFAULT_BATCH))}

    @functools.cached_property
    def _validation_arrays(self) -> _Batches | None:
        """Where they are arrays. `fit` would make a data set of them each time, which takes longer than a small epoch."""
        parts = self.validation
        if not isinstance(parts, tuple | list) or not 2 <= len(parts) <= 3 or not _are_arrays(parts):
            return None
        return _Batches(_arrays(tuple(part for part in parts if part is not None)))

    @property
    def inexact(self) -> str | None:
        """Why scores may not be reproduced: the order of the training data, or what the validation data are made of."""
        if self.source.inexact is not None or not isinstance(self.validation, tf.data.Dataset):
            return self.source.inexact
        drawn = random_operations(self.validation)
        return f"the validation data draw random numbers ({', '.join(drawn)})" if drawn else None

    @property
    def reads_once(self) -> str | None:
        """Of what kind the validation data are, where they can be read once or by parts, so that a copy is no beginning."""
        parts = self.validation
        if parts is None or self._validation_arrays or isinstance(parts, tuple | list):
            return None
        return None if isinstance(parts, tf.data.Dataset | keras.utils.PyDataset) else type(parts).__name__


def source_of(arguments: Mapping[str, Any]) -> FitData:
    """Splits the arguments of `fit` into training data, validation data and the rest.

    Args:
        arguments: By name, as of `keras.Model.fit`.

    Raises:
        ValueError: Arguments contradict each other.
    """
    rest = dict(arguments)
    x, y, weight = rest.pop("x", None), rest.pop("y", None), rest.pop("sample_weight", None)
    batch, shuffle, steps = rest.pop("batch_size", None), rest.pop("shuffle", True), rest.pop("steps_per_epoch", None)
    split, validation = rest.pop("validation_split", 0.0), rest.pop("validation_data", None)
    if isinstance(x, EpochData | DatasetFn | tf.data.Dataset | keras.utils.PyDataset):
        _refuse_beside(x, {"y": y, "sample_weight": weight, "validation_split": split or None, "batch_size": batch})
    if isinstance(x, EpochData | DatasetFn):
        return FitData(x, validation, rest)
    if isinstance(x, tf.data.Dataset):
        return FitData(PlainDataset(x, steps), validation, rest)
    if isinstance(x, keras.utils.PyDataset):
        return FitData(PlainPyDataset(x, bool(shuffle)), validation, rest)
    if x is None or not _are_arrays((x, y, weight)):
        given = {"x": x, "y": y, "sample_weight": weight, "batch_size": batch, "steps_per_epoch": steps}
        return FitData(OnceOnly({k: v for k, v in given.items() if v is not None}), validation, rest)
    parts = _arrays((x,) if y is None else (x, y) if weight is None else (x, y, weight))
    if split and validation is None:
        parts, validation = _split(parts, split)
    return FitData(EpochData(parts, batch_size=batch, shuffle=bool(shuffle), seed=None, steps=steps), validation, rest)


def require_exact(data: FitData, exact: bool, warn: Callable[[str], None]) -> None:
    """Says, or refuses, that the order of the data cannot be reproduced.

    Raises:
        InexactDataError: It cannot, and `exact` is true.
    """
    inexact = data.inexact
    if inexact is None:
        return
    advice = "Give arrays, or tuner.data.dataset_fn(lambda epoch, seed: ...) with an order that depends on these alone"
    if exact:
        raise InexactDataError(
            f"expected data whose order can be reproduced, since exact=True; but {inexact}. {advice}."
        )
    warn(f"Scores may differ from those of separate trials: {inexact}. {advice}.")


def _split(parts: tuple[Any, ...], split: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    # Where Keras cuts: the last part, before anything is shuffled.
    count = len(tf.nest.flatten(parts)[0])
    at = math.floor(count * (1.0 - split))
    if not 0 < at < count:
        raise ValueError(f"expected `validation_split` to leave data on both sides, got {split} of {count} examples.")
    return tf.nest.map_structure(lambda a: a[:at], parts), tf.nest.map_structure(lambda a: a[at:], parts)


def _refuse_beside(x: Any, given: Mapping[str, Any]) -> None:
    """What `fit` refuses beside data that come in batches would otherwise be passed over in silence."""
    beside = [name for name, value in given.items() if value is not None]
    if beside:
        raise ValueError(
            f"expected data of type {type(x).__name__} to say all about the batches, got `{'` and `'.join(beside)}` as well. "
            "Put targets, weights and the batch size into the data, and give `validation_data` instead of a split."
        )


def _arrays(parts: Any) -> Any:
    """Arrays in the same structure, its lists as tuples: `tf.data` would stack what is in a list."""
    return keras.tree.lists_to_tuples(tf.nest.map_structure(np.asarray, parts))


def _are_arrays(parts: Any) -> bool:
    leaves = [leaf for leaf in tf.nest.flatten(parts) if leaf is not None]
    return bool(leaves) and all(hasattr(leaf, "__array__") and np.ndim(leaf) > 0 for leaf in leaves)

"""Training data whose order is a function of the seed and the epoch alone, so that a training can go on from any epoch.

`search` takes what `keras.Model.fit` takes. Exact are arrays, what the functions of this module return, a `tf.data.Dataset`
without randomness, and a `keras.utils.PyDataset` whose batches do not change between epochs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_ext.tuner._sources import DEFAULT_BATCH, DatasetFn, EpochData

__all__ = ["DatasetFn", "EpochData", "dataset_fn", "epochs"]


def epochs(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int = DEFAULT_BATCH,
    shuffle: bool = True,
    seed: int | None = None,
) -> EpochData:
    """Arrays in an order that is a function of seed and epoch, for `search` and for training without the tuner.

    `search(x, y)` does the same by itself; this is for those who want the very order elsewhere.

    Args:
        x: Array, or a nest of arrays, whose first dimension counts the examples.
        y: The same for targets.
        sample_weight: The same for weights.
        batch_size: Examples in a batch, where the trial does not say.
        shuffle: Whether each epoch has an order of its own.
        seed: Decides the order; None for that of the tuner.

    Returns:
        What `search` takes as `x`.

    Example:
        data = tuner.data.epochs(x, y, batch_size=64, seed=1)
        search.search(data, epochs=20)
        model.fit(data.dataset(epoch=7))  # the batches of the eighth epoch
    """
    parts = (x,) if y is None else (x, y) if sample_weight is None else (x, y, sample_weight)
    return EpochData(parts, batch_size=batch_size, shuffle=shuffle, seed=seed, steps=None)


def dataset_fn(function: Callable[..., tf.data.Dataset], *, key: str | None = None) -> DatasetFn:
    """Data sets that a function of the epoch and the seed makes.

    Args:
        function: ``function(epoch, seed, ...) -> tf.data.Dataset`` of one epoch. Further parameters are hyper-parameters
            of these names, such as ``batch_size`` or one that `sequence` applies to ``"data"``.
        key: What tells the data from others', for studies that share a plan. The source of the function if left out.

    Returns:
        What `search` takes as `x`.

    Example:
        def batches(epoch, seed, batch_size=64):
            return files.shuffle(1000, seed=seed + epoch).map(parse).batch(batch_size)

        search.search(tuner.data.dataset_fn(batches), epochs=20)
    """
    parameters = inspect.signature(function).parameters
    if len(parameters) < 2:
        raise ValueError(f"expected a function of the epoch and the seed, got one of ({', '.join(parameters)}).")
    return DatasetFn(function, key)

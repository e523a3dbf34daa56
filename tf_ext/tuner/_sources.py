"""Training data that can be had from any epoch on: one class for each kind that `search` may be given."""

from __future__ import annotations

import abc
import functools
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_ext.tuner._fingerprint import fingerprint_of_arrays, fingerprint_of_code

__all__ = [
    "DEFAULT_BATCH",
    "DatasetFn",
    "EpochData",
    "NoData",
    "OnceOnly",
    "PlainDataset",
    "PlainPyDataset",
    "Source",
    "random_operations",
]

DEFAULT_BATCH = 32


class Source(abc.ABC):
    """Training data that can be had from any epoch on.

    Attributes:
        inexact: Why the order of the data cannot be reproduced, or None if it can.
        takes_batch_size: Whether a batch size can be chosen.
        kind: What it is to who reads a message.
    """

    inexact: str | None = None
    takes_batch_size: bool = True
    kind: str = "arrays"

    @abc.abstractmethod
    def fit_arguments(self, start: int, end: int, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by which `model.fit` trains the epochs from `start` to `end`.

        Args:
            start: Epochs that are done.
            end: Epochs that are done afterwards.
            seed: Decides the order.
            config: Hyper-parameters of the stage that concern the data; ``batch_size`` among them where it is one.
        """

    @abc.abstractmethod
    def fingerprint(self) -> str | None:
        """A text that is the same for the same data, in every process; None if there is none."""


class EpochData(Source):
    """Arrays in an order that is a function of seed and epoch. Made by `epochs`."""

    def __init__(
        self, tree: tuple[Any, ...], *, batch_size: int | None, shuffle: bool, seed: int | None, steps: int | None
    ) -> None:
        lengths = {len(leaf) for leaf in tf.nest.flatten(tree)}
        if len(lengths) != 1 or not min(lengths):
            raise ValueError(f"expected arrays of one length, at least 1, got the lengths {sorted(lengths)}.")
        for name, number in (("batch_size", batch_size), ("steps_per_epoch", steps)):
            if number is not None and (int(number) != number or number < 1):
                raise ValueError(
                    f"expected `{name}` to be a whole number from 1 on, or to be left out, got {number!r}."
                )
        self._tree = tree
        self._count = lengths.pop()
        self._batch = DEFAULT_BATCH if batch_size is None else int(batch_size)
        self._shuffle, self._seed, self._steps = shuffle, seed, steps
        self._pipelines: dict[tuple[int, int], tuple[tf.Variable, tf.data.Dataset]] = {}

    def steps(self, batch_size: int | None = None) -> int:
        """Steps of one epoch."""
        steps = math.ceil(self._count / (batch_size or self._batch))
        return steps if self._steps is None else min(steps, self._steps)

    def dataset(self, epoch: int, batch_size: int | None = None, count: int = 1) -> tf.data.Dataset:
        """The batches of an epoch, or of `count` epochs from it on; the order does not depend on where it begins."""
        first = tf.constant(epoch, tf.int64)
        endless = self._pipeline(first, batch_size or self._batch, 0 if self._seed is None else self._seed)
        batches = count * self.steps(batch_size)
        return endless.take(batches).apply(tf.data.experimental.assert_cardinality(batches))

    def fit_arguments(self, start: int, end: int, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Source`. One data set for all epochs, of which `fit` takes a number of steps each."""
        batch = int(config.get("batch_size", self._batch))
        if batch < 1:
            raise ValueError(f"expected a batch size from 1 on, got {batch}.")
        dataset = self._from(start, batch, seed if self._seed is None else self._seed)
        return {"x": dataset, "steps_per_epoch": self.steps(batch), "shuffle": False}

    def fold(self, number: int, of: int, seed: int) -> tuple[EpochData, tuple[Any, ...]]:
        """One fold of a cross-validation: what is trained on, and what is held out. Together they are all."""
        order = np.random.Generator(np.random.Philox(key=seed)).permutation(self._count)
        held = np.sort(order[number::of])
        kept = np.setdiff1d(np.arange(self._count), held)
        rows = tf.nest.map_structure(lambda a: np.asarray(a)[kept], self._tree)
        train = EpochData(rows, batch_size=self._batch, shuffle=self._shuffle, seed=self._seed, steps=self._steps)
        return train, tf.nest.map_structure(lambda a: np.asarray(a)[held], self._tree)

    @property
    def batch_size(self) -> int:
        """Examples in a batch, where the trial does not say."""
        return self._batch

    def fingerprint(self) -> str:
        """See `Source`."""
        return fingerprint_of_arrays(self._tree, [self._batch, self._shuffle, self._seed, self._steps])

    def __getstate__(self) -> dict[str, Any]:
        """Without what is TensorFlow's, which is made anew in the process that it is sent to."""
        return {**{name: value for name, value in vars(self).items() if name != "_tensors"}, "_pipelines": {}}

    @functools.cached_property
    def _tensors(self) -> tuple[Any, ...]:
        # Made once, and captured by the functions below: as constants in them they would be copied for each.
        with tf.device("CPU:0"):
            return tf.nest.map_structure(tf.convert_to_tensor, self._tree)

    def _from(self, start: int, batch: int, seed: int) -> tf.data.Dataset:
        """An endless data set from an epoch on. Tracing one takes as long as many small epochs, so that each is kept."""
        if (batch, seed) not in self._pipelines:
            first = tf.Variable(start, dtype=tf.int64, trainable=False)
            self._pipelines[batch, seed] = first, self._pipeline(first, batch, seed)
        first, dataset = self._pipelines[batch, seed]
        first.assign(start)  # read when an iterator is made
        return dataset

    def _pipeline(self, first: Any, batch: int, seed: int) -> tf.data.Dataset:
        tensors, count, steps = self._tensors, self._count, self.steps(batch)

        def batches(number: tf.Tensor) -> tf.data.Dataset:
            order = tf.range(count, dtype=tf.int64)
            if self._shuffle:
                epoch = first + number
                order = tf.random.experimental.stateless_shuffle(order, seed=tf.stack([tf.cast(seed, tf.int64), epoch]))
            return tf.data.Dataset.from_tensor_slices(order).batch(batch).take(steps)

        def gather(rows: tf.Tensor) -> Any:
            return tf.nest.map_structure(lambda t: tf.gather(t, rows), tensors)

        # Each function here is made anew with each iterator, which takes longer than a small epoch: so there are two.
        endless = tf.data.Dataset.range(tf.int64.max).flat_map(batches)
        return endless.map(gather, num_parallel_calls=2).prefetch(tf.data.AUTOTUNE)


class DatasetFn(Source):
    """Data sets that a function makes for each epoch. Made by `dataset_fn`."""

    def __init__(self, function: Callable[..., tf.data.Dataset], key: str | None) -> None:
        self._function, self._key = function, key
        self.kind = f"a function of {', '.join(inspect.signature(function).parameters)}"
        self.wanted = tuple(inspect.signature(function).parameters)[2:]
        self.takes_batch_size = "batch_size" in self.wanted

    def fit_arguments(self, start: int, end: int, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Source`. The steps of an epoch are counted on its first data set."""
        extra = {name: config[name] for name in self.wanted if name in config}
        first = self._function(start, seed, **extra)
        if not isinstance(first, tf.data.Dataset):
            raise TypeError(f"expected dataset_fn's function to return a tf.data.Dataset, got {type(first).__name__}.")
        steps = _cardinality(first)
        whole = first
        for epoch in range(start + 1, end):
            following = self._function(epoch, seed, **extra)
            if _cardinality(following) != steps:
                raise ValueError(
                    f"expected as many batches in each epoch of a stage, got {steps} in epoch {start} and "
                    f"{_cardinality(following)} in epoch {epoch}. Use .take(n) or repeat()."
                )
            whole = whole.concatenate(following)
        # One more, so that Keras does not find the end of the data at the end of the last epoch.
        return {"x": whole.concatenate(first.take(1)), "steps_per_epoch": steps, "shuffle": False}

    def fingerprint(self) -> str | None:
        """See `Source`: that of the function, or the key."""
        return self._key if self._key is not None else fingerprint_of_code(self._function)


class PlainDataset(Source):
    """A `tf.data.Dataset`, iterated anew for each epoch."""

    takes_batch_size = False
    kind = "a tf.data.Dataset"

    def __init__(self, dataset: tf.data.Dataset, steps: int | None) -> None:
        batches = int(dataset.cardinality())
        if batches == 0 or (batches == tf.data.INFINITE_CARDINALITY and steps is None):
            raise ValueError(
                f"expected a tf.data.Dataset with an end, and at least one batch before it, got one that has "
                f"{'none' if batches == 0 else 'no end'}. Look at what it is made of, or take(n) of it."
            )
        self._dataset, self._steps = dataset, steps
        self._graph = _graph_of(dataset)
        if steps is not None:
            self.inexact = "`steps_per_epoch` goes on in a tf.data.Dataset where the last epoch ended"
        random = _random_operations(self._graph)
        if random:
            self.inexact = f"the tf.data.Dataset draws random numbers ({', '.join(random)})"

    def fit_arguments(self, start: int, end: int, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Source`."""
        return {"x": self._dataset if self._steps else self._counted, "steps_per_epoch": self._steps}

    @functools.cached_property
    def _counted(self) -> tf.data.Dataset:
        # Without the number of batches, the first epoch of each `fit` ends by a step that finds no data, in which seed
        # generators move on all the same: masks would depend on where a training was cut.
        if int(self._dataset.cardinality()) != tf.data.UNKNOWN_CARDINALITY:
            return self._dataset
        count = int(self._dataset.reduce(np.int64(0), lambda n, *_: n + 1))
        return self._dataset.apply(tf.data.experimental.assert_cardinality(count))

    def fingerprint(self) -> str:
        """See `Source`: its graph, constants included."""
        return hashlib.blake2b(_without_counters(self._graph), digest_size=16).hexdigest()


class PlainPyDataset(Source):
    """A `keras.utils.PyDataset`, its batches in an order that is a function of seed and epoch."""

    takes_batch_size = False
    kind = "a PyDataset"

    def __init__(self, dataset: keras.utils.PyDataset, shuffle: bool) -> None:
        self._dataset, self._shuffle = dataset, shuffle
        for name in ("on_epoch_begin", "on_epoch_end"):
            if getattr(type(dataset), name, None) is not getattr(keras.utils.PyDataset, name, None):
                self.inexact = f"{type(dataset).__name__}.{name} may change what its batches are"

    def fit_arguments(self, start: int, end: int, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Source`."""
        steps = len(self._dataset)
        example = tf.nest.map_structure(np.asarray, tuple(self._dataset[0]))
        flat = tf.nest.flatten(example)

        def batch(k: int) -> list[Any]:
            epoch, position = divmod(int(k), steps)
            order = np.random.Generator(np.random.Philox(key=[seed, start + epoch])).permutation(steps)
            chosen = int(order[position]) if self._shuffle else position
            return tf.nest.flatten(tf.nest.map_structure(np.asarray, tuple(self._dataset[chosen])))

        def load(k: tf.Tensor) -> Any:
            parts = tf.numpy_function(batch, [k], [leaf.dtype for leaf in flat])
            for part, leaf in zip(parts, flat, strict=True):
                part.set_shape([None, *leaf.shape[1:]])
            return tf.nest.pack_sequence_as(example, parts)

        numbers = tf.data.Dataset.range(tf.int64.max)
        threads = max(1, self._dataset.workers)
        return {
            "x": numbers.map(load, num_parallel_calls=threads, deterministic=True).prefetch(2),
            "steps_per_epoch": steps,
        }

    def fingerprint(self) -> str | None:
        """See `Source`: none, since what the batches are is not known."""
        return None


class OnceOnly(Source):
    """Anything else that `fit` takes; it is handed on."""

    takes_batch_size = False

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self.inexact = f"{type(arguments.get('x')).__name__} can be read once, in its own order"

    def fit_arguments(self, start: int, end: int, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Source`."""
        return self._arguments

    def fingerprint(self) -> None:
        """See `Source`."""
        return


class NoData(Source):
    """Stands for the data of a search that this process has not run."""

    def fit_arguments(self, start: int, end: int, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `Source`."""
        raise ValueError(
            "expected data to train with, since the weights of this trial were not kept; call search() with the data of the "
            "study first, which trains nothing that is in the plan, or give keep_best_models a larger number."
        )

    def fingerprint(self) -> None:
        """See `Source`."""
        return


def _cardinality(dataset: tf.data.Dataset) -> int:
    count = int(dataset.cardinality())
    if count <= 0:
        raise ValueError(
            "expected data sets of a known, finite number of batches from dataset_fn's function, got one that does not "
            "tell its number. Add .apply(tf.data.experimental.assert_cardinality(n)), or .take(n) behind a .repeat()."
        )
    return count


def _graph_of(dataset: tf.data.Dataset) -> Any:
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset))
    return tf.compat.v1.GraphDef.FromString(text.numpy())


def _without_counters(graph: Any) -> bytes:
    """The graph as bytes, without the numbers that TensorFlow counts up over the whole process."""
    plain = type(graph)()
    plain.CopyFrom(graph)
    functions = [function.node_def for function in plain.library.function]
    for node in (node for nodes in [plain.node, *functions] for node in nodes):
        node.attr.pop("metadata", None)
    text = plain.SerializeToString(deterministic=True)
    names = {function.signature.name for function in plain.library.function}
    for position, name in enumerate(sorted(names, key=lambda n: [int(d) for d in re.findall(r"\d+", n)])):
        text = text.replace(name.encode(), b"function%d" % position)
    return text


def random_operations(dataset: tf.data.Dataset) -> list[str]:
    """The names of the operations by which a data set differs each time that it is iterated."""
    return _random_operations(_graph_of(dataset))


def _random_operations(graph: Any) -> list[str]:
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    found = {node.op for node in nodes if ("Shuffle" in node.op or "Random" in node.op or "Sampl" in node.op)}
    return sorted(op for op in found if "Stateless" not in op)

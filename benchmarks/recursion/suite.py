"""What is measured: the cases, the implementations, and how one is made ready for the other."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from benchmarks.harness import UnavailableError
from benchmarks.recursion import data, models, ours, peers_eager, peers_level, peers_torch, peers_while, physical
from benchmarks.recursion.cells import Runner
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Array, Kind, Model

MODES = ("inference", "training")

Prepare = Callable[[Model, Forest], Runner]

IMPLEMENTATIONS: dict[str, Prepare] = {
    "batched": functools.partial(ours.prepare, execution="batched"),
    "invoke": functools.partial(ours.prepare, execution="invoke"),
    "eager": peers_eager.prepare,
    "while_loop": peers_while.prepare,
    "level_batched": peers_level.prepare,
    "torch": peers_torch.prepare,
    "bare_products": physical.prepare,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One model on one forest.

    Attributes:
        name: E.g. `"treelstm/25"`.
        kind: Which model.
        batch: How many trees.
        hidden: Width of the model.
        forest: Makes the input.
        small: Makes an input of the same sort for a smoke run.
    """

    name: str
    kind: Kind
    batch: int
    hidden: int
    forest: Callable[[], Forest]
    small: Callable[[], Forest]

    def make(self, smoke: bool = False) -> tuple[Model, Forest]:
        """Returns the model and its input; in a smoke run both are tiny."""
        forest = self.small() if smoke else self.forest()
        vocabulary = data.WORDS if self.kind == "binary" else len(data.node_types())
        return models.make(self.kind, 8 if smoke else self.hidden, vocabulary), forest


def _binary(batch: int) -> Case:
    small = functools.partial(data.random_binary, min(batch, 3), leaves=(3, 6))
    return Case(f"treelstm/{batch}", "binary", batch, 168, functools.partial(data.random_binary, batch), small)


def _syntax(batch: int) -> Case:
    small = functools.partial(data.syntax_trees, min(batch, 2))
    return Case(f"ast/{batch}", "childsum", batch, 128, functools.partial(data.syntax_trees, batch), small)


def chain(length: int) -> Case:
    """Returns the case of a chain of `length` inner nodes."""
    small = functools.partial(data.chain, 5)
    return Case(f"chain/{length}", "binary", 1, 168, functools.partial(data.chain, length), small)


CASES: dict[str, Case] = {
    case.name: case for case in (*(_binary(b) for b in (1, 10, 25, 100)), *(_syntax(b) for b in (1, 25)), chain(10_000))
}


def call(runner: Runner, mode: str) -> Callable[[], Any]:
    """Returns the part of a runner that a mode measures."""
    return runner.infer if mode == "inference" else runner.train


def prepare(names: Sequence[str], model: Model, forest: Forest) -> dict[str, Runner]:
    """Makes implementations ready; those not installed here are left out with a log line."""
    runners = {}
    for name in names:
        try:
            runners[name] = IMPLEMENTATIONS[name](model, forest)
        except UnavailableError as error:
            logging.info("%s is not run: %s", name, error)
    return runners


def to_numpy(value: Any) -> Array:
    """Returns a result of any implementation as an array; sparse gradients become dense."""
    if isinstance(value, tf.IndexedSlices):
        value = tf.convert_to_tensor(value)
    elif getattr(value, "is_sparse", False):
        value = value.to_dense()
    elif hasattr(value, "detach"):
        value = value.detach()
    return np.asarray(value.numpy())


def error(got: Any, expected: Any) -> float:
    """Returns max|a-b| / max|b| of two results in float64."""
    a, b = (to_numpy(x).astype(np.float64) for x in (got, expected))
    if a.shape != b.shape:
        raise ValueError(f"expected a result of shape {b.shape}, got {a.shape}")
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def errors(runner: Runner, control: Runner) -> tuple[float, float]:
    """Returns the errors of a runner's values and of its worst gradient.

    The loss is not among the values: it is a sum of terms of both signs, made outside of the recursion, and its relative
    error says more about what cancels than about either implementation.
    """
    gradients, expected = runner.train()[1], control.train()[1]
    return error(runner.infer(), control.infer()), max(error(gradients[name], expected[name]) for name in expected)

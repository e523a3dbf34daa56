"""The graph of a block while it is built: its values, what it is fed, what is fetched of it."""

from __future__ import annotations

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the block graph; `stacked`: with a leading dimension for the rows of the batch."""

    tensor: tf.Tensor
    stacked: bool = False

    @property
    def row_shape(self) -> tf.TensorShape:
        """The shape of one row."""
        return self.tensor.shape[1:] if self.stacked else self.tensor.shape


@dataclasses.dataclass
class Product:
    """`y = x @ w` (or `x @ w^T`) with a matrix of the environment: its gradient for `w` waits until the end of the run."""

    env: int
    transposed: bool
    x: tf.Tensor
    y: tf.Tensor
    barrier: tf.Tensor  # the copy of w that it reads, where the gradient for w stops


@dataclasses.dataclass
class BlockGraph:
    """A graph with the sources of its feeds and the targets of its fetches (see the design page).

    `constants` pairs placeholders with constants of another graph that take their places.
    """

    graph: tf.Graph
    batched: bool
    feeds: list[tuple[tf.Tensor, str]] = dataclasses.field(default_factory=list)
    fetches: list[tuple[tf.Tensor, str, bool]] = dataclasses.field(default_factory=list)
    must_run: list[tf.Operation] = dataclasses.field(default_factory=list)
    products: list[Product] = dataclasses.field(default_factory=list)
    constants: list[tuple[tf.Tensor, tf.Operation]] = dataclasses.field(default_factory=list)

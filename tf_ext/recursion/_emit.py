"""Builds the graph that computes a block, for one call (plain) or for the rows of many (batched).

The batched emitter (`_vectorize.py`) shares everything that is not about rows with this one: where values come from,
random numbers, row lookups, products whose gradient is deferred.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.ops import recursion as kernels
from tf_ext.recursion import _gradient_rules, _randomness
from tf_ext.recursion._effects import RANDOM
from tf_ext.recursion._ir import Block, Outer, Slot
from tf_ext.recursion._lowering import Lowering


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


class PlainEmitter:
    """Copies a block's operators, for one call at a time."""

    batched = False

    def __init__(self, lowering: Lowering, block: Block, randomness: _randomness.Randomness) -> None:
        self.lowering = lowering
        self.block = block
        self.randomness = randomness
        self.graph = graphs.new_graph(f"block_{block.index}", lowering.environment.outer_graph)
        self.result = BlockGraph(self.graph, self.batched)
        self._values: dict[object, Value] = {}
        self._feeds: dict[str, tf.Tensor] = {}
        self._last_ordered: tf.Operation | None = None

    def build(self) -> BlockGraph:
        """Emits the whole block."""
        with self.graph.as_default(), self.graph.gradient_override_map(_gradient_rules.OVERRIDES):
            for op in self.block.ops:
                self._emit(op)
            for slot, tensor in self.block.writes.items():
                value = self.output(self.value(tensor))
                self.result.fetches.append((value.tensor, f"slot:{slot}", value.stacked))
        self.result.feeds = [(tensor, source) for source, tensor in self._feeds.items()]
        return self.result

    def output(self, value: Value) -> Value:
        """The form in which a value leaves the graph."""
        return value

    def feed(self, source: str, like: tf.Tensor | None, dtype: tf.DType, shape: tf.TensorShape) -> tf.Tensor:
        """The placeholder of a source, made on first use."""
        if source not in self._feeds:
            self._feeds[source] = graphs.placeholder(self.graph, dtype, shape, like)
        return self._feeds[source]

    def feed_outer(self, outer: tf.Tensor) -> Value:
        """A value of the environment."""
        source = f"env:{self.lowering.environment.number(outer)}"
        return Value(self.feed(source, outer, outer.dtype, outer.shape))

    def feed_slot(self, slot: Slot, tensor: tf.Tensor) -> Value:
        """A value of the frame."""
        return Value(self.feed(f"slot:{slot.index}", None, tensor.dtype, tensor.shape))

    def feed_uid(self) -> Value:
        """The call's identity."""
        return Value(self.feed("uid", None, tf.int64, tf.TensorShape([])))

    def value(self, tensor: tf.Tensor) -> Value:
        """What a tensor of the body is in this graph."""
        tensor = self.lowering.environment.resolve(tensor)
        known = self._values.get(tensor.ref())
        if known is not None:
            return known
        source = self.lowering.note_read(tensor, self.block)
        if isinstance(source, Outer):
            value = self.feed_outer(source.tensor)
        elif isinstance(source, Slot):
            value = self.feed_slot(source, tensor)
        else:
            self._emit(tensor.op)  # depends on constants alone
            return self._values[tensor.ref()]
        self._values[tensor.ref()] = value
        return value

    def _emit(self, op: tf.Operation) -> None:
        if op.outputs and op.outputs[0].ref() in self._values:
            return
        outputs = self.random(op) or self.convert(op)
        for tensor, value in zip(op.outputs, outputs, strict=True):
            self._values[tensor.ref()] = value

    def convert(self, op: tf.Operation) -> list[Value]:
        """The outputs of `op`, recomputed here."""
        special = self.matrix_product(op) or self.row_lookup(op)
        if special is not None:
            return special
        return self.copy(op, [self.value(t).tensor for t in op.inputs])

    def copy(self, op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[Value]:
        """A copy of `op` on other inputs; operators with effects keep their order."""
        ordered = self.lowering.effects.is_ordered(op)
        before = [self._last_ordered] if ordered and self._last_ordered is not None else []
        graphs.copy_library(op.graph, self.graph)
        copy = graphs.copy_op(op, self.graph, inputs, before)
        if ordered:
            self._last_ordered = copy
        if ordered or op.type == "Assert":
            self.result.must_run.append(copy)
        return [Value(t) for t in copy.outputs]

    # Products with environment matrices.

    def env_matrix(self, value: Value) -> int | None:
        """The environment index of a value that is one of its matrices."""
        if value.stacked or value.tensor.shape.rank != 2 or not value.tensor.dtype.is_floating:
            return None
        for source, tensor in self._feeds.items():
            if tensor is value.tensor and source.startswith("env:"):
                return int(source[len("env:") :])
        return None

    def product(self, rows: tf.Tensor, matrix: Value, transpose: bool) -> tf.Tensor:
        """`rows @ matrix` (or its transpose), noted for a deferred gradient where the matrix is the environment's."""
        env = self.env_matrix(matrix)
        if env is None:
            return tf.linalg.matmul(rows, matrix.tensor, transpose_b=transpose)
        barrier = tf.identity(matrix.tensor)
        y = tf.linalg.matmul(rows, barrier, transpose_b=transpose)
        self.result.products.append(Product(env, transpose, rows, y, barrier))
        return y

    def matrix_product(self, op: tf.Operation) -> list[Value] | None:
        """A matrix product with one operand from the environment, in the form rows @ matrix."""
        if op.type != "MatMul" or op.inputs[0].dtype.is_complex:
            return None
        a, b = (self.value(t) for t in op.inputs)
        ta, tb = op.get_attr("transpose_a"), op.get_attr("transpose_b")
        if self.env_matrix(b) is not None and self.env_matrix(a) is None:
            if ta:
                return None
            return self.times_matrix(a, b, tb)
        if self.env_matrix(a) is not None and self.env_matrix(b) is None and b.row_shape[0 if tb else 1] == 1:
            # matrix @ column: the same numbers as row @ matrix^T
            size = b.row_shape[1 if tb else 0]
            row = self.times_matrix(self.reshape(b, [1, size]), a, not ta)[0]
            return [self.reshape(row, [row.row_shape[1], 1])]
        return None

    def times_matrix(self, a: Value, matrix: Value, transpose: bool) -> list[Value]:
        """Rows of `a` times an environment matrix."""
        return [Value(self.product(a.tensor, matrix, transpose))]

    def reshape(self, value: Value, row_shape: Sequence[int | None]) -> Value:
        """The value with another shape of its row (all dimensions known but possibly one)."""
        target = [-1 if d is None else d for d in row_shape]
        tensor = value.tensor
        if tensor.op.type == "Reshape":
            tensor = tensor.op.inputs[0]
        if tensor.shape.as_list() == list(row_shape) and None not in row_shape:
            return Value(tensor)
        return Value(tf.reshape(tensor, target))

    # Rows of tables.

    def row_lookup(self, op: tf.Operation) -> list[Value] | None:
        """`table[i]` and `tf.gather(table, i)` with a captured table: one kernel, and slices as its gradient."""
        found = dynamic_index(op)
        if found is None:
            return None
        table, index, wrap = found
        params, rows = self.value(table), self.value(index)
        if params.stacked or params.tensor.dtype in (tf.string, tf.variant, tf.resource):
            return None
        return [Value(kernels.row_at(params.tensor, rows.tensor, wrap=wrap), rows.stacked)]

    # Random numbers.

    def random(self, op: tf.Operation) -> list[Value] | None:
        """Draws from the call's own stream in place of `op`."""
        draw = self.randomness.draw(op)
        if draw is None:
            return None
        shape = self.value(op.inputs[0])
        if shape.stacked:
            return None
        seed, uid = self.feed_outer(draw.seed), self.feed_uid()
        limits = [self.value(t).tensor for t in op.inputs if op.type == "RandomUniformInt"][1:]
        tensor = kernels.call_random(
            shape.tensor, seed.tensor, uid.tensor, limits, draw.distribution, op.outputs[0].dtype, draw.salt
        )
        static = op.outputs[0].shape
        tensor.set_shape(tf.TensorShape([None]).concatenate(static) if uid.stacked else static)
        return [Value(tensor, uid.stacked)]


def dynamic_index(op: tf.Operation) -> tuple[tf.Tensor, tf.Tensor, bool] | None:
    """(table, index, whether negative indices count from the end) of an operator that reads rows of a table."""
    if op.type == "GatherV2":
        axis = graphs.constant_value(op.inputs[2])
        if axis == 0 and op.get_attr("batch_dims") == 0:
            return op.inputs[0], op.inputs[1], False
    if op.type == "StridedSlice" and op.get_attr("shrink_axis_mask") == 1 and op.inputs[1].op.type == "Pack":
        masks = [op.get_attr(f"{m}_mask") for m in ("begin", "end", "ellipsis", "new_axis")]
        stride = graphs.constant_value(op.inputs[3])
        index = op.inputs[1].op.inputs
        if masks == [0, 0, 0, 0] and len(index) == 1 and np.array_equal(stride, [1]) and index[0].shape.rank == 0:
            return op.inputs[0], index[0], True
    return None


__all__ = ["RANDOM", "BlockGraph", "PlainEmitter", "Product", "Value", "dynamic_index"]

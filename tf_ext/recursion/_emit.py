"""Builds the graph that computes a block, for one call (plain) or for the rows of many (batched).

The batched emitter (`_vectorize.py`) shares everything that is not about rows with this one: where values come from,
random numbers, row lookups, products whose gradient is deferred.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion import _gradient_rules, _randomness, _specials
from tf_ext.recursion._block_graph import BlockGraph, Product, Value
from tf_ext.recursion._ir import Block, Outer, Slot
from tf_ext.recursion._lowering import Lowering


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
        self._outside: PlainEmitter | None = None

    def build(self) -> BlockGraph:
        """Emits the whole block."""
        with self.graph.as_default(), self.graph.gradient_override_map(_gradient_rules.OVERRIDES):
            for op in self.block.ops:
                self._emit(op)
            for slot, tensor in self.block.writes.items():
                value = self.output(self.value(tensor))
                self.result.fetches.append((value.tensor, f"slot:{slot}", value.stacked))
        return self.result

    def inside(self, graph: tf.Graph, known: dict[object, Value]) -> PlainEmitter:
        """An emitter of other operators into a graph within this one, for the same calls."""
        inner = copy.copy(self)
        inner.graph, inner.result = graph, BlockGraph(graph, self.batched)
        inner._values, inner._feeds, inner._outside = known, {}, self
        return inner

    def output(self, value: Value) -> Value:
        """The form in which a value leaves the graph."""
        return value

    def feed(self, source: str, like: tf.Tensor | None, dtype: tf.DType, shape: tf.TensorShape) -> tf.Tensor:
        """The placeholder of a source, made on first use."""
        if self._outside is not None:
            return self._outside.feed(source, like, dtype, shape)
        if source not in self._feeds:
            self._feeds[source] = graphs.placeholder(self.graph, dtype, shape, like)
            self.result.feeds.append((self._feeds[source], source))
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
        source = self.lowering.places.note_read(tensor, self.block)
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
        outputs = self.convert(op)
        for tensor, value in zip(op.outputs, outputs, strict=True):
            self._values[tensor.ref()] = value

    def convert(self, op: tf.Operation) -> list[Value]:
        """The outputs of `op`, recomputed here."""
        special = _specials.convert(self, op)
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

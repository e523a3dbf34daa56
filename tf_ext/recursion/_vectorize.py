"""Builds the graph that computes a block for the rows of many calls at once.

Values that depend on the call are stacked: [n, ...]. Common operators have converters here (`_row_rules.py`) that use what
is known of a row's shape, so that the graph stays as lean as a hand-written one; for the many others TensorFlow's own
vectoriser (`pfor`) is asked, one operator at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion import _row_rules, _specials
from tf_ext.recursion import _slicing as _slicing  # registers its rule
from tf_ext.recursion._block_graph import Value
from tf_ext.recursion._custom_gradients import holds_custom
from tf_ext.recursion._effects import holds_check
from tf_ext.recursion._emit import PlainEmitter
from tf_ext.recursion._ir import Slot
from tf_ext.recursion.errors import BatchingError


class BatchedEmitter(PlainEmitter):
    """Emits a block for stacked rows."""

    batched = True

    def feed_slot(self, slot: Slot, tensor: tf.Tensor) -> Value:
        """The rows of a frame value: [n, ...]."""
        shape = tf.TensorShape([None]).concatenate(tensor.shape)
        return Value(self.feed(f"slot:{slot.index}", None, tensor.dtype, shape), stacked=True)

    def feed_uid(self) -> Value:
        """The calls' identities: [n]."""
        return Value(self.feed("uid", None, tf.int64, tf.TensorShape([None])), stacked=True)

    def rows(self) -> tf.Tensor:
        """The number of rows, an int32 scalar."""
        return self.feed("n", None, tf.int32, tf.TensorShape([]))

    def convert(self, op: tf.Operation) -> list[Value]:
        """The outputs of `op` for all rows."""
        if self.lowering.effects.is_ordered(op):
            raise BatchingError(
                f"operation {op.name!r} ({op.type}) has an effect, and effects keep the order of the program"
            )
        special = _specials.convert(self, op)
        if special is not None:
            return special
        inputs = [self.value(t) for t in op.inputs]
        rule = _row_rules.RULES.get(op.type)
        converted = rule(self, op, inputs) if rule is not None else None
        if converted is not None:
            return converted
        if not any(value.stacked for value in inputs) and not graphs.is_stateful(op):
            return self.copy(op, [value.tensor for value in inputs])
        return self._convert_by_pfor(op, inputs)

    def times_matrix(self, a: Value, matrix: Value, transpose: bool) -> list[Value]:
        """Rows of `a`, of all calls, times an environment matrix: one product."""
        if not a.stacked:
            return super().times_matrix(a, matrix, transpose)
        lines, size = a.row_shape.as_list()
        rows = self.product(self._flat_rows(a, size), matrix, transpose)
        rows.set_shape([None, rows.shape[-1]])
        return [self.reshape(Value(rows, True), [lines, rows.shape[-1]])]

    def _flat_rows(self, a: Value, size: int | None) -> tf.Tensor:
        tensor = a.tensor.op.inputs[0] if a.tensor.op.type == "Reshape" else a.tensor
        if tensor.shape.rank == 2 and tensor.shape[-1] == size:
            return tensor
        return tf.reshape(a.tensor, [-1, size if size is not None else tf.shape(a.tensor)[-1]])

    def reshape(self, value: Value, row_shape: Sequence[int | None]) -> Value:
        """The value with another shape of its row."""
        if not value.stacked:
            return super().reshape(value, row_shape)
        tensor = value.tensor.op.inputs[0] if value.tensor.op.type == "Reshape" else value.tensor
        if tensor.shape[1:].as_list() == list(row_shape) and None not in row_shape:
            return Value(tensor, True)
        if None in row_shape:
            dynamic = tf.shape(value.tensor)[1:] if row_shape == value.row_shape.as_list() else None
            known = [self.rows(), *[-1 if d is None else d for d in row_shape]]
            if row_shape.count(None) > 1 and dynamic is not None:
                return value
            reshaped = tf.reshape(tensor, tf.stack(known))
        else:
            reshaped = tf.reshape(tensor, [-1, *row_shape])
        reshaped.set_shape([None, *row_shape])
        return Value(reshaped, True)

    def stack(self, value: Value) -> Value:
        """The value with a row for every call."""
        if value.stacked:
            return value
        rank = value.tensor.shape.rank
        if rank is None:
            raise BatchingError(f"the rank of {value.tensor.name!r} is unknown")
        stacked = tf.tile(value.tensor[tf.newaxis], tf.stack([self.rows(), *[1] * rank]))
        stacked.set_shape(tf.TensorShape([None]).concatenate(value.tensor.shape))
        return Value(stacked, True)

    def output(self, value: Value) -> Value:
        """One value for all rows stays one, unless a gradient may have to flow back through it."""
        if value.stacked or not value.tensor.dtype.is_floating or value.tensor.op.type == "Const":
            return value
        return self.stack(value)

    def _convert_by_pfor(self, op: tf.Operation, inputs: list[Value]) -> list[Value]:
        for what, holds in (("a tf.custom_gradient", holds_custom), ("an assertion", holds_check)):
            if holds(op):
                raise BatchingError(f"operation {op.name!r} ({op.type}) has {what} in it")
        try:
            converted = graphs.vectorize_op(op, [(v.tensor, v.stacked) for v in inputs], self.rows(), self.graph)
        except (ValueError, NotImplementedError, TypeError, AssertionError, IndexError) as error:
            raise BatchingError(
                f"operation {op.name!r} ({op.type}) cannot be vectorised: {_first_line(error)}"
            ) from error
        for tensor, (result, stacked) in zip(op.outputs, converted, strict=True):
            if result.dtype != tf.variant and tensor.shape.rank is not None:
                lead = tf.TensorShape([None] if stacked else [])
                result.set_shape(lead.concatenate(tensor.shape))
        return [Value(result, stacked) for result, stacked in converted]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__

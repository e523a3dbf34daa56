"""Operators of bodies that are not copied or vectorised as they are.

Products with matrices of the environment, whose gradient is deferred; lookups of rows in captured tables; gradients that a
body gives itself; random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.ops import recursion as kernels
from tf_ext.recursion._block_graph import Value
from tf_ext.recursion._custom_gradients import is_custom
from tf_ext.recursion._lookups import dynamic_index
from tf_ext.recursion.errors import BatchingError

if TYPE_CHECKING:
    from tf_ext.recursion._emit import PlainEmitter

Special = Callable[["PlainEmitter", tf.Operation], "list[Value] | None"]


def convert(emitter: PlainEmitter, op: tf.Operation) -> list[Value] | None:
    """The outputs of `op` in the emitter's graph; None if there is nothing special about it."""
    for special in _SPECIALS:
        outputs = special(emitter, op)
        if outputs is not None:
            return outputs
    return None


def _random(emitter: PlainEmitter, op: tf.Operation) -> list[Value] | None:
    """Draws from the call's own stream in place of `op`."""
    draw = emitter.randomness.draw(op)
    if draw is None:
        return None
    shape = emitter.value(op.inputs[0])
    limits = [emitter.value(t) for t in op.inputs if op.type == "RandomUniformInt"][1:]
    if any(value.stacked for value in [shape, *limits]):
        raise BatchingError(f"operation {op.name!r} ({op.type}) has another shape or other limits in each call")
    seed, uid = emitter.feed_outer(draw.seed), emitter.feed_uid()
    bounds = [value.tensor for value in limits]
    tensor = kernels.call_random(
        shape.tensor, seed.tensor, uid.tensor, bounds, draw.distribution, op.outputs[0].dtype, draw.salt
    )
    static = op.outputs[0].shape
    tensor.set_shape(tf.TensorShape([None]).concatenate(static) if uid.stacked else static)
    return [Value(tensor, uid.stacked)]


def _custom_gradient(emitter: PlainEmitter, op: tf.Operation) -> list[Value] | None:
    if not is_custom(op):
        return None
    inputs = [emitter.value(t) for t in op.inputs]
    made = emitter.lowering.custom_gradients.emit(emitter, op, inputs)
    return [Value(t, value.stacked) for t, value in zip(made.outputs, inputs, strict=True)]


def _matrix_product(emitter: PlainEmitter, op: tf.Operation) -> list[Value] | None:
    """A matrix product with one operand from the environment, in the form rows @ matrix."""
    if op.type != "MatMul" or op.inputs[0].dtype.is_complex:
        return None
    a, b = (emitter.value(t) for t in op.inputs)
    ta, tb = op.get_attr("transpose_a"), op.get_attr("transpose_b")
    if emitter.env_matrix(b) is not None and emitter.env_matrix(a) is None:
        return None if ta else emitter.times_matrix(a, b, tb)
    if emitter.env_matrix(a) is not None and emitter.env_matrix(b) is None and b.row_shape[0 if tb else 1] == 1:
        # matrix @ column: the same numbers as row @ matrix^T
        size = b.row_shape[1 if tb else 0]
        row = emitter.times_matrix(emitter.reshape(b, [1, size]), a, not ta)[0]
        return [emitter.reshape(row, [row.row_shape[1], 1])]
    return None


def _choice(emitter: PlainEmitter, op: tf.Operation) -> list[Value] | None:
    """Both branches of a small conditional, and of each result the one that counts."""
    if not graphs.is_conditional(op) or not emitter.lowering.effects.is_choice(op):
        return None
    condition = emitter.value(op.inputs[0])
    no, yes = ([emitter.value(t) for t in graph.outputs] for graph in graphs.branch_graphs(op))
    return [
        Value(tf.where(condition.tensor, y.tensor, n.tensor), condition.stacked or y.stacked or n.stacked)
        for y, n in zip(yes, no, strict=True)
    ]


def _row_lookup(emitter: PlainEmitter, op: tf.Operation) -> list[Value] | None:
    """`table[i]` and `tf.gather(table, i)` with a captured table: one kernel, and slices as its gradient."""
    found = dynamic_index(op)
    if found is None:
        return None
    table, index, wrap = found
    params, rows = emitter.value(table), emitter.value(index)
    if params.stacked or params.tensor.dtype in (tf.string, tf.variant, tf.resource):
        return None
    return [Value(kernels.row_at(params.tensor, rows.tensor, wrap=wrap), rows.stacked)]


def _row_count(emitter: PlainEmitter, op: tf.Operation) -> list[Value] | None:
    """`tf.size` and `tf.shape` of consecutive rows of a captured tensor, without the rows."""
    rows = emitter.lowering.ranges.of_size(op)
    if rows is None:
        return None
    start, limit = emitter.value(rows.start), emitter.value(rows.limit)
    count = tf.cast(tf.maximum(limit.tensor - start.tensor, 0), op.outputs[0].dtype)
    row = [] if rows.table is None else rows.table.shape[1:].as_list()
    if op.type == "Size":
        count *= math.prod(row)
    else:
        # [..., 1 + rank of a row]: the count, and a row's own dimensions beside it.
        counts = tf.constant([1] + [0] * len(row), count.dtype)
        count = count[..., tf.newaxis] * counts + tf.constant([0, *row], count.dtype)
    return [Value(count, start.stacked or limit.stacked)]


_SPECIALS: list[Special] = [
    _random,
    _custom_gradient,
    _matrix_product,
    _row_lookup,
    _row_count,
    _choice,
]

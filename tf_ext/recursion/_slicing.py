"""Rows of `x[:, i]`, `x[1, i, 2:4]` and the like, where indices differ from call to call."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._block_graph import Value
from tf_ext.recursion._row_rules import rule

if TYPE_CHECKING:
    from tf_ext.recursion._vectorize import BatchedEmitter


@dataclasses.dataclass(frozen=True)
class _Index:
    """What is taken of one dimension: one entry (`index`), or a slice that is the same in all calls."""

    index: tf.Tensor | int | None
    taken: slice


@rule("StridedSlice")
def _strided_slice(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    x = inputs[0]
    before, after = x.row_shape, op.outputs[0].shape
    strides = graphs.constant_value(op.inputs[3])
    known = x.stacked and before.is_fully_defined() and after.is_fully_defined()
    if known and before.num_elements() == after.num_elements() and strides is not None and bool((strides > 0).all()):
        return [emitter.reshape(x, after.as_list())]  # x[tf.newaxis], x[0] of one row
    if not (inputs[1].stacked or inputs[2].stacked) or before.rank is None:
        return None
    indices = _indices(op, before.rank)
    if indices is None:
        return None
    for dimension in reversed(range(len(indices))):
        x = _take(emitter, x, dimension, indices[dimension])
    return [x]


def _indices(op: tf.Operation, rank: int) -> list[_Index] | None:
    """Per dimension what is taken of it; None where the length of a slice depends on the call."""
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    parts = [_elements(t) for t in op.inputs[1:]]
    if masks["new_axis"] or any(part is None for part in parts):
        return None
    indices: list[_Index] = []
    count = len(parts[0] or [])
    for i, (begin, end, stride) in enumerate(zip(*(part or [] for part in parts), strict=True)):
        if masks["ellipsis"] >> i & 1:
            indices += [_Index(None, slice(None))] * (rank - count + 1)
        elif masks["shrink_axis"] >> i & 1:
            indices.append(_Index(begin, slice(None)))
        else:
            bounds = (None if masks["begin"] >> i & 1 else begin, None if masks["end"] >> i & 1 else end, stride)
            if any(isinstance(bound, tf.Tensor) for bound in bounds):
                return None
            indices.append(_Index(None, slice(*bounds)))
    return indices


def _elements(tensor: tf.Tensor) -> list[tf.Tensor | int] | None:
    value = graphs.constant_value(tensor)
    if value is not None:
        return [int(v) for v in value]
    if tensor.op.type != "Pack":
        return None
    values = [(t, graphs.constant_value(t)) for t in tensor.op.inputs]
    return [t if v is None else int(v) for t, v in values]


def _take(emitter: BatchedEmitter, x: Value, dimension: int, taken: _Index) -> Value:
    axis = dimension + x.stacked
    if taken.index is None:
        if taken.taken == slice(None):
            return x
        return Value(x.tensor[(*[slice(None)] * axis, taken.taken)], x.stacked)
    index = emitter.value(taken.index) if isinstance(taken.index, tf.Tensor) else Value(tf.constant(taken.index))
    size = tf.cast(tf.shape(x.tensor)[axis], index.tensor.dtype)
    rows = tf.where(index.tensor < 0, index.tensor + size, index.tensor)
    if x.stacked or not index.stacked:
        return Value(tf.gather(x.tensor, rows, axis=axis, batch_dims=int(index.stacked)), x.stacked)
    gathered = tf.gather(x.tensor, rows, axis=axis)
    order = [axis, *range(axis), *range(axis + 1, gathered.shape.rank)]
    return Value(tf.transpose(gathered, order) if axis else gathered, True)

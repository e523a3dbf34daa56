"""Gradients of common operators where the shape of a row is known but the number of rows is not.

TensorFlow's own gradients of broadcasting operators, reshapes and concatenations look at run-time shapes as soon as one
dimension is unknown: six small operators for every addition, and the shape's owner kept for the backward pass. In a block
graph only the leading dimension is unknown, so the answer is mostly clear while the graph is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion.errors import UnsupportedOperationError

OVERRIDES = {
    "Add": "TfExtAdd",
    "AddV2": "TfExtAdd",
    "Sub": "TfExtSub",
    "Mul": "TfExtMul",
    "Reshape": "TfExtReshape",
    "ConcatV2": "TfExtConcat",
    "ResourceGather": "TfExtResourceGather",
    "EagerPyFunc": "TfExtEagerPyFunc",
}


def _reduction(x: tf.Tensor, y: tf.Tensor) -> list[int] | None:
    """The axes over which a gradient of the broadcast shape is summed to get one of x's shape; None if unclear."""
    full = (
        tf.broadcast_static_shape(x.shape, y.shape) if x.shape.rank is not None and y.shape.rank is not None else None
    )
    if full is None or full.rank is None:
        return None
    offset = full.rank - x.shape.rank
    axes = list(range(offset))
    for i, (mine, other) in enumerate(zip(x.shape.as_list(), full.as_list()[offset:], strict=True)):
        if mine == other and (mine is not None or i + offset == 0):
            continue  # two unknown leading dimensions are the rows of the batch
        if mine == 1 and other is not None:
            axes.append(i + offset)
            continue
        return None
    return axes


def _same_rows(x: tf.Tensor, y: tf.Tensor) -> bool:
    """Whether unknown dimensions of the two, if any, are leading ones of tensors of equal rank."""
    unknown = [[i for i, d in enumerate(t.shape.as_list()) if d is None] for t in (x, y)]
    if unknown == [[], []]:
        return True
    if any(u not in ([], [0]) for u in unknown):
        return False
    longer, shorter = (x, y) if x.shape.rank >= y.shape.rank else (y, x)
    if longer.shape.as_list()[0] is not None:
        return False
    return shorter.shape.rank < longer.shape.rank or shorter.shape.as_list()[0] is None


def _unbroadcast(gradient: tf.Tensor, x: tf.Tensor, axes: list[int]) -> tf.Tensor:
    if not axes:
        return gradient
    summed = tf.reduce_sum(gradient, axis=axes)
    if summed.shape.rank == x.shape.rank:
        return summed
    return tf.reshape(summed, [-1 if d is None else d for d in x.shape.as_list()])


def _binary(stock: str, partials: Callable[..., tuple[tf.Tensor, tf.Tensor]]) -> Callable[..., Any]:
    def gradient(op: tf.Operation, dy: tf.Tensor) -> Any:
        x, y = op.inputs
        if x.shape.rank is not None and y.shape.rank is not None and _same_rows(x, y):
            axes_x, axes_y = _reduction(x, y), _reduction(y, x)
            if axes_x is not None and axes_y is not None:
                dx, dz = partials(x, y, dy)
                return _unbroadcast(dx, x, axes_x), _unbroadcast(dz, y, axes_y)
        return graphs.stock_gradient(stock)(op, dy)

    return gradient


def _conjugate(x: tf.Tensor) -> tf.Tensor:
    return tf.math.conj(x) if x.dtype.is_complex else x


tf.RegisterGradient("TfExtAdd")(_binary("AddV2", lambda x, y, dy: (dy, dy)))
tf.RegisterGradient("TfExtSub")(_binary("Sub", lambda x, y, dy: (dy, -dy)))
tf.RegisterGradient("TfExtMul")(_binary("Mul", lambda x, y, dy: (dy * _conjugate(y), dy * _conjugate(x))))


@tf.RegisterGradient("TfExtReshape")
def _reshape(op: tf.Operation, dy: tf.Tensor) -> Any:
    shape = op.inputs[0].shape
    if shape.rank is None or shape.as_list().count(None) > 1:
        return graphs.stock_gradient("Reshape")(op, dy)
    return [tf.reshape(dy, [-1 if d is None else d for d in shape.as_list()]), None]


@tf.RegisterGradient("TfExtConcat")
def _concat(op: tf.Operation, dy: tf.Tensor) -> Any:
    axis = graphs.constant_value(op.inputs[-1])
    parts = op.inputs[:-1]
    if axis is None or any(t.shape.rank is None for t in parts):
        return graphs.stock_gradient("ConcatV2")(op, dy)
    axis = int(axis) % parts[0].shape.rank
    sizes = [t.shape.as_list()[axis] for t in parts]
    if None in sizes:
        return graphs.stock_gradient("ConcatV2")(op, dy)
    return [*tf.split(dy, sizes, axis=axis), None]


@tf.RegisterGradient("TfExtResourceGather")
def _resource_gather(op: tf.Operation, dy: tf.Tensor) -> Any:
    indices = op.inputs[1]
    row = dy.shape.as_list()[indices.shape.rank :] if None not in (dy.shape.rank, indices.shape.rank) else [None, None]
    if op.get_attr("batch_dims") or row.count(None):
        return graphs.stock_gradient("ResourceGather")(op, dy)
    return _slices(dy, indices, row, tf.raw_ops.VariableShape(input=op.inputs[0], out_type=indices.dtype)), None


@tf.RegisterGradient("TfExtRowAt")
def _row_at(op: tf.Operation, dy: tf.Tensor) -> Any:
    table, indices = op.inputs
    if op.get_attr("wrap"):
        size = tf.shape(table, out_type=indices.dtype)[0]
        indices = tf.where(indices < 0, indices + size, indices)
    return _slices(dy, indices, table.shape.as_list()[1:], tf.shape(table, out_type=indices.dtype)), None


def _slices(dy: tf.Tensor, indices: tf.Tensor, row: list[int | None], shape: tf.Tensor) -> tf.IndexedSlices:
    """Slices of a table's gradient: rank 1 indices, one row each."""
    if indices.shape.rank != 1:
        if None in row:
            dy = tf.reshape(dy, tf.concat([[-1], tf.shape(dy)[indices.shape.rank :]], 0))
        else:
            dy = tf.reshape(dy, [-1, *row])
        indices = tf.reshape(indices, [-1])
    return tf.IndexedSlices(dy, indices, dense_shape=shape)


tf.no_gradient("TfExtCallRandom")


@tf.RegisterGradient("TfExtEagerPyFunc")
def _eager_py_func(op: tf.Operation, *_: Any) -> Any:
    """TensorFlow keeps one tape for each `tf.py_function`, that of its last call: those of other calls would be wrong."""
    raise UnsupportedOperationError(
        f"operation {op.name!r} is a tf.py_function, which TensorFlow can differentiate for one call of a body only. Give "
        "it a gradient of its own with tf.custom_gradient, or write it with TensorFlow's operations"
    )

"""New graphs, and the symbolic gradient of one graph in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph as func_graph_lib
from tensorflow.python.framework import ops
from tensorflow.python.ops import gradients_util, handle_data_util, resource_variable_ops


def multi_gradients(
    ys: Sequence[tf.Tensor],
    xs: Sequence[tf.Tensor],
    grad_ys: Sequence[tf.Tensor],
    source: tf.Graph,
    stop: Sequence[tf.Tensor] = (),
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    """Gradients of `ys` (in `source`) with respect to `xs`, built in the current graph; None where there is no path."""
    return gradients_util._GradientsHelper(
        list(ys), list(xs), grad_ys=list(grad_ys), stop_gradients=list(stop) or None, src_graph=source
    )


def stock_gradient(op_type: str) -> Callable[..., Any]:
    """TensorFlow's registered gradient function of an operator type."""
    return ops.gradient_registry.lookup(op_type)


def new_graph(name: str, outer: tf.Graph) -> func_graph_lib.FuncGraph:
    """An empty `FuncGraph` inside `outer`."""
    with outer.as_default():
        return func_graph_lib.FuncGraph(name)


def placeholder(graph: tf.Graph, dtype: tf.DType, shape: tf.TensorShape, like: tf.Tensor | None = None) -> tf.Tensor:
    """A placeholder; for a resource, `like` tells what is known of the variable behind it."""
    with graph.as_default(), tf.control_dependencies(None):
        tensor = tf.raw_ops.Placeholder(dtype=dtype, shape=shape)
    if like is not None and dtype == tf.resource:
        handle_data_util.copy_handle_data(like, tensor)
    return tensor


def variable_spec(handle: tf.Tensor) -> tuple[tf.DType, tf.TensorShape]:
    """Type and shape of the variable behind a resource, as far as its handle tells."""
    data = resource_variable_ops.get_eager_safe_handle_data(handle)
    if not data.is_set or not data.shape_and_type:
        raise ValueError(f"nothing is known of the variable behind {handle.name!r}")
    return tf.as_dtype(data.shape_and_type[0].dtype), tf.TensorShape(data.shape_and_type[0].shape)

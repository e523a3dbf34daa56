"""Questions about operators and tensors of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util

# Operators that hand their input on unchanged.
_TRANSPARENT = frozenset({"Identity", "Snapshot"})


def ancestors(
    ops: Iterable[tf.Operation], inputs_of: Callable[[tf.Operation], Iterable[tf.Operation]]
) -> set[tf.Operation]:
    """All operators that `ops` depend on, themselves included.

    Args:
      ops: where to start.
      inputs_of: the operators that an operator depends on.

    Returns:
      The closure as a set.
    """
    found: set[tf.Operation] = set()
    stack = list(ops)
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend(inputs_of(op))
    return found


def topological(
    ops: Iterable[tf.Operation], inputs_of: Callable[[tf.Operation], Iterable[tf.Operation]]
) -> list[tf.Operation]:
    """The operators with each after those of them that it depends on; otherwise in the order of their creation.

    Args:
      ops: the operators.
      inputs_of: the operators that an operator depends on.

    Returns:
      The same operators in order.
    """
    members = set(ops)
    order: list[tf.Operation] = []
    done: set[tf.Operation] = set()
    for root in sorted(members, key=lambda op: op._id):
        stack = [(root, False)]
        while stack:
            op, ready = stack.pop()
            if op in done:
                continue
            if ready:
                done.add(op)
                order.append(op)
            else:
                stack.append((op, True))
                stack.extend((d, False) for d in inputs_of(op) if d in members and d not in done)
    return order


def is_stateful(op: tf.Operation) -> bool:
    """Whether the operator's definition says that it has effects or depends on state."""
    return bool(op.op_def is not None and op.op_def.is_stateful)


def constant_value(tensor: tf.Tensor) -> np.ndarray | None:
    """The tensor's value where the graph, or the graph that it was captured from, determines it, else None."""
    while tensor.op.type == "Placeholder":
        outer = [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
        if not outer or not hasattr(outer[0], "op"):
            return None
        tensor = outer[0]
    return tensor_util.constant_value(tensor)


def read_through(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor that `tensor` is an unchanged copy of (control dependencies of the copies aside).

    Example::

        with tf.Graph().as_default():
            x = tf.constant(1.0)
            assert read_through(tf.identity(tf.identity(x))) is x
    """
    while True:
        op = tensor.op
        if op.type in _TRANSPARENT:
            tensor = op.inputs[0]
        elif op.type == "StridedSlice" and op.inputs[1].shape.as_list() == [0]:
            tensor = op.inputs[0]  # x[...]: what indexing a ragged tensor leaves behind
        else:
            return tensor


def is_captured_from(tensor: tf.Tensor, source: tf.Tensor) -> bool:
    """Whether `tensor` is `source`, or a placeholder for it in a graph inside of that of `source`."""
    while tensor is not source:
        outer = [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
        if not outer or not hasattr(outer[0], "graph"):
            return False
        tensor = outer[0]
    return True


def is_visible(tensor: tf.Tensor, graph: tf.Graph) -> bool:
    """Whether an operator of `graph` can read a tensor: one of its own, or of a graph that it was opened in."""
    here: tf.Graph | None = graph
    while here is not None:
        if tensor.graph is here:
            return True
        here = getattr(here, "outer_graph", None)
    return False

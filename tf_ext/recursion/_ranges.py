"""Recognises maps over consecutive rows of a captured tensor.

`tree.map(children[node])`, with a ragged tensor `children`, leaves a strided slice of the ragged tensor's values in the
graph, of another length for each call: nothing that can be computed for many calls at once. As "rows start to limit of
that table" it needs no computation at all: the runtime hands the rows to the calls directly.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._environment import Environment


@dataclasses.dataclass(frozen=True)
class Rows:
    """`start` and `limit` (scalar tensors of the body), and per mapped operand the table (None: the numbers themselves)."""

    start: tf.Tensor
    limit: tf.Tensor
    tables: dict[int, tf.Tensor | None]


def range_of(op: tf.Operation, environment: Environment) -> Rows | None:
    """The rows that a map call goes over, if all its mapped operands are the same rows of captured tensors.

    Args:
      op: a call operator.
      environment: tells which tensors are captured.

    Returns:
      The rows, or None for a map over tensors in general (or no map at all).
    """
    if graphs.is_conditional(op) or not any(op.get_attr("mapped")):
        return None
    found: list[Rows] = []
    for i, mapped in enumerate(op.get_attr("mapped")):
        if not mapped:
            continue
        one = _rows_of(environment.resolve(op.inputs[i]), i, environment)
        if one is None:
            return None
        found.append(one)
    first = found[0]
    if any(rows.start is not first.start or rows.limit is not first.limit for rows in found):
        return None
    return Rows(first.start, first.limit, {i: table for rows in found for i, table in rows.tables.items()})


def _rows_of(tensor: tf.Tensor, operand: int, environment: Environment) -> Rows | None:
    op = tensor.op
    if op.type == "Range" and graphs.constant_value(op.inputs[2]) == 1 and tensor.dtype in (tf.int32, tf.int64):
        return Rows(environment.resolve(op.inputs[0]), environment.resolve(op.inputs[1]), {operand: None})
    if op.type != "StridedSlice":
        return None
    if any(op.get_attr(f"{mask}_mask") for mask in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")):
        return None
    table, begin, end, strides = op.inputs
    stride = graphs.constant_value(strides)
    outer = environment.lookup(environment.resolve(table))
    if outer is None or stride is None or stride.tolist() != [1] or table.dtype == tf.string:
        return None
    start, limit = _only_element(begin), _only_element(end)
    if start is None or limit is None:
        return None
    return Rows(start, limit, {operand: outer.tensor})


def _only_element(tensor: tf.Tensor) -> tf.Tensor | None:
    """x, where `tensor` is [x]."""
    op = graphs.read_through(tensor).op
    if op.type == "Pack" and len(op.inputs) == 1 and op.inputs[0].shape.rank == 0:
        return graphs.read_through(op.inputs[0])
    return None

"""Moves work from before a conditional into its branches.

`gates = w @ x` before `if node has children` would run level by level, as the recursion unfolds. Nothing needs it so early:
in the branches it runs once for all leaves and, while their calls are under way, once for all inner nodes. And a vector that
is read where it is made need not be kept in the frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._custom_gradients import is_custom
from tf_ext.recursion._ranges import RowSlice
from tf_ext.recursion._stages import HEAVY

if TYPE_CHECKING:
    from tf_ext.recursion._ir import Block
    from tf_ext.recursion._lowering import Lowering


def sink(lowering: Lowering, block: Block, conditional: tf.Operation, later: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """Copies what only the branches need into them.

    Args:
      lowering: whose environment is told of the copies.
      block: the block that ends with the conditional.
      conditional: the conditional operator.
      later: what is read after the conditional.

    Returns:
      The operators of `block` that it need not run any more.
    """
    resolve = lowering.environment.resolve
    kept = [resolve(t).op for t in (conditional.inputs[0], *block.writes.values(), *later)]
    # Their gradients or branches refer to what is around them.
    kept += [op for op in block.ops if is_custom(op) or graphs.is_conditional(op)]

    def operands(op: tf.Operation) -> list[tf.Operation]:
        # What is read after the conditional needs its results, but not what only its branches read.
        return [] if op is conditional else [t.op for t in lowering.operands(op)]

    needed = graphs.ancestors(kept, operands)
    spare = [op for op in block.ops if op not in needed]
    if not any(op.type in HEAVY or any(t.shape.rank != 0 for t in op.outputs) for op in spare):
        return set()  # a few numbers: not worth doing in several places
    for branch in graphs.branch_graphs(conditional):
        _copy_into(lowering, conditional, branch, spare)
    return set(spare)


def _copy_into(lowering: Lowering, conditional: tf.Operation, branch: tf.Graph, spare: list[tf.Operation]) -> None:
    environment = lowering.environment
    copies: dict[object, tf.Tensor] = {}
    declared = list(branch.inputs)

    def inside(tensor: tf.Tensor) -> tf.Tensor:
        tensor = environment.resolve(tensor)
        if tensor.ref() not in copies:
            if tensor.op.type == "Const":
                copies[tensor.ref()] = graphs.copy_op(tensor.op, branch, []).outputs[0]
            else:
                copies[tensor.ref()] = graphs.placeholder(branch, tensor.dtype, tensor.shape, tensor)
                lowering.rename(copies[tensor.ref()], tensor)
        return copies[tensor.ref()]

    for op in spare:
        copy = graphs.copy_op(op, branch, [inside(t) for t in op.inputs])
        for tensor, copied in zip(op.outputs, copy.outputs, strict=True):
            copied.set_shape(tensor.shape)
            copies[tensor.ref()] = copied
    for inner, tensor in zip(declared, conditional.inputs[1:], strict=True):
        rows = lowering.ranges.slice_of(tensor)
        if environment.resolve(tensor).op in spare:
            environment.rename(inner, copies[environment.resolve(tensor).ref()])
        if rows is not None:
            lowering.ranges.bind(inner, RowSlice(inside(rows.start), inside(rows.limit), rows.table))

"""Moves heavy work from before a conditional into its branches.

`gates = w @ x` before `if node has children` would run level by level, as the recursion unfolds. Nothing needs it so early:
in the branches it runs once for all leaves and, while their calls are under way, once for all inner nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._stages import HEAVY

if TYPE_CHECKING:
    from tf_ext.recursion._ir import Block
    from tf_ext.recursion._lowering import Lowering


def sink(lowering: Lowering, block: Block, conditional: tf.Operation, kept: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """Copies what only the branches need into them.

    Args:
      lowering: whose environment is told of the copies.
      block: the block that ends with the conditional.
      conditional: the conditional operator; nothing follows it but the end of its region.
      kept: tensors that others read.

    Returns:
      The operators of `block` that it need not run any more.
    """
    resolve = lowering.environment.resolve
    needed = graphs.ancestors(
        [resolve(t).op for t in (conditional.inputs[0], *kept)], lambda op: [resolve(t).op for t in op.inputs]
    )
    spare = [op for op in block.ops if op not in needed]
    if not any(op.type in HEAVY for op in spare):
        return set()
    for branch in graphs.branch_graphs(conditional):
        _copy_into(lowering, block, conditional, branch, spare)
    return set(spare)


def _copy_into(
    lowering: Lowering, block: Block, conditional: tf.Operation, branch: tf.Graph, spare: list[tf.Operation]
) -> None:
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
                lowering.bind(copies[tensor.ref()], tensor, block)
        return copies[tensor.ref()]

    for op in spare:
        copy = graphs.copy_op(op, branch, [inside(t) for t in op.inputs])
        for tensor, copied in zip(op.outputs, copy.outputs, strict=True):
            copied.set_shape(tensor.shape)
            copies[tensor.ref()] = copied
    for inner, tensor in zip(declared, conditional.inputs[1:], strict=True):
        if environment.resolve(tensor).op in spare:
            environment.rename(inner, copies[environment.resolve(tensor).ref()])

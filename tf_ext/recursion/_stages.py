"""The operators of one graph by stage: the number of calls on the longest path of dependencies that leads to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion import _effects

if TYPE_CHECKING:
    from tf_ext.recursion._lowering import Lowering

# Work that is worth doing for as many frames at once as possible.
HEAVY = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D"})


class Stages:
    """The operators of one graph by stage."""

    def __init__(self, lowering: Lowering, graph: tf.Graph, outputs: Sequence[tf.Tensor]) -> None:
        effects, environment = lowering.effects, lowering.environment
        chain = effects.chain(graph)
        before = dict(zip(chain[1:], chain, strict=False))  # each ordered operator after the one before it

        def depends(op: tf.Operation) -> list[tf.Operation]:
            operands = lowering.call_operands(op) if op.type in _effects.CALLS else op.inputs
            inputs = [environment.resolve(t) for t in operands]
            found = [t.op for t in inputs if lowering.slot_of(t) is None and not environment.is_invariant(t)]
            return found + ([before[op]] if op in before else [])

        start = [environment.resolve(t) for t in outputs]
        wanted = [t.op for t in start if not environment.is_invariant(t) and lowering.slot_of(t) is None]
        needed = graphs.ancestors(wanted + chain + effects.checks(graph), depends)
        levels: dict[tf.Operation, int] = {}
        self.order = [op for op in graphs.topological(needed, depends) if op.type != "Placeholder"]
        for op in self.order:
            levels[op] = max((levels[d] + effects.has_call(d) for d in depends(op) if d in levels), default=0)
        self.num_stages = 1 + max((level + effects.has_call(op) for op, level in levels.items()), default=0)
        self.stage_ops: list[list[tf.Operation]] = [[] for _ in range(self.num_stages)]
        self.stage_calls: list[list[tf.Operation]] = [[] for _ in range(self.num_stages)]
        for op, level in levels.items():
            (self.stage_calls if effects.has_call(op) else self.stage_ops)[level].append(op)

"""Sorts the operators of a graph by stage: the number of calls on the longest path of dependencies that leads to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._effects import Effects
from tf_ext.recursion._places import Places

# Work that is worth doing for as many frames at once as possible.
HEAVY = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D"})


class Stages:
    """The operators of one graph, and its calls, by stage; `order` has all of them, dependencies first."""

    def __init__(
        self,
        graph: tf.Graph,
        outputs: Sequence[tf.Tensor],
        places: Places,
        effects: Effects,
        operands: Callable[[tf.Operation], list[tf.Tensor]],
    ) -> None:
        chain = effects.chain(graph)
        before = dict(zip(chain[1:], chain, strict=False))  # each ordered operator after the one before it

        def depends(op: tf.Operation) -> list[tf.Operation]:
            found = [t.op for t in operands(op) if not places.is_at_hand(t) and t.graph is graph]
            return found + ([before[op]] if op in before else [])

        wanted = [
            t.op for t in map(places.environment.resolve, outputs) if not places.is_at_hand(t) and t.graph is graph
        ]
        needed = graphs.ancestors(wanted + chain + effects.checks(graph), depends)
        levels: dict[tf.Operation, int] = {}
        self.order = [op for op in graphs.topological(needed, depends) if op.type != "Placeholder"]
        for op in self.order:
            levels[op] = max((levels[d] + effects.is_split(d) for d in depends(op) if d in levels), default=0)
        self.count = 1 + max((level + effects.is_split(op) for op, level in levels.items()), default=0)
        self.ops: list[list[tf.Operation]] = [[] for _ in range(self.count)]
        self.calls: list[list[tf.Operation]] = [[] for _ in range(self.count)]
        for op, level in levels.items():
            (self.calls if effects.is_split(op) else self.ops)[level].append(op)

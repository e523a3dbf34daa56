"""The graphs inside conditionals, loops and calls."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph
from tensorflow.python.ops import cond_v2

_CONDITIONALS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})


def is_conditional(op: tf.Operation) -> bool:
    """Whether `op` is what `tf.cond` or `tf.switch_case` leave in a graph."""
    return op.type in _CONDITIONALS


def branch_graphs(op: tf.Operation) -> list[tf.Graph]:
    """The branches of a conditional in order of the selector's value: (false, true), or 0, 1, ...

    Each branch's `inputs` correspond to `op.inputs[1:]`.
    """
    graphs = list(cond_v2.get_func_graphs(op))
    return graphs[::-1] if op.type in ("If", "StatelessIf") else graphs


def nested_graphs(op: tf.Operation) -> Iterator[tf.Graph]:
    """The graphs of all functions that `op` names in its attributes."""
    if is_conditional(op):
        yield from branch_graphs(op)
        return
    for attr in op.node_def.attr.values():
        names = [attr.func.name] if attr.HasField("func") else [f.name for f in attr.list.func]
        for name in names:
            function = op.graph._get_function(name)
            if function is not None:
                with op.graph.as_default():
                    yield function_def_to_graph.function_def_to_graph(function.cached_definition)


def runs_op(op: tf.Operation, types: frozenset[str]) -> bool:
    """Whether a function that `op` runs, or one that this runs, has an operator of one of the types."""
    seen: set[str] = set()
    stack = [op.node_def]
    while stack:
        node = stack.pop()
        for attr in node.attr.values():
            names = [attr.func.name] if attr.HasField("func") else [f.name for f in attr.list.func]
            for name in names:
                function = op.graph._get_function(name) if name not in seen else None
                seen.add(name)
                if function is not None:
                    nodes = function.cached_definition.node_def
                    if any(inner.op in types for inner in nodes):
                        return True
                    stack.extend(nodes)
    return False

"""Traces the bodies of a recursion inside the caller's graph.

While a body is traced, a call is a placeholder operator that names its callee; callees that are new are traced next. What
bodies capture, they capture from the caller's graph, so variables and tensors are found by themselves.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion import _signature
from tf_ext.recursion.errors import UnsupportedOperationError

if TYPE_CHECKING:
    from tf_ext.recursion.subgraph import SubGraph

_active = threading.local()


@dataclasses.dataclass(eq=False)
class Body:
    """One traced body.

    Attributes:
      subgraph: whose body it is.
      graph: the `FuncGraph`; its `inputs` begin with the arguments, its `outputs` are the results.
    """

    subgraph: SubGraph
    graph: Any

    @property
    def arguments(self) -> list[tf.Tensor]:
        """The placeholders of the declared arguments, flat."""
        return self.graph.inputs[: len(tf.nest.flatten(self.subgraph.input_signature))]


class Trace:
    """The bodies of everything that can be reached from one SubGraph."""

    def __init__(self, root: SubGraph) -> None:
        self.root = root
        self.outer_graph = tf.compat.v1.get_default_graph()
        self.bodies: list[Body] = []
        self.numbers: dict[int, int] = {}
        self._subgraphs: list[SubGraph] = []
        self._graph: tf.Graph | None = None
        self.number(root)
        while len(self.bodies) < len(self._subgraphs):
            self.bodies.append(self._trace(self._subgraphs[len(self.bodies)]))

    def number(self, subgraph: SubGraph) -> int:
        """The index of a SubGraph's body; a SubGraph that is new here is traced after the present one."""
        subgraph.body  # noqa: B018  raises where there is none: at the call that names it, not later
        if id(subgraph) not in self.numbers:
            self.numbers[id(subgraph)] = len(self._subgraphs)
            self._subgraphs.append(subgraph)
        return self.numbers[id(subgraph)]

    def _trace(self, subgraph: SubGraph) -> Body:
        convert = graphs.autograph(subgraph.body) if subgraph.autograph else subgraph.body

        def checked(*args: Any) -> list[tf.Tensor]:
            self._graph = tf.compat.v1.get_default_graph()
            return _signature.check_results(subgraph, convert(*args))

        previous = getattr(_active, "trace", None)
        _active.trace = self
        try:
            graph = graphs.trace_function(subgraph.name, checked, subgraph.input_signature)
        finally:
            _active.trace = previous
        graphs.note_variables(graph)
        return Body(subgraph, graph)

    def check_place(self, subgraph: SubGraph) -> None:
        """Refuses calls inside loops and nested functions of the body being traced."""
        assert self._graph is not None
        loop = graphs.loop_around(tf.compat.v1.get_default_graph(), self._graph)
        if loop is not None:
            raise UnsupportedOperationError(
                f"SubGraph {subgraph.name!r} is called inside {loop.name!r}, a loop or function within a body; "
                "expected calls in the body itself or in branches of tf.cond and tf.switch_case. Call it for many rows "
                "with .map(), turn the loop into a recursion, or take the tf.function decorator off the inner function."
            )


def enclosing_trace() -> Trace | None:
    """The trace whose body the current graph belongs to, if any."""
    trace: Trace | None = getattr(_active, "trace", None)
    if trace is None or trace._graph is None or tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and graph is not trace._graph:
        graph = getattr(graph, "outer_graph", None)
    return trace if graph is not None else None

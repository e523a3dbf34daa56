"""Python functions traced to `FuncGraph`s inside a caller's graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager import record
from tensorflow.python.eager.polymorphic_function import autograph_util
from tensorflow.python.framework import func_graph as func_graph_lib
from tensorflow.python.ops import control_flow_util, resource_variable_ops
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow_graphs
from tensorflow.python.util import nest


def autograph(python_function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with Python's own control flow on tensors converted."""
    converted = autograph_util.py_func_from_autograph(python_function)

    def convert(*args: Any) -> Any:
        # Whoever called us may have conversion switched off for its own code.
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.UNSPECIFIED):
            return converted(*args)

    return convert


def trace_function(
    name: str, python_function: Callable[..., Any], signature: Sequence[Any]
) -> func_graph_lib.FuncGraph:
    """Traces a Python function to a `FuncGraph` whose outer graph is the current one.

    Args:
      name: of the graph, for messages.
      python_function: called once with placeholders.
      signature: nests of `tf.TensorSpec`, one per positional argument.

    Returns:
      The graph, with `inputs`, `outputs`, `structured_outputs`, `captures` and `control_outputs`.
    """
    # What the body does is differentiated by its own graph: no tape outside has to follow it.
    with record.stop_recording():
        graph = func_graph_lib.func_graph_from_py_func(name, python_function, (), {}, signature=tuple(signature))
    return graph


def note_variables(graph: func_graph_lib.FuncGraph) -> None:
    """Tells the tapes and graphs around the current code which variables `graph` has read."""
    for variable in graph.variables:
        resource_variable_ops.variable_accessed(variable)


def loop_around(graph: tf.Graph, outermost: tf.Graph) -> tf.Graph | None:
    """The first graph on the way from `graph` out to `outermost` that is not a branch of a conditional.

    Returns:
      A loop's or another function's graph, or None when there are only branches in between.
    """
    while graph is not outermost:
        if not isinstance(graph, control_flow_graphs.CondBranchFuncGraph):
            return graph
        graph = graph.outer_graph
    return None


def flatten_up_to(shallow: Any, value: Any) -> list[Any]:
    """The parts of `value` that stand where `shallow` has leaves; it may go deeper there."""
    return nest.flatten_up_to(shallow, value)


def is_compiled_by_xla(graph: tf.Graph) -> bool:
    """Whether `graph` is being traced for a `tf.function` with `jit_compile=True`, or inside of one."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))

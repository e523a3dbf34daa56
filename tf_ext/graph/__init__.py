"""Walking and rewriting `FuncGraph`s: what every rewriter of TensorFlow graphs in this suite needs.

Private TensorFlow modules are touched here so that an upgrade of TensorFlow breaks here and not all over the house.
"""

from __future__ import annotations

from tf_ext.errors import OperatorLibraryError

try:
    import tensorflow  # noqa: F401
except ModuleNotFoundError as _error:
    raise OperatorLibraryError(
        "tf_ext.graph rewrites graphs of TensorFlow, which was expected but is not installed. "
        "Install one: pip install 'tensorflow-cpu>=2.21,<2.22'"
    ) from _error


from tf_ext.graph.autodiff import multi_gradients, new_graph, placeholder, stock_gradient, variable_spec
from tf_ext.graph.branches import branch_graphs, is_conditional, nested_graphs, runs_op
from tf_ext.graph.copying import copy_library, copy_op, extract_graph_def, plain_attrs, record_on_tapes
from tf_ext.graph.tracing import (
    autograph,
    flatten_up_to,
    is_compiled_by_xla,
    loop_around,
    note_variables,
    trace_function,
)
from tf_ext.graph.vectorizing import vectorize_op
from tf_ext.graph.walking import (
    ancestors,
    constant_value,
    is_captured_from,
    is_stateful,
    is_visible,
    read_through,
    topological,
)

__all__ = [
    "ancestors",
    "autograph",
    "branch_graphs",
    "constant_value",
    "copy_library",
    "copy_op",
    "extract_graph_def",
    "flatten_up_to",
    "is_captured_from",
    "is_compiled_by_xla",
    "is_conditional",
    "is_stateful",
    "is_visible",
    "loop_around",
    "multi_gradients",
    "nested_graphs",
    "new_graph",
    "note_variables",
    "placeholder",
    "plain_attrs",
    "read_through",
    "record_on_tapes",
    "runs_op",
    "stock_gradient",
    "topological",
    "trace_function",
    "variable_spec",
    "vectorize_op",
]

"""Functions that call themselves, in the graph, with gradients.

Stands where `tf.function` and `tf.while_loop` stand, for models whose shape follows their input: trees, parses, programs.
After Jeong et al., "Improving the Expressiveness of Deep Learning Frameworks with Recursion" (EuroSys 2018).
"""

from __future__ import annotations

from tf_ext import ops as _ops

_ops.load()

from tf_ext.recursion import _root_gradient as _root_gradient  # noqa: E402  registers the gradient
from tf_ext.recursion._calls import Calls  # noqa: E402
from tf_ext.recursion.errors import (  # noqa: E402
    BatchingError,
    SignatureError,
    UndefinedSubGraphError,
    UnsupportedOperationError,
)
from tf_ext.recursion.subgraph import SubGraph, function  # noqa: E402

__all__ = [
    "BatchingError",
    "Calls",
    "SignatureError",
    "SubGraph",
    "UndefinedSubGraphError",
    "UnsupportedOperationError",
    "function",
]

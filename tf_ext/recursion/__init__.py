"""Functions that call themselves, in the graph, with gradients.

Stands where `tf.function` and `tf.while_loop` stand, for models whose shape follows their input: trees, parses,
programs. After Jeong et al., "Improving the Expressiveness of Deep Learning Frameworks with Recursion" (EuroSys 2018).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tf_ext import ops as _ops

_ops.load()

from tf_ext.recursion import _root_gradient as _root_gradient  # noqa: E402  registers the gradient
from tf_ext.recursion._calls import Calls  # noqa: E402
from tf_ext.recursion.converters import from_nested, from_parents, to_nested  # noqa: E402
from tf_ext.recursion.errors import (  # noqa: E402
    BatchingError,
    SignatureError,
    UndefinedSubGraphError,
    UnsupportedOperationError,
)
from tf_ext.recursion.forest import Forest, concatenate  # noqa: E402
from tf_ext.recursion.sexpr import from_sexpr, to_sexpr  # noqa: E402
from tf_ext.recursion.subgraph import SubGraph, function  # noqa: E402
from tf_ext.recursion.syntax import ast_vocabulary, from_ast  # noqa: E402
from tf_ext.recursion.trees import Trees, flat_targets, pad_targets  # noqa: E402
from tf_ext.recursion.vocabulary import Vocabulary  # noqa: E402

if TYPE_CHECKING:
    from tf_ext.recursion import layers

__all__ = [
    "BatchingError",
    "Calls",
    "Forest",
    "SignatureError",
    "SubGraph",
    "Trees",
    "UndefinedSubGraphError",
    "UnsupportedOperationError",
    "Vocabulary",
    "ast_vocabulary",
    "concatenate",
    "flat_targets",
    "from_ast",
    "from_nested",
    "from_parents",
    "from_sexpr",
    "function",
    "layers",
    "pad_targets",
    "to_nested",
    "to_sexpr",
]


def __getattr__(name: str) -> Any:
    """Imports the layers, and Keras with them, when they are asked for."""
    if name == "layers":
        return importlib.import_module("tf_ext.recursion.layers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

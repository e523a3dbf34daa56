"""An extension suite for TensorFlow: each part stands where a part of TensorFlow stands.

The subpackages are imported on first use, and this module imports without TensorFlow:

    import tf_ext

    tf_ext.__version__                  # no TensorFlow needed
    tf_ext.recursion.SubGraph("tree")   # imports TensorFlow, checks and loads the operator library
"""

from __future__ import annotations

import importlib
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tf_ext import errors as errors
    from tf_ext import ops as ops

__version__ = "0.1.0"

# What `tf_ext.<name>` may mean; `cli` and `testing` are imported by those who need them.
_SUBPACKAGES = ("checkpoint", "errors", "graph", "lite", "ops", "recursion", "tuner")

__all__ = ["__version__", "errors", "ops"]


def __getattr__(name: str) -> types.ModuleType:
    """Imports a subpackage on first use (PEP 562)."""
    if name in _SUBPACKAGES:
        return importlib.import_module(f"tf_ext.{name}")
    raise AttributeError(f"module 'tf_ext' has no attribute {name!r}; its parts are {', '.join(_SUBPACKAGES)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SUBPACKAGES])

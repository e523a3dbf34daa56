"""Finds, checks and loads the library of TensorFlow operators.

The library is tied to TensorFlow's minor version. `load` compares the version it was built for with the one installed
before it loads anything, so that a misfit is a sentence and not a list of mangled symbols:

    from tf_ext import ops

    ops.load()     # the module of generated wrappers; raises OperatorLibraryError with the command that repairs it
    ops.inspect()  # the same facts as a value, for `tf-ext doctor`

Importing this package does not import TensorFlow.
"""

from __future__ import annotations

from tf_ext.ops._installed import InstalledTensorFlow, find_tensorflow, minor
from tf_ext.ops._library import REPAIR, LibraryState, inspect, load, require_tensorflow

__all__ = [
    "REPAIR",
    "InstalledTensorFlow",
    "LibraryState",
    "find_tensorflow",
    "inspect",
    "load",
    "minor",
    "require_tensorflow",
]

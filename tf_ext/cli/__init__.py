"""The `tf-ext` command.

``tf-ext --version`` and everything else but ``doctor`` work without TensorFlow.
"""

from __future__ import annotations

from tf_ext.cli._main import main

__all__ = ["main"]

"""Helpers for tests of the suite and of programs built on it. Needs pytest."""

from __future__ import annotations

from tf_ext.testing._parts import require

__all__ = ["require"]

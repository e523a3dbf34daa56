"""The same engine behind TensorFlow Lite's `Interpreter`: an external delegate, shared by all interpreters of a process."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from tf_ext.lite import _library, errors
from tf_ext.lite.engine import runtime_library

__all__ = ["load_delegate"]

LIBRARIES = ("tensorflow", "ai_edge_litert", "tflite_runtime")


def load_delegate(
    bundle: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    *,
    library: str | None = None,
) -> Any:
    """Loads the delegate for an interpreter of the model that a bundle was made of.

    All delegates of a process share one engine: the first one's options make it, and interpreters in several threads
    are coordinated.

    Args:
        bundle: path of the bundle.
        options: of the engine, as in `tf_ext_lite.h`: ``workers``, ``policy``, ``runtime`` and so on; and of this
            interpreter's requests.
        library: whose `Interpreter` it is for: ``"tensorflow"``, ``"ai_edge_litert"`` or ``"tflite_runtime"``; else the
            one that is imported already, or else the first one that is installed, LiteRT before TensorFlow.

    Returns:
        What that library's own ``load_delegate`` returns: for ``experimental_delegates``.

    Raises:
        NotFoundError: there is no such bundle.
        UnavailableError: the library is not installed.
        LibraryError: the library of `tf_ext.lite` is absent.
        InvalidArgumentError: an option is unknown or cannot be understood.

    Example:
        >>> delegate = tf_ext.lite.load_delegate("face_landmark.tfxlite", {"workers": "cpu@0,cpu@1"})
        >>> interpreter = tf.lite.Interpreter("face_landmark.tflite", experimental_delegates=[delegate])
    """
    path = pathlib.Path(bundle)
    if not path.exists():
        raise errors.NotFoundError(f"there is no bundle at {path}; make one: tf-ext lite bundle MODEL {path}")
    _library.load()  # says what is wrong with it in a sentence
    runtime = runtime_library()
    known = {"bundle": str(path), **({"runtime": str(runtime)} if runtime else {})}
    loader = _loader(library or _chosen())
    try:
        return loader(str(_library.find()), {**known, **{key: str(value) for key, value in (options or {}).items()}})
    except ValueError as error:
        raise errors.InvalidArgumentError(f"the delegate for {path} cannot be made: {str(error).strip()}") from error


def _chosen() -> str:
    for name in LIBRARIES:
        if name in sys.modules:
            return name
    for name in ("ai_edge_litert", "tflite_runtime", "tensorflow"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise errors.UnavailableError("no library with an interpreter is installed: pip install 'tf_ext[lite]'")


def _loader(library: str) -> Any:
    if library not in LIBRARIES:
        raise errors.InvalidArgumentError(f"expected library to be one of {', '.join(LIBRARIES)}, got {library!r}")
    module = "tensorflow" if library == "tensorflow" else f"{library}.interpreter"
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise errors.UnavailableError(f"{library} cannot be imported: {error}; install it, or name another") from error
    return found.lite.experimental.load_delegate if library == "tensorflow" else found.load_delegate

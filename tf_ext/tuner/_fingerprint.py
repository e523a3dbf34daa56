"""Texts that are the same in every process for the same code, data and environment: what may share stages."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import os
import pathlib
import platform
import site
import sysconfig
import types
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_OURS = os.path.realpath(os.path.dirname(os.path.dirname(__file__))) + os.sep

__all__ = ["environment", "fingerprint_of_arrays", "fingerprint_of_code"]

_INSTALLED = tuple(
    {os.path.realpath(p) for p in [*site.getsitepackages(), sysconfig.get_path("stdlib"), site.getusersitepackages()]}
)


def environment() -> dict[str, Any]:
    """What changes bits of a training though code, data and seed are the same."""
    threads = tf.config.threading
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "backend": keras.backend.backend(),
        "floatx": keras.config.floatx(),
        "policy": keras.config.dtype_policy().name,
        "intra_op_threads": threads.get_intra_op_parallelism_threads() or os.cpu_count(),
        "inter_op_threads": threads.get_inter_op_parallelism_threads() or os.cpu_count(),
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", ""),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "tf_xla_flags": os.environ.get("TF_XLA_FLAGS", ""),
        "devices": sorted(f"{d.device_type}" for d in tf.config.list_logical_devices()),
        "machine": platform.machine(),
    }


def fingerprint_of_arrays(tree: Any, settings: Sequence[Any]) -> str:
    """That of all values, types and shapes of arrays."""
    digest = hashlib.blake2b(json.dumps(list(settings)).encode(), digest_size=16)
    for leaf in tf.nest.flatten(tree):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        if array.dtype.hasobject:
            digest.update(repr(array.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def fingerprint_of_code(thing: Any) -> str | None:
    """That of a function, a method or an object: its code, what it closes over, and the user's functions that it calls.

    Code of installed packages counts by name. None where something is met of which it is not known what tells it apart.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        _Walk(digest).add(thing)
    except _UnknownError:
        return None
    return digest.hexdigest()


# What its name tells.
_NAMED = (
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    np.ufunc,
)


class _UnknownError(Exception):
    """A value of which it is not known what tells it from others."""


class _Walk:
    """Goes through code and values, each once."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # an id is an object's own only while the object lives

    def add(self, thing: Any) -> None:
        if thing is None or isinstance(thing, bool | int | float | complex | str | bytes | type(Ellipsis)):
            self._text(f"{type(thing).__name__}:{thing!r}")
            return
        if id(thing) in self._seen:
            self._text(f"again:{self._seen[id(thing)]}")
            return
        self._seen[id(thing)] = len(self._seen)
        self._kept.append(thing)
        self._add_new(thing)

    def _add_new(self, thing: Any) -> None:
        if isinstance(thing, types.CodeType):
            self._code(thing)
        elif isinstance(thing, types.MethodType):
            self.add(thing.__func__)
            self.add(thing.__self__)
        elif isinstance(thing, types.FunctionType):
            self._function(thing)
        elif isinstance(thing, _NAMED):
            self._text(f"name:{getattr(thing, '__module__', '')}.{getattr(thing, '__name__', thing)}")
        elif isinstance(thing, functools.partial):
            self.add([thing.func, thing.args, thing.keywords])
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, list | tuple | set | frozenset):
            items = sorted(thing, key=repr) if isinstance(thing, set | frozenset) else list(thing)
            self._text(f"{type(thing).__name__}:{len(items)}")
            for item in items:
                self.add(item)
        elif isinstance(thing, dict):
            self._text(f"dict:{len(thing)}")
            for key, value in thing.items():
                self.add(key)
                self.add(value)
        elif isinstance(thing, np.ndarray | np.generic | tf.Tensor):
            self._text(fingerprint_of_arrays(thing, []))
        else:
            self._object(thing)

    def _function(self, function: types.FunctionType) -> None:
        if _installed(function):
            self._text(f"name:{function.__module__}.{function.__qualname__}")
            return
        self._code(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            self.add(cell.cell_contents)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self._text(name)
                self.add(function.__globals__[name])

    def _code(self, code: types.CodeType) -> None:
        self._text(f"{code.co_code.hex()}{code.co_names}{code.co_varnames}{code.co_freevars}")
        for constant in code.co_consts:
            self.add(constant)

    def _class(self, kind: type) -> None:
        self._text(f"class:{kind.__module__}.{kind.__qualname__}")
        if not _installed(kind):
            for base in kind.__bases__:
                self.add(base)
            for name, value in sorted(vars(kind).items()):
                if not name.startswith("__") or (
                    name in ("__init__", "__call__") and not dataclasses.is_dataclass(kind)
                ):
                    self._text(name)
                    self.add(getattr(value, "__func__", value))

    def _object(self, thing: Any) -> None:
        self.add(type(thing))
        if dataclasses.is_dataclass(thing):
            self.add([getattr(thing, field.name) for field in dataclasses.fields(thing)])
        elif hasattr(thing, "get_config"):
            self.add(thing.get_config())
        elif isinstance(thing, enum.Enum | pathlib.PurePath | range):
            self._text(str(thing))
        elif hasattr(thing, "__dict__") and not _installed(type(thing)):
            self.add(dict(vars(thing)))
        elif hasattr(thing, "fget"):
            self.add(thing.fget)
        else:
            raise _UnknownError

    def _text(self, text: str) -> None:
        self._digest.update(text.encode() + b"\0")


def _names(code: types.CodeType) -> set[str]:
    nested = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*(_names(c) for c in nested))


def _installed(thing: Any) -> bool:
    """Whether it comes from an installed package, or is a part of Python."""
    try:
        path = os.path.realpath(inspect.getfile(thing))
    except TypeError:
        return getattr(thing, "__module__", "builtins") == "builtins"
    except OSError:
        return False
    return path.startswith((*_INSTALLED, _OURS))

"""Finds and loads `_lite.so`, and tells ctypes the types of the interface `custom_ops/lite_delegate/tf_ext_lite.h`."""

from __future__ import annotations

import ctypes
import importlib.resources
import os
import pathlib
import threading
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint64, c_void_p

from tf_ext.lite import errors

ABI = 1
LIBRARY_NAME = "_lite.so"
LIBRARY_VARIABLE = "TF_EXT_LITE_LIBRARY"
REPAIR = "python -m tf_ext.ops.build --no-tensorflow"
NEVER = (2**63 - 1) // 1024
"""What the interface calls never, or cannot: microseconds."""

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


class Tensor(ctypes.Structure):
    """`TfExtLiteTensor`."""

    _fields_ = (
        ("name", c_char_p),
        ("type", c_char_p),
        ("shape", POINTER(c_int32)),
        ("rank", c_int32),
        ("bytes", c_size_t),
    )


class Buffer(ctypes.Structure):
    """`TfExtLiteBuffer`."""

    _fields_ = (("data", c_void_p), ("bytes", c_size_t))


class RequestOptions(ctypes.Structure):
    """`TfExtLiteRequestOptions`."""

    _fields_ = (("size", c_size_t), ("slo_us", c_int64), ("priority", c_int32), ("worker", c_int32))


class JobView(ctypes.Structure):
    """`TfExtLiteJobView`."""

    _fields_ = (
        ("id", c_int64),
        ("model", c_int32),
        ("unit", c_int32),
        ("priority", c_int32),
        ("pinned", c_int32),
        ("submitted", c_int64),
        ("deadline", c_int64),
        ("excluded", c_uint64),
    )


class WorkerView(ctypes.Structure):
    """`TfExtLiteWorkerView`."""

    _fields_ = (("available", c_int32), ("queued", c_int32), ("free_at", c_int64), ("slowdown", c_double))


class PieceView(ctypes.Structure):
    """`TfExtLitePieceView`."""

    _fields_ = (("begin", c_int32), ("end", c_int32), ("expected", POINTER(c_int64)))


class ModelView(ctypes.Structure):
    """`TfExtLiteModelView`."""

    _fields_ = (("units", c_int32), ("num_pieces", c_int32), ("pieces", POINTER(PieceView)))


class Snapshot(ctypes.Structure):
    """`TfExtLiteSnapshot`."""

    _fields_ = (
        ("now", c_int64),
        ("num_jobs", c_int32),
        ("num_workers", c_int32),
        ("num_models", c_int32),
        ("jobs", POINTER(JobView)),
        ("workers", POINTER(WorkerView)),
        ("models", POINTER(ModelView)),
    )


class Decision(ctypes.Structure):
    """`TfExtLiteDecision`."""

    _fields_ = (("job", c_int32), ("worker", c_int32), ("piece", c_int32))


class Event(ctypes.Structure):
    """`TfExtLiteEvent`."""

    _fields_ = (("time", c_int64), ("kind", c_int32), ("target", c_int32), ("factor", c_double))


class Simulation(ctypes.Structure):
    """`TfExtLiteSimulation`."""

    _fields_ = (
        ("size", c_size_t),
        ("num_workers", c_int32),
        ("num_models", c_int32),
        ("units", POINTER(c_int32)),
        ("num_pieces", POINTER(c_int32)),
        ("pieces", POINTER(c_int32)),
        ("expected", POINTER(c_int64)),
        ("slowdowns", POINTER(c_double)),
        ("noise", c_double),
        ("seed", c_uint64),
        ("queue_limit", c_int32),
        ("num_jobs", c_int32),
        ("job_model", POINTER(c_int32)),
        ("job_arrival", POINTER(c_int64)),
        ("job_slo", POINTER(c_int64)),
        ("job_priority", POINTER(c_int32)),
        ("job_pinned", POINTER(c_int32)),
        ("num_events", c_int32),
        ("events", POINTER(Event)),
    )


class Run(ctypes.Structure):
    """`TfExtLiteRun`."""

    _fields_ = (
        ("job", c_int32),
        ("piece", c_int32),
        ("worker", c_int32),
        ("ok", c_int32),
        ("begin", c_int64),
        ("end", c_int64),
    )


class Simulated(ctypes.Structure):
    """`TfExtLiteSimulated`."""

    _fields_ = (
        ("size", c_size_t),
        ("job_end", POINTER(c_int64)),
        ("job_status", POINTER(c_int32)),
        ("worker_busy", POINTER(c_int64)),
        ("runs", POINTER(Run)),
        ("max_runs", c_int64),
        ("num_runs", c_int64),
        ("decisions", c_int64),
        ("decide_ns", c_double),
    )


JobCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int32)
"""`TfExtLiteCallback`: user, job, status."""
PolicyCallback = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(Snapshot), POINTER(Decision))
"""`TfExtLitePolicyCallback`: user, snapshot, decisions; returns how many there are."""

_ENGINE = c_void_p
_STRINGS = POINTER(c_char_p)
_REQUEST = (_ENGINE, c_int32, POINTER(Buffer), c_size_t, POINTER(Buffer), c_size_t, POINTER(RequestOptions))

# Name: (result, arguments). Text that the caller must free comes as c_void_p, since c_char_p would lose the address.
_FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "TfExtLiteLastError": (c_char_p, ()),
    "TfExtLiteVersion": (c_char_p, ()),
    "TfExtLiteAbi": (c_int32, ()),
    "TfExtLiteEngineCreate": (c_int32, (_STRINGS, _STRINGS, c_size_t, POINTER(_ENGINE))),
    "TfExtLiteEngineDelete": (None, (_ENGINE,)),
    "TfExtLiteAddModel": (c_int32, (_ENGINE, c_char_p, POINTER(c_int32))),
    "TfExtLiteAddModelFromMemory": (c_int32, (_ENGINE, c_void_p, c_size_t, POINTER(c_int32))),
    "TfExtLiteAddModelFromDescriptor": (c_int32, (_ENGINE, ctypes.c_int, c_int64, c_int64, POINTER(c_int32))),
    "TfExtLiteInputCount": (c_int32, (_ENGINE, c_int32)),
    "TfExtLiteOutputCount": (c_int32, (_ENGINE, c_int32)),
    "TfExtLiteInput": (c_int32, (_ENGINE, c_int32, c_int32, POINTER(Tensor))),
    "TfExtLiteOutput": (c_int32, (_ENGINE, c_int32, c_int32, POINTER(Tensor))),
    "TfExtLiteWarmUp": (c_int32, (_ENGINE, c_int32)),
    "TfExtLiteRequest": (c_int32, _REQUEST),
    "TfExtLiteRequestAsync": (c_int32, (*_REQUEST, JobCallback, c_void_p, POINTER(c_int64))),
    "TfExtLiteWait": (c_int32, (_ENGINE, c_int64, c_int64)),
    "TfExtLiteCancel": (c_int32, (_ENGINE, c_int64)),
    "TfExtLitePolicies": (c_char_p, ()),
    "TfExtLiteSetPolicy": (c_int32, (_ENGINE, c_char_p)),
    "TfExtLiteSetPolicyCallback": (c_int32, (_ENGINE, PolicyCallback, c_void_p)),
    "TfExtLiteStatistics": (c_void_p, (_ENGINE,)),
    "TfExtLiteSetTracing": (None, (_ENGINE, c_int32)),
    "TfExtLiteTrace": (c_void_p, (_ENGINE,)),
    "TfExtLiteFree": (None, (c_void_p,)),
    "TfExtLiteSimulate": (
        c_int32,
        (POINTER(Simulation), c_char_p, PolicyCallback, c_void_p, POINTER(Simulated)),
    ),
}


def find() -> pathlib.Path | None:
    """Returns where the library lies, or None.

    ``$TF_EXT_LITE_LIBRARY`` comes first; then the file beside this one; then the package's resources, since an editable
    install keeps the library apart from the source tree.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return pathlib.Path(named)
    beside = pathlib.Path(__file__).with_name(LIBRARY_NAME)
    if beside.is_file():
        return beside
    resource = importlib.resources.files("tf_ext.lite").joinpath(LIBRARY_NAME)
    return pathlib.Path(str(resource)) if resource.is_file() else None


def load() -> ctypes.CDLL:
    """Returns the library, loaded once per process, with the types of all functions set.

    Every call through it lets other Python threads run meanwhile.

    Raises:
        LibraryError: the library is absent, cannot be loaded, or is of another version.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _open(find())
        return _loaded


def check(status: int) -> None:
    """Raises what a status says, with the words of `TfExtLiteLastError`; must run on the thread that made the call.

    Raises:
        LiteError: the status is not `kTfExtLiteOk`.
    """
    if status:
        raise errors.from_status(status, load().TfExtLiteLastError().decode("utf-8", "replace"))


def _open(path: pathlib.Path | None) -> ctypes.CDLL:
    if path is None or not path.is_file():
        where = f"{path}, named by ${LIBRARY_VARIABLE}, is not a file" if path else f"{LIBRARY_NAME} is not installed"
        raise errors.LibraryError(f"The library of tf_ext.lite is absent: {where}. Build it: {REPAIR}")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise errors.LibraryError(f"{path} cannot be loaded: {error}. Build it for this machine: {REPAIR}") from error
    try:
        abi = library.TfExtLiteAbi()
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise errors.LibraryError(
            f"{path} was expected to be tf_ext.lite's library: {error}. Build it: {REPAIR}"
        ) from error
    if abi != ABI:
        raise errors.LibraryError(
            f"{path} was expected to have interface {ABI}, but has {abi}. Build it anew: {REPAIR}"
        )
    return library

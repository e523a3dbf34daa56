"""The exceptions of `tf_ext.lite`: one for each status of the C interface, and one for the library itself."""

from __future__ import annotations

from tf_ext.errors import TfExtError

__all__ = [
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "InternalError",
    "InvalidArgumentError",
    "LibraryError",
    "LiteError",
    "NotFoundError",
    "QueueFullError",
    "UnavailableError",
    "WaitTimeoutError",
]


class LiteError(TfExtError):
    """Base of the exceptions of `tf_ext.lite`."""


class LibraryError(LiteError, ImportError):
    """The library `_lite.so` is absent, cannot be loaded, or belongs to another version of the package."""


class InvalidArgumentError(LiteError, ValueError):
    """An argument is out of its range, of the wrong type, or contradicts another one."""


class NotFoundError(LiteError, LookupError):
    """There is no such file, model, job, processor or policy."""


class DataLossError(LiteError, ValueError):
    """A bundle is damaged, or is that of another version or another model."""


class UnavailableError(LiteError, RuntimeError):
    """The runtime, or every processor that could do the work, is absent or lost."""


class QueueFullError(LiteError, RuntimeError):
    """As many requests wait as may: try again later."""


class DeadlineExceededError(LiteError, TimeoutError):
    """The request was dropped: it could not be done within its service-level objective any more."""


class CancelledError(LiteError):
    """The request was cancelled."""


class WaitTimeoutError(LiteError, TimeoutError):
    """A wait ended before the request did; the request goes on."""


class InternalError(LiteError, RuntimeError):
    """The engine contradicts itself, or the runtime failed in a way that it does not explain."""


_BY_STATUS: dict[int, type[LiteError]] = {
    1: InvalidArgumentError,
    2: NotFoundError,
    3: DataLossError,
    4: UnavailableError,
    5: QueueFullError,
    6: DeadlineExceededError,
    7: CancelledError,
    8: WaitTimeoutError,
    9: InternalError,
}


def from_status(status: int, text: str) -> LiteError:
    """Returns the exception for a status of the C interface that is not `kTfExtLiteOk`."""
    return _BY_STATUS.get(status, InternalError)(text or f"status {status}")

"""The exceptions of the tuner."""

from __future__ import annotations

import importlib
from typing import Any

from tf_ext.errors import TfExtError

__all__ = [
    "CorruptedPlanError",
    "InexactDataError",
    "InvalidSequenceError",
    "PlanMismatchError",
    "PlanVersionError",
    "SharingError",
    "TunerError",
    "WorkerLostError",
]


class TunerError(TfExtError):
    """Base of the tuner's own exceptions."""


class InvalidSequenceError(TunerError, ValueError):
    """A hyper-parameter sequence or schedule contradicts itself or does not fit the study."""


class InexactDataError(TunerError, ValueError):
    """The order of the data cannot be reproduced, and `exact=True` asked for that."""


class SharingError(TunerError, ValueError):
    """Something of the study keeps prefixes from being shared, and `exact=True` asked for an error then."""


class PlanMismatchError(TunerError, ValueError):
    """The plan in this directory belongs to something else, or cannot take this change."""


class PlanVersionError(TunerError):
    """The plan was written by another version of the schema."""


class CorruptedPlanError(TunerError):
    """The plan cannot be read; the message names the command that repairs it."""


class WorkerLostError(TunerError, RuntimeError):
    """Workers died again and again while they ran one stage."""


def __getattr__(name: str) -> Any:
    # Keras Tuner's exceptions, such as `FailedTrialError`, under the name under which a ported program looks for them.
    if name in ("FailedTrialError", "FatalError", "FatalRuntimeError", "FatalTypeError", "FatalValueError"):
        return getattr(importlib.import_module("keras_tuner.errors"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

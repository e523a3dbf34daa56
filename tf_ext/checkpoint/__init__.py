"""Checkpoints: a store that is whole or absent at any moment, and the exact state of a Keras model.

Stands where `tf.train.Checkpoint` and Orbax stand. `tf_ext.checkpoint.store` needs no TensorFlow; the state of a model,
its optimizer, its seeds and its callbacks is taken and put back by `tf_ext.checkpoint.keras`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tf_ext.checkpoint.errors import (
    BlobNotFoundError,
    CheckpointError,
    CheckpointNotFoundError,
    CorruptedCheckpointError,
    FormatVersionError,
    IncompleteCheckpointError,
    InvalidBlobError,
    InvalidNameError,
    ShardConflictError,
    StateMismatchError,
    WriterClosedError,
)
from tf_ext.checkpoint.store import Checkpoint, Store, Writer

if TYPE_CHECKING:
    from tf_ext.checkpoint import keras as keras

__all__ = [
    "BlobNotFoundError",
    "Checkpoint",
    "CheckpointError",
    "CheckpointNotFoundError",
    "CorruptedCheckpointError",
    "FormatVersionError",
    "IncompleteCheckpointError",
    "InvalidBlobError",
    "InvalidNameError",
    "ShardConflictError",
    "StateMismatchError",
    "Store",
    "Writer",
    "WriterClosedError",
]


def __getattr__(name: str) -> Any:
    """Imports what needs Keras when it is asked for."""
    if name == "keras":
        return importlib.import_module("tf_ext.checkpoint.keras")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What can go wrong with checkpoints; a full disk and the like stay the `OSError` that they are."""

from __future__ import annotations

from tf_ext.errors import TfExtError


class CheckpointError(TfExtError):
    """Base of all errors of `tf_ext.checkpoint`."""


class CheckpointNotFoundError(CheckpointError, LookupError):
    """The store has no checkpoint of that name, or has it no longer."""


class IncompleteCheckpointError(CheckpointNotFoundError):
    """Some shards of the checkpoint are written and others are not, so that there is nothing to be read yet."""


class BlobNotFoundError(CheckpointError, KeyError):
    """The checkpoint has no blob under that key. Also a `KeyError`, as a mapping raises it."""

    __str__ = Exception.__str__  # a KeyError shows its message in quotes


class CorruptedCheckpointError(CheckpointError):
    """What is on the disk is not what was written: a checksum, a size or a file is not what the manifest says."""


class FormatVersionError(CheckpointError):
    """The checkpoint was written in a format that this version of the suite does not read."""


class InvalidNameError(CheckpointError, ValueError):
    """A name or an attempt cannot be part of a file name."""


class InvalidBlobError(CheckpointError, TypeError, ValueError):
    """A value cannot be stored exactly: an array of objects, say, or metadata that JSON would change."""


class ShardConflictError(CheckpointError):
    """Two writers of one attempt do not fit: the same shard, the same key, or another number of shards."""


class WriterClosedError(CheckpointError):
    """A blob was put into a writer that is closed or was not entered."""


class StateMismatchError(CheckpointError, ValueError):
    """A state does not fit the model, its optimizer or its callbacks; nothing was changed."""

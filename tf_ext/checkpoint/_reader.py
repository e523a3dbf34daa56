"""Reads a checkpoint: its files are opened at once, its blobs when they are asked for, each checked as it comes in."""

from __future__ import annotations

import contextlib
import os
import pathlib
import types
import weakref
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from tf_ext.checkpoint import _format
from tf_ext.checkpoint._commit import Manifest
from tf_ext.checkpoint.errors import BlobNotFoundError, CheckpointError

_CHUNK = 1 << 20


class Checkpoint(Mapping[str, Any]):
    """A checkpoint that was opened by `Store.load`: a mapping from keys to NumPy arrays and bytes.

    A blob is read, and its checksum compared, each time it is asked for; the array belongs to the caller and may be
    written to. All files are opened when the checkpoint is, so that it can be read to its end while others replace or
    delete it. Close it, or use it in `with`; one that is dropped closes itself.

    Example:
        with store.load("step-100") as checkpoint:
            weights = checkpoint["weights"]
    """

    def __init__(self, manifest: Manifest, directory: pathlib.Path) -> None:
        self._manifest = manifest
        self._directory = directory
        descriptors: list[int] = []
        self._descriptors = descriptors
        self._close = weakref.finalize(self, _close_all, descriptors)
        try:
            for file, size in manifest.shards:
                descriptors.append(os.open(directory / file, os.O_RDONLY))
                found = os.fstat(descriptors[-1]).st_size
                if found != size:
                    raise _format.corrupted(str(directory / file), f"{size} bytes", str(found))
        except BaseException:
            self._close()
            raise

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return self._manifest.name

    @property
    def attempt(self) -> str:
        """What its writers agreed on; tells two checkpoints of one name apart."""
        return self._manifest.attempt

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that its writers gave."""
        return self._manifest.metadata

    @property
    def nbytes(self) -> int:
        """Bytes of all blobs."""
        return sum(entry.length for entry in self._manifest.blobs.values())

    def verify(self) -> None:
        """Reads all blobs and compares their checksums.

        Raises:
            CorruptedCheckpointError: One is not what was written.
        """
        for key in self:
            self[key]

    def close(self) -> None:
        """Closes the files. What has been read stays valid."""
        self._close()

    def __getitem__(self, key: str) -> Any:
        entry = self._manifest.blobs.get(key)
        if entry is None:
            raise BlobNotFoundError(
                f"expected a key of checkpoint {self.name!r}, got {key!r}. It has {len(self)}: {_some(list(self))}."
            )
        if not self._close.alive:
            raise CheckpointError(f"expected an open checkpoint, but {self.name!r} was closed. Load it again.")
        where = f"blob {key!r} of checkpoint {self.name!r} ({self._directory})"
        data = np.empty(entry.length, np.uint8)
        self._read(entry, data.data, where)
        if entry.dtype is None:
            return data.tobytes()
        dtype = _format.dtype_of(entry.dtype)
        return data.view(dtype).reshape(entry.shape) if entry.length else np.empty(entry.shape, dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._manifest.blobs)

    def __len__(self) -> int:
        return len(self._manifest.blobs)

    def __contains__(self, key: object) -> bool:
        return key in self._manifest.blobs

    # A mapping's own comparison would read both and then stumble over arrays.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name!r}: {len(self)} blobs, {self.nbytes} bytes>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, entry: _format.Entry, target: memoryview, where: str) -> None:
        done, checksum = 0, 0
        while done < entry.length:
            chunk = target[done : done + _CHUNK]
            count = os.preadv(self._descriptors[entry.shard], [chunk], entry.offset + done)
            if not count:
                raise _format.corrupted(where, f"{entry.length} bytes", f"{done}")
            checksum = zlib.crc32(chunk[:count], checksum)
            done += count
        if checksum != entry.crc32:
            raise _format.corrupted(where, f"CRC-32 {entry.crc32}", str(checksum))


def _some(keys: list[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:5])
    return shown + (", ..." if len(keys) > 5 else "") if keys else "none"


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptors.pop())

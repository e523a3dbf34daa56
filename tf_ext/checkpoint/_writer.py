"""Writes one shard: blobs one after the other, their index behind them, all of it aside until it is whole.

    tf_ext.checkpoint.shard          first line, for people and `file`
    <blob> <padding> <blob> ...      each blob at a multiple of 64
    <framed JSON: index, metadata>   see `_format`
    <offset of that JSON> <magic>    the last 16 bytes

The manifest has all indices; the one in the shard tells it to whoever commits, in another process perhaps.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import struct
import types
import uuid
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Self

from tf_ext.checkpoint import _format
from tf_ext.checkpoint.errors import CheckpointNotFoundError, InvalidBlobError, ShardConflictError, WriterClosedError

TRAILER = struct.Struct("<Q8s")
MAGIC = b"tfext\r\n\0"
FIRST_LINE = b"tf_ext.checkpoint.shard\n"

# Summed up and written while it is in the processor's cache.
_CHUNK = 1 << 20
# Smaller than a chunk: chunks then go to the system as they are, and only what is small is collected.
_BUFFER = 1 << 16


class Writer:
    """Writes one shard of a checkpoint; made by `Store.writer`.

    Entered with `with`. When the block ends without an exception the shard is made durable, and the last shard of an
    attempt makes the checkpoint visible. An exception leaves nothing behind.

    Example:
        with store.writer("step-100", shard=rank, num_shards=ranks, attempt=launch) as writer:
            writer.put(f"rows/{rank}", rows)
    """

    def __init__(
        self,
        path: pathlib.Path,
        shard: int,
        metadata: Mapping[str, Any],
        start: Callable[[Callable[[], BinaryIO]], BinaryIO],
        finish: Callable[[Callable[[], None]], bool],
    ) -> None:
        # `start` and `finish` belong to the store, and run what they are given under its lock.
        self._path = path
        self._aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        self._shard = shard
        self._metadata = dict(_format.checked_metadata(dict(metadata)))
        self._start, self._finish = start, finish
        self._file: BinaryIO | None = None
        self._entries: dict[str, _format.Entry] = {}
        self._committed = False
        self._entered = False

    @property
    def committed(self) -> bool:
        """Whether the checkpoint was visible when this writer closed: whether it was the last one of its attempt."""
        return self._committed

    def put(self, key: str, value: _format.Array | bytes | bytearray | memoryview) -> None:
        """Writes a blob.

        Args:
            key: Any text, used once in a checkpoint.
            value: An array of any shape and dtype without references, `ml_dtypes` included, or bytes.

        Raises:
            InvalidBlobError: `value` cannot be stored exactly.
            ShardConflictError: There is a blob under `key` already.
            WriterClosedError: The writer is closed or was not entered.
        """
        if self._file is None:
            raise WriterClosedError(f"expected an open writer for {key!r}, got a closed one. Put inside `with`.")
        if not isinstance(key, str):
            raise InvalidBlobError(f"expected text as key, got {key!r}. Convert it with str().")
        if key in self._entries:
            raise ShardConflictError(f"expected a new key, got {key!r}, which is in this shard already. Rename one.")
        data, dtype, shape = _format.flat_bytes(value)
        self._file.write(b"\0" * (-self._file.tell() % _format.ALIGNMENT))
        offset, checksum = self._file.tell(), 0
        for begin in range(0, data.nbytes, _CHUNK):
            chunk = data[begin : begin + _CHUNK]
            checksum = zlib.crc32(chunk, checksum)
            self._file.write(chunk)
        self._entries[key] = _format.Entry(dtype, shape, offset, data.nbytes, checksum, self._shard)

    def __enter__(self) -> Self:
        if self._entered:
            raise WriterClosedError("expected a writer that was not used before. Make a new one with `Store.writer`.")
        self._entered = True
        self._file = self._start(self._open_aside)
        self._file.write(FIRST_LINE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        file = self._file
        if file is None:
            return
        self._file = None
        try:
            if kind is None:
                self._write_index(file)
                self._committed = self._finish(self._move_in_place)
        finally:
            with contextlib.suppress(OSError):
                self._aside.unlink(missing_ok=True)
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)
            with contextlib.suppress(OSError):  # a full disk has been told of already, or is no longer of interest
                file.close()

    def _open_aside(self) -> BinaryIO:
        file = open(self._aside, "xb", buffering=_BUFFER)  # noqa: SIM115  closed in __exit__
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)  # the garbage collector sees by it that the writer lives
        return file

    def _write_index(self, file: BinaryIO) -> None:
        index = {
            "metadata": self._metadata,
            "blobs": {key: vars(entry) for key, entry in self._entries.items()},
        }
        offset = file.tell()
        file.write(_format.frame(_format.SHARD, index))
        file.write(TRAILER.pack(offset, MAGIC))
        file.flush()
        os.fsync(file.fileno())

    def _move_in_place(self) -> None:
        if self._path.exists():
            raise ShardConflictError(
                f"expected to be the only writer of shard {self._shard} in this attempt, but another one has written it "
                f"({self._path}). Let all writers of a restart agree on a new `attempt`."
            )
        try:
            os.rename(self._aside, self._path)
        except FileNotFoundError as error:
            raise CheckpointNotFoundError(
                f"expected the file that is being written, but {self._aside} was removed meanwhile. "
                "Write the checkpoint anew, and do not remove files of a store by hand."
            ) from error


def read_index(path: pathlib.Path) -> tuple[dict[str, _format.Entry], dict[str, Any], int]:
    """Returns the entries, the metadata and the size in bytes of a shard that a `Writer` finished.

    Raises:
        CorruptedCheckpointError: The file is not what was written.
        FormatVersionError: It was written in another version of the format.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(0, size - TRAILER.size))
        trailer = file.read()
        if len(trailer) != TRAILER.size or trailer[8:] != MAGIC:
            raise _format.corrupted(str(path), f"an end with {MAGIC!r}", repr(trailer))
        offset, _ = TRAILER.unpack(trailer)
        file.seek(min(offset, size))
        index = _format.unframe(_format.SHARD, file.read(), str(path))
    entries = {key: _format.Entry.from_json(record) for key, record in index["blobs"].items()}
    return entries, index["metadata"], size

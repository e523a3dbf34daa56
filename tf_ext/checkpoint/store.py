"""A store of checkpoints in a directory: whole or absent, checksummed, written by one process or by many.

    from tf_ext.checkpoint.store import Store

    store = Store("/data/checkpoints")
    store.save("step-100", {"weights": weights, "vocabulary": b"..."}, metadata={"loss": 0.25})
    with store.load("step-100") as checkpoint:
        weights = checkpoint["weights"]

A checkpoint has a name, blobs (NumPy arrays and bytes) under keys, and metadata. It becomes visible in one step, when
everything in it is on the disk. A process may be killed at any moment: the name then means the old checkpoint or the new
one. Many processes may read, write, replace and delete the same name at once; a reader keeps what it has opened.

Many ranks write one checkpoint as shards, each its own. It becomes visible with the last of them. They agree on an
*attempt*, any text that is new for every start of the job: shards of different attempts never mix, so that a restart
cannot complete what a crash left half-done.

Nothing here imports TensorFlow or Keras. The directory must lie on a file system with `flock` and atomic renames between
directories: local disks, and NFS from version 4 on.
"""

from __future__ import annotations

import os
import pathlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from tf_ext.checkpoint import _commit, _files
from tf_ext.checkpoint._garbage import sweep
from tf_ext.checkpoint._layout import Layout, checked_name, shard_file, shards_present
from tf_ext.checkpoint._reader import Checkpoint
from tf_ext.checkpoint._writer import Writer
from tf_ext.checkpoint.errors import CorruptedCheckpointError, ShardConflictError

__all__ = ["Checkpoint", "Store", "Writer"]


class Store:
    """Checkpoints in a directory. May be pickled, and used by many threads and processes at once.

    Args:
        directory: Where they lie; made if it is not there.

    Example:
        store = Store("/data/checkpoints")
        store.save("step-100", {"weights": np.zeros([3, 4], np.float32)}, metadata={"loss": 0.25})
        assert "step-100" in store and store.metadata("step-100") == {"loss": 0.25}
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._layout = Layout(pathlib.Path(directory).absolute())
        for path in (self._layout.checkpoints, self._layout.generations, self._layout.trash):
            _files.make_directory(path)

    @property
    def directory(self) -> pathlib.Path:
        """Where the checkpoints lie."""
        return self._layout.root

    def save(self, name: str, blobs: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint, in the place of an older one of that name. It is durable on return.

        Args:
            name: Letters, digits and any of ``._+=-``, at most 120.
            blobs: By key, which may be any text: arrays of any shape and dtype without references, or bytes.
            metadata: What JSON gives back as it is: dicts, lists, text, numbers, booleans, None.

        Raises:
            InvalidNameError, InvalidBlobError: Something cannot be stored; nothing was changed.
            OSError: The disk is full, say; nothing was changed.
        """
        with self.writer(name, metadata=metadata) as writer:
            for key, value in blobs.items():
                writer.put(key, value)

    def writer(
        self,
        name: str,
        *,
        shard: int = 0,
        num_shards: int = 1,
        attempt: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Writer:
        """Returns a writer of one shard of a checkpoint, to be used in `with`.

        The last shard to close makes the checkpoint visible, in the place of an older one of that name.

        Args:
            name: As for `save`.
            shard: Which shard, 0 to `num_shards` - 1.
            num_shards: How many shards there are.
            attempt: What all writers of this checkpoint agree on, new for every try, such as the launch's id; of the
                same form as a name. May be left out where there is one shard.
            metadata: As for `save`; that of all shards is merged.

        Raises:
            InvalidNameError, InvalidBlobError: A name or the metadata cannot be stored.
            ShardConflictError: `shard` is out of range, or there are several and no `attempt`.
        """
        checked_name(name)
        if not 0 <= shard < num_shards:
            raise ShardConflictError(f"expected a shard from 0 to num_shards - 1 = {num_shards - 1}, got {shard}.")
        if attempt is None:
            if num_shards > 1:
                raise ShardConflictError(
                    f"expected an `attempt` for the {num_shards} shards of checkpoint {name!r}, got None. Let all writers "
                    "agree on a text that is new for every start of the job, so that shards of two starts cannot mix."
                )
            attempt = uuid.uuid4().hex
        path = self._layout.generation(name, checked_name(attempt, "attempt")) / shard_file(shard, num_shards)

        def start(open_aside: Callable[[], BinaryIO]) -> BinaryIO:
            return self._start(path, num_shards, open_aside)

        def finish(move_in_place: Callable[[], None]) -> bool:
            return self._finish(name, attempt, path, move_in_place)

        return Writer(path, shard, metadata or {}, start, finish)

    def commit(self, name: str, attempt: str) -> None:
        """Makes an attempt visible whose shards are all there, if the last writer died before it could.

        Raises:
            IncompleteCheckpointError: Some shards are missing.
            CheckpointNotFoundError: There is no such attempt, or it was replaced or deleted since.
        """
        checked_name(name), checked_name(attempt, "attempt")
        with _files.locked(self._layout.lock):
            visible, trash = _commit.commit(self._layout, name, attempt)
        self._remove(trash)
        if not visible:
            raise _commit.explain_incomplete(self._layout, name, attempt)

    def load(self, name: str) -> Checkpoint:
        """Opens a checkpoint. Its blobs are read when they are asked for; its files are open, one for each shard.

        Raises:
            CheckpointNotFoundError: There is none; `IncompleteCheckpointError` if shards of one wait for others.
            CorruptedCheckpointError: It is not what was written.
            FormatVersionError: It was written in another version of the format.
        """
        manifest = _commit.read_manifest(self._layout, checked_name(name))
        while True:
            try:
                return Checkpoint(manifest, self._layout.generation(name, manifest.attempt))
            except FileNotFoundError as error:
                # Replaced between our reading the manifest and opening the files: then the manifest is a new one.
                again = _commit.read_manifest(self._layout, name)
                if again.attempt == manifest.attempt:
                    raise CorruptedCheckpointError(
                        f"checkpoint {name!r} is corrupted: expected the file {error.filename}, found none. "
                        "Delete this checkpoint and fall back on another one."
                    ) from error
                manifest = again

    def metadata(self, name: str) -> dict[str, Any]:
        """Returns the metadata of a checkpoint. Raises what `load` raises."""
        return _commit.read_manifest(self._layout, checked_name(name)).metadata

    def names(self) -> list[str]:
        """Returns the names of all checkpoints, sorted."""
        return self._layout.names()

    def delete(self, name: str) -> None:
        """Deletes a checkpoint, a corrupted one too.

        Raises:
            CheckpointNotFoundError: There is none.
        """
        checked_name(name)
        with _files.locked(self._layout.lock):
            trash = _commit.withdraw(self._layout, name)
        self._remove(trash)

    def keep(self, latest: int, prefix: str = "") -> list[str]:
        """Deletes all checkpoints but the latest, by the time at which they became visible.

        Args:
            latest: How many to keep.
            prefix: Consider only names that begin with it.

        Returns:
            The names of the deleted ones, the oldest first.
        """
        if latest < 0:
            raise ValueError(f"expected how many checkpoints to keep, 0 or more, got {latest}.")
        with _files.locked(self._layout.lock):
            names = [name for name in self.names() if name.startswith(prefix)]
            names.sort(key=lambda name: os.stat(self._layout.manifest(name)).st_mtime_ns)
            old = names[: max(0, len(names) - latest)]
            trash = [path for name in old for path in _commit.withdraw(self._layout, name)]
        self._remove(trash)
        return old

    def collect_garbage(self, older_than_s: float = 3600.0) -> int:
        """Removes what writers left that were killed. Never touches a visible checkpoint, or a shard with a living writer.

        Args:
            older_than_s: Seconds since something was last written to an unfinished attempt. Shards whose writers have
                finished wait that long for the others.

        Returns:
            The number of bytes freed.
        """
        with _files.locked(self._layout.lock):
            trash = sweep(self._layout, older_than_s)
        return self._remove(trash)

    def __contains__(self, name: object) -> bool:
        return self._layout.has(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __bool__(self) -> bool:
        return True  # an empty store is a store: `if store` asks whether there is one

    def __repr__(self) -> str:
        return f"Store({str(self.directory)!r})"

    def _start(self, path: pathlib.Path, num_shards: int, open_aside: Callable[[], BinaryIO]) -> BinaryIO:
        # Under the lock, so that the garbage collector sees no file whose writer has not locked it yet.
        with _files.locked(self._layout.lock):
            _files.make_directory(path.parent)
            others = shards_present(path.parent).keys() - {num_shards}
            if others:
                raise ShardConflictError(
                    f"expected {min(others)} shards as other writers of attempt {path.parent.name!r}, got {num_shards}. "
                    "Let all writers agree on their number, and take a new `attempt` when it changes."
                )
            return open_aside()

    def _finish(self, name: str, attempt: str, path: pathlib.Path, move_in_place: Callable[[], None]) -> bool:
        with _files.locked(self._layout.lock):
            move_in_place()
            _files.sync_directory(path.parent)
            visible, trash = _commit.commit(self._layout, name, attempt)
        self._remove(trash)
        return visible

    @staticmethod
    def _remove(trash: list[pathlib.Path]) -> int:
        return sum(_files.remove_tree(path) for path in trash)

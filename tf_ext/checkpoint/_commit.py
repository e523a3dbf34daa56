"""How a checkpoint becomes visible, is replaced and goes: one rename of its manifest, under the store's lock.

A crash between any two steps leaves the old checkpoint or the new one:

1. the new shards are durable before the manifest names them;
2. the old generation is marked `superseded` before it stops being visible, so that a slow writer of that generation,
   which finds all shards there and no manifest, does not take it for one that is waiting to become visible;
3. the manifest is written aside and renamed: the only moment at which something changes for readers;
4. the old generation is moved to the trash, under the lock, and removed after it. Readers have its files open.

Whatever a crash leaves of steps 1 and 4 no manifest names, and the garbage collector removes it.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from tf_ext.checkpoint import _files, _format
from tf_ext.checkpoint._format import Entry
from tf_ext.checkpoint._layout import Layout, shard_file, shards_present
from tf_ext.checkpoint._writer import read_index
from tf_ext.checkpoint.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CorruptedCheckpointError,
    FormatVersionError,
    IncompleteCheckpointError,
    ShardConflictError,
)

SUPERSEDED = "superseded"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What is known of a visible checkpoint.

    Attributes:
        name: Its name.
        attempt: What its writers agreed on; with the name it names the generation.
        shards: File name and size in bytes of each shard.
        blobs: Where each blob lies, by key.
        metadata: The metadata that its writers gave.
    """

    name: str
    attempt: str
    shards: list[tuple[str, int]]
    blobs: dict[str, Entry]
    metadata: dict[str, Any]


def read_manifest(layout: Layout, name: str) -> Manifest:
    """Reads the manifest of a visible checkpoint.

    Raises:
        CheckpointNotFoundError: There is none; `IncompleteCheckpointError` where an attempt has left shards.
        CorruptedCheckpointError: It is not what was written.
        FormatVersionError: It was written in another version of the format.
    """
    path = layout.manifest(name)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _not_found(layout, name) from None
    document = _format.unframe(_format.MANIFEST, data, str(path))
    return Manifest(
        name=document["name"],
        attempt=document["attempt"],
        shards=[(file, size) for file, size in document["shards"]],
        blobs={key: Entry.from_json(record) for key, record in document["blobs"].items()},
        metadata=document["metadata"],
    )


def commit(layout: Layout, name: str, attempt: str) -> tuple[bool, list[pathlib.Path]]:
    """Makes an attempt visible if all of its shards are there; the caller holds the lock.

    Returns:
        Whether the attempt is visible now, and what the caller is to remove when it has left the lock.
    """
    generation = layout.generation(name, attempt)
    old = _visible_attempt(layout, name)
    if old == attempt:
        return True, []
    count = complete_count(generation)
    if count is None or (generation / SUPERSEDED).exists():
        return False, []
    manifest = _merge(generation, name, attempt, count)
    _mark_superseded(layout, name, old)
    blobs = {key: vars(entry) for key, entry in manifest.blobs.items()}
    _files.replace_file(layout.manifest(name), _format.frame(_format.MANIFEST, {**vars(manifest), "blobs": blobs}))
    return True, _retire(layout, name, old)


def withdraw(layout: Layout, name: str) -> list[pathlib.Path]:
    """Makes a checkpoint invisible; the caller holds the lock, and removes what is returned when it has left it.

    Raises:
        CheckpointNotFoundError: There is none.
    """
    path = layout.manifest(name)
    if not path.exists():
        raise _not_found(layout, name)
    old = _visible_attempt(layout, name)
    _mark_superseded(layout, name, old)
    path.unlink()
    _files.sync_directory(path.parent)
    return _retire(layout, name, old)


def complete_count(generation: pathlib.Path) -> int | None:
    """Returns the number of shards of an attempt if all of them are finished, else None."""
    for count, shards in shards_present(generation).items():
        if len(shards) == count:
            return count
    return None


def explain_incomplete(layout: Layout, name: str, attempt: str) -> CheckpointError:
    """Makes the error for an attempt that cannot become visible."""
    generation = layout.generation(name, attempt)
    if (generation / SUPERSEDED).exists() or not generation.exists():
        return CheckpointNotFoundError(
            f"expected shards of checkpoint {name!r}, attempt {attempt!r}, in {layout.root}, found none that wait to become "
            "visible: they were never written, or have been replaced or deleted since. Write it anew."
        )
    found = "; ".join(
        f"{len(shards)} of {count}, missing {_some_missing(shards, count)}"
        for count, shards in shards_present(generation).items()
    )
    return IncompleteCheckpointError(
        f"expected all shards of checkpoint {name!r}, attempt {attempt!r}, found {found or 'none that is finished'}. "
        "Wait for its writers, or write it anew with a new `attempt` if one of them has died."
    )


def _merge(generation: pathlib.Path, name: str, attempt: str, count: int) -> Manifest:
    shards: list[tuple[str, int]] = []
    blobs: dict[str, Entry] = {}
    metadata: dict[str, Any] = {}
    for shard in range(count):
        file = shard_file(shard, count)
        entries, more, size = read_index(generation / file)
        shards.append((file, size))
        for key in entries.keys() & blobs.keys():
            raise ShardConflictError(
                f"expected each key in one shard of checkpoint {name!r}, got {key!r} in shards {blobs[key].shard} and "
                f"{shard}. Put the shard's number into the key."
            )
        for key in more.keys() & metadata.keys():
            if not _format.same_metadata(more[key], metadata[key]):
                raise ShardConflictError(
                    f"expected the same metadata from all shards of checkpoint {name!r}, got {key!r} as {metadata[key]!r} "
                    f"and, from shard {shard}, as {more[key]!r}. Let one shard give it."
                )
        blobs.update(entries)
        metadata.update(more)
    return Manifest(name, attempt, shards, blobs, metadata)


def _visible_attempt(layout: Layout, name: str) -> str | None:
    # A manifest that cannot be read may be replaced and deleted; its data is then found by the garbage collector.
    try:
        return read_manifest(layout, name).attempt
    except (CheckpointNotFoundError, CorruptedCheckpointError, FormatVersionError):
        return None


def _mark_superseded(layout: Layout, name: str, attempt: str | None) -> None:
    if attempt is not None and layout.generation(name, attempt).exists():
        # No fsync: it need outlive processes, and none outlives a power cut.
        (layout.generation(name, attempt) / SUPERSEDED).touch()


def _retire(layout: Layout, name: str, attempt: str | None) -> list[pathlib.Path]:
    if attempt is None:
        return []
    moved = _files.move_aside(layout.generation(name, attempt), layout.trash)
    return [moved] if moved is not None else []


def _not_found(layout: Layout, name: str) -> CheckpointNotFoundError:
    pending = [attempt for attempt in layout.attempts(name) if shards_present(layout.generation(name, attempt))]
    for attempt in pending:
        error = explain_incomplete(layout, name, attempt)
        if isinstance(error, IncompleteCheckpointError):
            return error
    names = layout.names()
    return CheckpointNotFoundError(
        f"expected a checkpoint {name!r} in {layout.root}, found "
        f"{', '.join(map(repr, names[:8])) + (', ...' if len(names) > 8 else '') if names else 'none at all'}. "
        "See `Store.names()`."
    )


def _some_missing(shards: set[int], count: int) -> str:
    missing = [str(shard) for shard in range(count) if shard not in shards]
    return ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "") or "none, not committed yet"

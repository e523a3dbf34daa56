"""Finds what no manifest names: generations of writers that died, and what a crash left of a removal."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time

from tf_ext.checkpoint import _files
from tf_ext.checkpoint._commit import SUPERSEDED, read_manifest
from tf_ext.checkpoint._layout import Layout
from tf_ext.checkpoint.errors import CheckpointNotFoundError, CorruptedCheckpointError, FormatVersionError


def sweep(layout: Layout, older_than_s: float) -> list[pathlib.Path]:
    """Moves garbage to the trash; the caller holds the lock, and removes what is returned when it has left it.

    Args:
        layout: The store's paths.
        older_than_s: Seconds since something was last written to an attempt, below which its writers may still come.
    """
    for aside in layout.checkpoints.glob(".*.tmp"):
        aside.unlink(missing_ok=True)  # manifests are written under the lock, which we hold: its writer is dead
    kept, unreadable = _named(layout)
    for generation in sorted(layout.generations.iterdir()):
        name = generation.name.partition("@")[0]
        # A manifest that cannot be read may name any generation of its checkpoint: better keep all than lose the data.
        if generation.name in kept or name in unreadable:
            _remove_dead_writers(generation)
            continue
        if (generation / SUPERSEDED).exists() or _is_abandoned(generation, older_than_s):
            _files.move_aside(generation, layout.trash)
    return list(layout.trash.iterdir())


def _named(layout: Layout) -> tuple[set[str], set[str]]:
    """The generations that manifests name, and the checkpoints whose manifest cannot be read."""
    kept, unreadable = set(), set()
    for name in layout.names():
        try:
            kept.add(layout.generation(name, read_manifest(layout, name).attempt).name)
        except (CorruptedCheckpointError, FormatVersionError):
            unreadable.add(name)
        except CheckpointNotFoundError:  # removed by hand meanwhile
            continue
    return kept, unreadable


def _remove_dead_writers(generation: pathlib.Path) -> None:
    """Removes what a writer left that died, and whose shard another one wrote."""
    for aside in generation.glob(".*.tmp"):
        if not _files.is_held(aside):
            aside.unlink(missing_ok=True)


def _is_abandoned(generation: pathlib.Path, older_than_s: float) -> bool:
    newest = 0.0
    for path in [generation, *generation.iterdir()]:
        with contextlib.suppress(FileNotFoundError):
            newest = max(newest, os.stat(path).st_mtime)
        if path.name.endswith(".tmp") and _files.is_held(path):
            return False  # its writer lives, however long it has been silent
    return time.time() - newest >= older_than_s

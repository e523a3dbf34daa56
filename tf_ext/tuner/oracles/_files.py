"""Writing a file so that a reader, and the next process after a kill, finds the old content or the new."""

from __future__ import annotations

import contextlib
import os
import pathlib

__all__ = ["replace_text", "sync_directory"]


def replace_text(path: pathlib.Path, text: str, *, durable: bool) -> None:
    """Puts `text` in the place of a file in one step.

    Args:
        path: The file; its directory is made if it is not there.
        text: Its new content.
        durable: Whether it must survive a power failure, which costs a few milliseconds. A killed process loses
            nothing either way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # One name for each process: two that write the same file replace it in turn, none reads half of the other's.
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(path: pathlib.Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

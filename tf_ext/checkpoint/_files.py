"""Operations of the file system that survive a crash: a lock between processes, durable writes and renames."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Iterator


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Holds a lock that excludes all other threads and processes; the system frees it when its holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # A child that was forked meanwhile has the descriptor too: closing ours alone would leave it locked.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def is_held(path: pathlib.Path) -> bool:
    """Tells whether a living process holds a lock on the file `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR)  # NFS gives exclusive locks only to who may write
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def sync_directory(path: pathlib.Path) -> None:
    """Makes the names in a directory durable: a file's own fsync does not cover its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: pathlib.Path) -> None:
    """Makes a directory, and its parents, durably; one that exists is left as it is."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def replace_file(path: pathlib.Path, data: bytes) -> None:
    """Writes a file aside and moves it to `path`: who looks sees the old bytes or the new ones, after a crash too.

    The time of its last change is taken from the clock in nanoseconds, since the system's own is some milliseconds coarse.
    """
    aside = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with open(aside, "xb") as file:
            file.write(data)
            file.flush()
            now = time.time_ns()
            os.utime(file.fileno(), ns=(now, now))
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def move_aside(path: pathlib.Path, trash: pathlib.Path) -> pathlib.Path | None:
    """Moves a directory out of sight, in one step; returns where it lies now, None if it was not there."""
    target = trash / uuid.uuid4().hex
    try:
        os.rename(path, target)
    except FileNotFoundError:
        return None
    return target


def remove_tree(path: pathlib.Path | None) -> int:
    """Removes what `move_aside` moved; returns the bytes that were in it. Several may remove the same tree at once."""
    if path is None:
        return 0
    freed = 0
    for folder, _, files in os.walk(path):  # passes over what vanishes meanwhile
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                freed += os.lstat(os.path.join(folder, file)).st_size
    shutil.rmtree(path, ignore_errors=True)
    return freed

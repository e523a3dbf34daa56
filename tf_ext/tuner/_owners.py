"""Who is at work on a plan: a locked file for each process, which the system unlocks when the process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import uuid
from typing import IO

__all__ = ["Owner", "alive", "others"]

_FOLDER = "owners"


class Owner:
    """This process at a plan, for as long as it is open."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.id = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder = pathlib.Path(directory) / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / self.id
        aside = folder / f".{self.id}"  # locked before anyone can see it, who would take it for that of a dead process
        self._file: IO[bytes] | None = aside.open("wb")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        aside.rename(self._path)

    def close(self) -> None:
        """Says that it has gone."""
        if self._file is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            self._file.close()
            self._file = None


def alive(directory: str | os.PathLike[str], owner: str) -> bool:
    """Whether the process of that name is still at the plan. What a dead one left is removed."""
    path = pathlib.Path(directory) / _FOLDER / owner
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return False


def others(directory: str | os.PathLike[str], me: Owner) -> list[str]:
    """The other processes at the plan."""
    folder = pathlib.Path(directory) / _FOLDER
    names = [entry.name for entry in folder.iterdir() if entry.name[0] != "."] if folder.exists() else []
    return [name for name in names if name != me.id and alive(directory, name)]

"""The search plans under a log directory."""

from __future__ import annotations

import os
import pathlib
import threading
import time

__all__ = ["PlanFinder"]

_FILE = "plan.sqlite"  # as `tf_ext.tuner._schema.FILE`; TensorBoard starts without importing the tuner
_DEPTH = 8
_MOST_DIRECTORIES = 20_000
_FRESH_SECONDS = 10.0


class PlanFinder:
    """Finds plans, and gives out only what it found: a name from outside is never made a path.

    Args:
        logdir: Where to look; one that is not a local directory has no plans.
    """

    def __init__(self, logdir: str | None) -> None:
        local = bool(logdir) and "://" not in str(logdir)
        self._root = pathlib.Path(str(logdir)).expanduser() if local else None
        self._lock = threading.Lock()
        self._found: dict[str, pathlib.Path] = {}
        self._looked: float | None = None

    def plans(self) -> dict[str, pathlib.Path]:
        """The directories of the plans by their paths from the log directory; seen again every ten seconds."""
        with self._lock:
            now = time.monotonic()
            if self._looked is None or now - self._looked > _FRESH_SECONDS:
                self._found = {} if self._root is None else _search(self._root)
                self._looked = now
            return dict(self._found)

    def directory(self, name: str) -> pathlib.Path | None:
        """The directory of a plan, or None if none of that name was found."""
        return self.plans().get(name)


def _search(root: pathlib.Path) -> dict[str, pathlib.Path]:
    found = {}
    # Links are not followed, neither to directories nor to files: they could lead out of the log directory.
    for seen, (path, directories, files) in enumerate(os.walk(root)):
        here = pathlib.Path(path)
        relative = here.relative_to(root)
        if _FILE in files and not (here / _FILE).is_symlink():
            found[relative.as_posix()] = here
            directories.clear()  # its checkpoints may be many
        if seen >= _MOST_DIRECTORIES:
            break
        if len(relative.parts) >= _DEPTH:
            directories.clear()
        directories[:] = sorted(name for name in directories if not name.startswith("."))
    return found

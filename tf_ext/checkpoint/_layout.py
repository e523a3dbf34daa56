"""Where things lie in a store's directory, and which names may be parts of paths.

    lock                                     held by whoever changes what is visible
    checkpoints/NAME.json                    the manifest; a checkpoint is there if and only if this file is
    generations/NAME@ATTEMPT/                the data of one attempt to write it
        shard-00000-of-00002                 a finished shard
        .shard-00001-of-00002.<random>.tmp   one that is being written, locked by its writer
        superseded                           was visible once: must not become visible again
    trash/<random>/                          moved out of sight, being removed

No name has an `@` in it, so that a generation's directory tells its name and its attempt.
"""

from __future__ import annotations

import os
import pathlib
import re

from tf_ext.checkpoint.errors import InvalidNameError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]*")
_SHARD = re.compile(r"shard-(\d{5,})-of-(\d{5,})")
LONGEST_NAME = 120


class Layout:
    """Paths of a store."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.lock = root / "lock"
        self.checkpoints = root / "checkpoints"
        self.generations = root / "generations"
        self.trash = root / "trash"

    def manifest(self, name: str) -> pathlib.Path:
        """The manifest of a checkpoint."""
        return self.checkpoints / f"{name}.json"

    def generation(self, name: str, attempt: str) -> pathlib.Path:
        """The data of an attempt to write a checkpoint."""
        return self.generations / f"{name}@{attempt}"

    def names(self) -> list[str]:
        """The names of all visible checkpoints, sorted."""
        found = (path.name.removesuffix(".json") for path in self.checkpoints.glob("*.json"))
        return sorted(name for name in found if _NAME.fullmatch(name))

    def has(self, name: object) -> bool:
        """Whether a checkpoint is visible."""
        return isinstance(name, str) and bool(_NAME.fullmatch(name)) and self.manifest(name).exists()

    def attempts(self, name: str) -> list[str]:
        """The attempts to write a checkpoint that have left data, visible or not, sorted."""
        return sorted(path.name.removeprefix(f"{name}@") for path in self.generations.glob(f"{name}@*"))


def checked_name(name: object, what: str = "name") -> str:
    """Returns `name` if it may be part of a file name on any system.

    Raises:
        InvalidNameError: It may not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InvalidNameError(
            f"expected the {what} to be 1 to {LONGEST_NAME} letters, digits and any of ._+=-, the first a letter, a digit "
            f"or _, got {name!r}. Put what does not fit into the metadata."
        )
    return name


def shard_file(shard: int, num_shards: int) -> str:
    """The file name of a shard."""
    return f"shard-{shard:05d}-of-{num_shards:05d}"


def shards_present(generation: pathlib.Path) -> dict[int, set[int]]:
    """The finished shards of an attempt, by the number of shards that their writers expected."""
    present: dict[int, set[int]] = {}
    try:
        files = os.listdir(generation)
    except FileNotFoundError:  # replaced or deleted since its name was read: readers look without the lock
        return present
    for file in files:
        match = _SHARD.fullmatch(file)
        if match:
            present.setdefault(int(match[2]), set()).add(int(match[1]))
    return present

"""Finds the installed TensorFlow without importing it, which takes seconds and writes to the screen.

Standard library only, and no import from this package: CMake and pip's metadata run this file by its path, before
anything is installed.
``python _installed.py`` prints the folder and the version as one line of JSON, or ``null``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import pathlib
from typing import NamedTuple

# The distributions that bring the module `tensorflow`, the usual ones first.
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-cpu-aws", "tf-nightly")


class InstalledTensorFlow(NamedTuple):
    """A TensorFlow that Python would import.

    Attributes:
        root: the folder of the package ``tensorflow``.
        version: its version, such as ``"2.21.0"``.
        distribution: the name under which pip knows it, such as ``"tensorflow-cpu"``.
    """

    root: pathlib.Path
    version: str
    distribution: str


def minor(version: str) -> str:
    """Returns the part of a version that an operator library is tied to: ``"2.21"`` of ``"2.21.0"``."""
    return ".".join(version.split(".")[:2])


def _owner(root: pathlib.Path) -> importlib.metadata.Distribution | None:
    """The distribution whose files include the package in `root`."""
    beside: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions(path=[str(root.parent)]):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        beside.setdefault(name, distribution)
    for name in _DISTRIBUTIONS:
        if name in beside:
            return beside[name]
    for distribution in beside.values():
        if "tensorflow" in (distribution.read_text("top_level.txt") or "").split():
            return distribution
    return None


def find_tensorflow() -> InstalledTensorFlow | None:
    """Returns the TensorFlow that ``import tensorflow`` would find, or None where there is none."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except (ImportError, ValueError):
        return None
    # A namespace package is what an uninstalled TensorFlow leaves behind: a folder without __init__.py.
    if spec is None or spec.origin is None:
        return None
    root = pathlib.Path(spec.origin).parent
    owner = _owner(root)
    if owner is None:
        return None
    return InstalledTensorFlow(root, owner.version, owner.metadata["Name"].lower().replace("_", "-"))


if __name__ == "__main__":
    _found = find_tensorflow()
    print(json.dumps(_found and {"root": str(_found.root), "version": _found.version, "name": _found.distribution}))

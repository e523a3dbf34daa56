"""Tells pip which TensorFlow a build of this project needs, and which one the wheel is then for.

The operator library fits one minor version of TensorFlow only, so the extras ``cpu`` and ``gpu`` are pinned to the
version that the library is built for. That is, in this order:

1. the version named by the environment variable ``TF_EXT_TENSORFLOW`` (for example ``2.20``);
2. the one installed where the build runs (``pip install --no-build-isolation``);
3. ``DEFAULT``.

scikit-build-core calls the two functions below (see ``[[tool.dynamic-metadata]]`` in pyproject.toml).
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

DEFAULT = "2.21"
_INSTALLED = pathlib.Path(__file__).resolve().parent.parent / "tf_ext" / "ops" / "_installed.py"


def _installed_version() -> str | None:
    spec = importlib.util.spec_from_file_location("_tf_ext_installed", _INSTALLED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.find_tensorflow()
    return None if found is None else str(found.version)


def target() -> str:
    """Returns the minor version to build for, such as ``"2.21"``.

    Raises:
        ValueError: ``TF_EXT_TENSORFLOW`` does not hold a version such as ``2.21``.
    """
    version = os.environ.get("TF_EXT_TENSORFLOW") or _installed_version() or DEFAULT
    match = re.match(r"\d+\.\d+", version)
    if match is None:
        raise ValueError(f"TF_EXT_TENSORFLOW must be a TensorFlow version such as {DEFAULT!r}, but it is {version!r}")
    return match.group()


def get_requires_for_dynamic_metadata(settings: Mapping[str, Any]) -> list[str]:
    """Returns the requirements of an isolated build: the headers and libraries of one TensorFlow."""
    del settings
    # With a TensorFlow at hand (no build isolation) nothing is to be added, least of all its twin `tensorflow-cpu`.
    if _installed_version() is not None:
        return []
    return [f"tensorflow-cpu=={target()}.*"]


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the extras that name TensorFlow, pinned to the version that the wheel is built for."""
    del settings, project
    major, minor = target().split(".")
    pin = f">={major}.{minor},<{major}.{int(minor) + 1}"
    return {"optional-dependencies": {"cpu": [f"tensorflow-cpu{pin}"], "gpu": [f"tensorflow[and-cuda]{pin}"]}}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """Says that the extras may differ between the source distribution and a wheel built from it."""
    del settings
    return {"optional-dependencies": True}

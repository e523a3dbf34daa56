"""Skipping a test for want of an optional part, unless all of them are required."""

from __future__ import annotations

import os

import pytest

from tf_ext.cli.parts import PARTS

REQUIRE_ALL = "TF_EXT_REQUIRE_ALL"
# No install command brings a graphics card.
_MAY_BE_ABSENT = frozenset({"gpu"})


def require(name: str) -> None:
    """Skips the calling test where an optional part is absent.

    With ``TF_EXT_REQUIRE_ALL=1`` it fails instead, so that a test lane that installed all parts cannot pass by
    skipping:

        def test_agrees_with_torch():
            tf_ext.testing.require("torch")
            ...

    Args:
        name: one of the parts that ``tf-ext doctor`` lists, such as ``"torch"``.

    Raises:
        ValueError: there is no such part.
    """
    for part in PARTS:
        if part.name == name:
            break
    else:
        raise ValueError(f"expected one of {', '.join(part.name for part in PARTS)}, but got {name!r}")
    if part.present():
        return
    reason = f"{name} is absent; to get it: {part.install}"
    if os.environ.get(REQUIRE_ALL) == "1" and name not in _MAY_BE_ABSENT:
        pytest.fail(f"{reason} (${REQUIRE_ALL} is 1: nothing may be skipped)")
    pytest.skip(reason)

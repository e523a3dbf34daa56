"""Compares a model's variables with those of a state, before anything is changed.

Keras numbers the layers that were given no name, over the whole process: a second model of the same making has
``dense_1/kernel`` where the first has ``dense/kernel``. Two paths are the same if they differ in such numbers only, and
if a larger number stands for a larger number throughout, so that ``block_1`` and ``block_2`` cannot change places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tf_ext.checkpoint.errors import StateMismatchError

# Optimizers join the path of the variable that they keep a value for with underscores: a number may end there, too.
_NUMBER = re.compile(r"_(\d+)(?=[_/]|$)")


def check_variables(
    group: str, variables: Sequence[Any], paths: Sequence[str], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]
) -> None:
    """Compares variables with what a state holds.

    Args:
        group: ``"model"``, ``"optimizer"`` or ``"metrics"``, for messages.
        variables: Keras variables.
        paths: Paths of the variables whose values were captured.
        shapes: Their shapes.
        dtypes: Their dtypes.

    Raises:
        StateMismatchError: Number, path, shape or dtype differ; the message names the first variable that does.
    """
    for position, (variable, path, shape, dtype) in enumerate(zip(variables, paths, shapes, dtypes, strict=False)):
        expected = (_stem(path, group), tuple(shape), dtype)
        got = (_stem(variable.path, group), tuple(variable.shape), str(variable.dtype))
        if expected != got:
            raise StateMismatchError(
                f"{group} variable {position}: expected {path!r} with shape {tuple(shape)} and dtype {dtype}, got "
                f"{variable.path!r} with shape {got[1]} and dtype {got[2]}. Restore into a model of the same making."
            )
    if len(variables) != len(paths):
        extra = [variable.path for variable in variables[len(paths) :]] or list(paths[len(variables) :])
        raise StateMismatchError(
            f"expected {len(paths)} {group} variables, got {len(variables)}; the first without a partner is {extra[0]!r}. "
            "Restore into a model of the same making."
        )
    if group == "model":  # the optimizer's follow the order of the model's
        _check_numbers(group, [variable.path for variable in variables], paths)


def _stem(path: str, group: str) -> str:
    # One optimizer inside another has the other's name before its own if `fit` built it, and not if it was built by hand.
    parts = path.split("/")[-2:] if group == "optimizer" else [path]
    return _NUMBER.sub("", "/".join(parts))


def _numbers(path: str) -> list[tuple[str, int]]:
    """The parts of a path without their number, each with it: ``[("dense", 1), ("kernel", 0)]``."""
    found = []
    for part in path.split("/"):
        match = re.fullmatch(r"(.*?)(?:_(\d+))?", part)
        assert match is not None  # it matches any text without line breaks
        found.append((match[1], int(match[2] or 0)))
    return found


def _check_numbers(group: str, paths: Sequence[str], expected: Sequence[str]) -> None:
    partner: dict[tuple[str, int], tuple[int, str, str]] = {}
    for path, other in zip(paths, expected, strict=True):
        for (stem, number), (_, captured) in zip(_numbers(path), _numbers(other), strict=True):
            first = partner.setdefault((stem, captured), (number, path, other))
            if first[0] != number:
                raise _in_other_order(group, (path, other), first[1:])
    for (stem, captured), (number, path, other) in sorted(partner.items()):
        for (stem2, captured2), (number2, path2, other2) in partner.items():
            if stem == stem2 and captured < captured2 and number >= number2:
                raise _in_other_order(group, (path, other), (path2, other2))


def _in_other_order(group: str, one: tuple[str, str], two: tuple[str, str]) -> StateMismatchError:
    return StateMismatchError(
        f"expected the {group} variables {one[1]!r} and {two[1]!r} in the order in which they were captured, got "
        f"{one[0]!r} and {two[0]!r} in their places. Restore into a model of the same making."
    )

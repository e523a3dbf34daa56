"""Checks of the arguments of oracles; each says what was expected, what came, and what to do."""

from __future__ import annotations

import math
from typing import Any

import keras_tuner

__all__ = ["check_fraction", "check_objective", "check_whole"]


def check_objective(objective: Any) -> None:
    """Refuses objectives whose direction is neither "min" nor "max"; Keras Tuner would minimize them silently.

    Raises:
        ValueError: The direction is another one.
    """
    for each in objective if isinstance(objective, list) else [objective]:
        if isinstance(each, keras_tuner.Objective) and each.direction not in ("min", "max"):
            raise ValueError(
                f"expected the direction 'min' or 'max' of objective {each.name!r}, got {each.direction!r}. "
                f"Write keras_tuner.Objective({each.name!r}, 'min')."
            )


def check_whole(name: str, value: Any, at_least: int) -> None:
    """Refuses what is not a whole number, or too small.

    Raises:
        ValueError: It is.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"expected `{name}` to be a whole number, at least {at_least}, got {value!r}.")


def check_fraction(name: str, value: Any, low: float, high: float) -> None:
    """Refuses what does not lie in [low, high].

    Raises:
        ValueError: It does not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected `{name}` to be a number from {low} to {high}, got {value!r}.")
    if not low <= value <= high:
        raise ValueError(f"expected `{name}` from {low} to {high}, got {value!r}.")

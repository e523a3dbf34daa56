"""How population-based training changes one hyper-parameter while training goes on."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from keras_tuner.engine.hyperparameters import Boolean, Choice, Fixed, Float, Int

from tf_ext.tuner.segments import Scalar, Sequence

__all__ = ["changeable", "changed", "sequence_of"]


def changeable(space: Iterable[Any], names: frozenset[str] | None) -> list[Any]:
    """The hyper-parameters that may change while a trial is trained.

    Args:
        space: All hyper-parameters.
        names: Those that the user allows to change; None: all.

    Returns:
        Them, without those that are fixed, that others depend on, or that are sequences already.
    """
    space = list(space)
    parents = {condition.name for hp in space for condition in hp.conditions}
    return [
        hp
        for hp in space
        if not isinstance(hp, Fixed)
        and hp.name not in parents
        and (names is None or hp.name in names)
        and not (isinstance(hp, Choice) and any(Sequence.is_text(value) for value in hp.values))
    ]


def sequence_of(hp: Any, value: Scalar) -> Sequence:
    """A value as it stands in a trial, plain or the text of a sequence."""
    # A choice of texts holds its plain values as they are; all else holds text only where a sequence stands.
    if isinstance(value, str) and not (isinstance(hp, Choice) and value in hp.values):
        return Sequence.parse(value)
    return Sequence.of([(value, 0)])


def changed(
    hp: Any, value: Scalar, epoch: int, chance: random.Random, factors: tuple[float, ...], resample: float
) -> Scalar:
    """Appends a new value that begins at an epoch.

    Args:
        hp: The hyper-parameter.
        value: Its value in the trial, plain or the text of a sequence.
        epoch: When the new one begins, after all that the sequence has.
        chance: What the new one depends on.
        factors: One of them multiplies a number.
        resample: How likely the new value is drawn afresh.

    Returns:
        The text of the sequence; the plain value if nothing changed.
    """
    before = sequence_of(hp, value)
    now = before.values[-1]
    new = _drawn(hp, chance) if chance.random() < resample else _near(hp, now, chance, factors)
    after = Sequence.of([*zip(before.values, before.starts, strict=True), (new, epoch)])
    return str(after) if len(after.values) > 1 else after.values[0]


def _drawn(hp: Any, chance: random.Random) -> Scalar:
    drawn: Scalar = hp.random_sample(chance.randrange(1 << 30))
    return drawn


def _near(hp: Any, now: Any, chance: random.Random, factors: tuple[float, ...]) -> Scalar:
    if isinstance(hp, Float | Int):
        return _scaled(hp, now, chance.choice(factors))
    if isinstance(hp, Boolean) or not hp.ordered:
        return _drawn(hp, chance)
    values = sorted(hp.values)
    position = values.index(now) + chance.choice((-1, 1))
    neighbour: Scalar = values[min(max(position, 0), len(values) - 1)]
    return neighbour


def _scaled(hp: Any, now: Any, factor: float) -> Scalar:
    """`now` times `factor`, moved to what the space allows, but not back to `now` unless nothing lies that way."""
    wanted = min(max(now * factor, hp.min_value), hp.max_value)
    kind = int if isinstance(hp, Int) else float
    if hp.sampling != "linear" and hp.step is not None:
        # These are few, each a multiple of the one before.
        values = sorted(kind(value) for value in hp.values)
        nearest = min(values, key=lambda value: (abs(value - wanted), value))
        further = [value for value in values if (value > now if wanted > now else value < now)]
        if nearest == now and wanted != now and further:
            nearest = further[0] if wanted > now else further[-1]
        return nearest
    step = hp.step or (1 if kind is int else None)
    if step is None:
        return float(wanted)
    last = int((hp.max_value - hp.min_value) // step)
    before, after = ((value - hp.min_value) / step for value in (now, wanted))
    index = round(after)
    if index == round(before) and wanted != now:
        index += 1 if wanted > now else -1
    return kind(hp.min_value + min(max(index, 0), last) * step)

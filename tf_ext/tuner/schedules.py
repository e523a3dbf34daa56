"""What a build function calls: hyper-parameters that are sequences over time, and the common schedules."""

from __future__ import annotations

import collections.abc
import contextlib
import contextvars
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tf_ext.tuner.errors import InvalidSequenceError
from tf_ext.tuner.segments import Scalar, Sequence

__all__ = ["Use", "cosine", "exponential", "multi_step", "piecewise", "recording", "sequence", "step", "warmup"]

Pieces = Sequence | str | Iterable[tuple[Scalar, int]] | Scalar
Apply = Callable[[Any, Any], None]

_MOST_CANDIDATES = 10_000


@dataclasses.dataclass(frozen=True)
class Use:
    """That a build function asked for a sequence, and how its changes reach the model.

    Attributes:
        name: Full name of the hyper-parameter.
        applies_to: As `sequence` takes it.
    """

    name: str
    applies_to: str | Apply | None


_uses: contextvars.ContextVar[list[Use] | None] = contextvars.ContextVar("uses", default=None)


@contextlib.contextmanager
def recording() -> Iterator[list[Use]]:
    """Collects the sequences that a build function asks for meanwhile."""
    uses: list[Use] = []
    token = _uses.set(uses)
    try:
        yield uses
    finally:
        _uses.reset(token)


def sequence(
    hp: Any,
    name: str,
    values: Iterable[Pieces],
    *,
    default: Pieces | None = None,
    applies_to: str | Apply | None = None,
    parent_name: str | None = None,
    parent_values: Any = None,
) -> Any:
    """Asks for a hyper-parameter whose value changes during the training, like `hp.Choice` for one that does not.

    The tuner calls the build function with the value of the stage that is to be trained, so that it may be used like that
    of any hyper-parameter. At the epoch at which the value changes:

    - `learning_rate`: the optimizer's variable is assigned;
    - `batch_size`: the data are batched anew; the build function need not use the value;
    - settings of the optimizer, such as `momentum`, `weight_decay` or `beta_1`: set, and the train function made anew;
    - all others, such as a dropout rate, an augmentation level or the name of the optimizer: the model is built anew
      with the new value and takes over all variables, those of the optimizer where they have the same names.

    The first three go by the name, or by `applies_to`, and only where the built model has the very value (a build function
    may have scaled it); otherwise the model is built anew.

    Args:
        hp: The `keras_tuner.HyperParameters` that the build function got.
        name: Name of the hyper-parameter.
        values: The candidates, each a `Sequence`, a text such as ``"0.1@0|0.01@40"``, pairs (value, epoch at which it
            begins), or a value that stays.
        default: One of the candidates, the first if left out.
        applies_to: ``"learning_rate"``, ``"batch_size"``, the name of a setting of the optimizer, ``"model"`` (build it
            anew), ``"data"`` (the data set is made anew with the value, see `tuner.data.dataset_fn`), or a function
            ``apply(model, value)`` that makes the change; after it the train function is made anew.
        parent_name: As for `hp.Choice`.
        parent_values: As for `hp.Choice`.

    Returns:
        The value during the stage to be built: the first of the sequence where a model is built to start with.

    Raises:
        InvalidSequenceError: A candidate contradicts itself.

    Example:
        def build(hp):
            rate = tuner.sequence(hp, "learning_rate", ["0.1@0|0.01@40", "0.1@0|0.01@60|0.001@80"])
            model = make_model()
            model.compile(keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy")
            return model

    Source: Hippo, section 3.1.
    """
    texts = _texts(name, values)
    chosen = None if default is None else str(_sequence(default))
    if chosen is not None and chosen not in texts:
        raise InvalidSequenceError(f"expected the default of {name!r} among its values {texts}, got {chosen!r}.")
    value = hp.Choice(name, texts, default=chosen, ordered=False, parent_name=parent_name, parent_values=parent_values)
    uses = _uses.get()
    if uses is not None:
        full = hp._get_name(name) if hasattr(hp, "_get_name") else name
        uses.append(Use(full, applies_to))
    return Sequence.parse(value).at(0) if Sequence.is_text(value) else value


def piecewise(
    hp: Any,
    name: str,
    *,
    values: Iterable[Scalar | Iterable[Scalar]],
    boundaries: Iterable[int | Iterable[int]],
    applies_to: str | Apply | None = None,
) -> Any:
    """Asks for a piecewise constant hyper-parameter, all combinations of candidates for its pieces.

    Args:
        hp: The `keras_tuner.HyperParameters` that the build function got.
        name: Name of the hyper-parameter.
        values: For each piece, a value or its candidates.
        boundaries: For each change, the epoch or its candidates; one less than `values`.
        applies_to: As for `sequence`.

    Returns:
        As `sequence`.

    Raises:
        InvalidSequenceError: The numbers do not match, no combination has rising boundaries, or there are more than
            10,000 combinations.

    Example:
        batch = tuner.piecewise(hp, "batch_size", values=[128, [256, 512]], boundaries=[[30, 60]])
    """
    pieces = [_candidates(v) for v in values]
    changes = [_candidates(b) for b in boundaries]
    if len(changes) != len(pieces) - 1:
        raise InvalidSequenceError(
            f"expected one boundary less than values for {name!r}, got {len(pieces)} values and {len(changes)} boundaries."
        )
    count = math.prod(len(c) for c in [*pieces, *changes])
    if count > _MOST_CANDIDATES:
        raise InvalidSequenceError(
            f"expected at most {_MOST_CANDIDATES} combinations for {name!r}, got {count}. Give fewer candidates, or list "
            "the sequences with tuner.sequence()."
        )
    rising = [b for b in itertools.product(*changes) if all(x < y for x, y in itertools.pairwise((0, *b)))]
    if not rising:
        raise InvalidSequenceError(
            f"expected boundaries of {name!r} that rise from above 0, got {changes}: no combination of them does."
        )
    # Values outside, boundaries inside: neighbours in a grid share the longest prefixes.
    combinations = (
        zip(v, (0, *b), strict=True) for v in itertools.product(*pieces) for b in sorted(rising, reverse=True)
    )
    return sequence(hp, name, combinations, applies_to=applies_to)


def step(initial: float, factor: float, every: int, epochs: int) -> Sequence:
    """`initial`, multiplied by `factor` after each `every` epochs, for `epochs` epochs.

    Example:
        >>> step(0.1, 0.5, every=2, epochs=6)
        Sequence('0.1@0|0.05@2|0.025@4|@6')
    """
    _positive(every=every, epochs=epochs)
    return Sequence.of([(initial * factor**k, k * every) for k in range(math.ceil(epochs / every))], end=epochs)


def multi_step(initial: float, factor: float, boundaries: Iterable[int], epochs: int | None = None) -> Sequence:
    """`initial`, multiplied by `factor` at each boundary.

    Example:
        >>> multi_step(0.5, 0.5, [30, 60])
        Sequence('0.5@0|0.25@30|0.125@60')
    """
    return Sequence.of([(initial * factor**k, start) for k, start in enumerate([0, *boundaries])], end=epochs)


def exponential(initial: float, factor: float, epochs: int, every: int = 1) -> Sequence:
    """`initial` times `factor` to the number of epochs that are done, kept for `every` epochs, for `epochs` epochs."""
    _positive(every=every, epochs=epochs)
    return Sequence.of([(initial * factor**e, e) for e in range(0, epochs, every)], end=epochs)


def cosine(initial: float, epochs: int, final: float = 0.0, every: int = 1) -> Sequence:
    """Half a wave from `initial` towards `final`, which would be reached at `epochs`; kept for `every` epochs.

    Example:
        >>> cosine(1.0, epochs=2)
        Sequence('1.0@0|0.5@1|@2')
    """
    _positive(every=every, epochs=epochs)
    wave = ((1 + math.cos(math.pi * e / epochs)) / 2 for e in range(0, epochs, every))
    pairs = [(final + (initial - final) * part, e) for part, e in zip(wave, range(0, epochs, every), strict=True)]
    return Sequence.of(pairs, end=epochs)


def warmup(schedule: Pieces, epochs: int, start: float = 0.0) -> Sequence:
    """Rises linearly from `start` for `epochs` epochs to the first value of a schedule, which follows.

    Epoch e of the rise has the value that the line has at its end: the first is not `start` itself, which could be 0.

    Example:
        >>> warmup("1.0@0|0.1@5", epochs=2)
        Sequence('0.5@0|1.0@1|0.1@7')
    """
    _positive(epochs=epochs)
    then = _sequence(schedule)
    first = then.values[0]
    if isinstance(first, str | bool):
        raise InvalidSequenceError(f"expected a schedule of numbers to rise to, got {then}.")
    rise = [(start + (first - start) * (e + 1) / epochs, e) for e in range(epochs)]
    pieces = [*rise, *((value, at + epochs) for value, at in zip(then.values, then.starts, strict=True))]
    return Sequence.of(pieces, end=None if then.end is None else then.end + epochs)


def _texts(name: str, values: Iterable[Pieces]) -> list[str]:
    if isinstance(values, str | Sequence) or not isinstance(values, collections.abc.Iterable):
        raise InvalidSequenceError(
            f"expected a list of sequences for {name!r}, such as ['0.1@0|0.01@40', '0.1@0|0.01@60'], got {values!r}."
        )
    texts = list(dict.fromkeys(str(_sequence(v)) for v in values))
    if not texts:
        raise InvalidSequenceError(f"expected at least one sequence for {name!r}, got none.")
    return texts


def _sequence(pieces: Pieces) -> Sequence:
    if isinstance(pieces, bool | int | float) or (isinstance(pieces, str) and "@" not in pieces):
        return Sequence.of([(pieces, 0)])
    return Sequence.of(pieces)


def _candidates(value: Any) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, collections.abc.Iterable):
        return [value]
    candidates = list(value)
    if not candidates:
        raise InvalidSequenceError("expected at least one candidate for each piece and boundary, got an empty list.")
    return candidates


def _positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidSequenceError(f"expected `{name}` to be a whole number of epochs from 1 on, got {value!r}.")

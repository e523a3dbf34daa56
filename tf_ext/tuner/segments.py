"""Hyper-parameters over time: sequences of values, and the path of segments that they make of a trial.

A trial trains along a path: a list of segments in each of which no hyper-parameter changes. Two trials share the part
of their paths that is equal from the beginning (Hippo, section 3.1: a hyper-parameter is a sequence of values over time).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping

from tf_ext.tuner.errors import InvalidSequenceError

__all__ = ["Config", "Path", "Scalar", "Segment", "Sequence", "path_of"]

Scalar = bool | int | float | str

# Names and the values they have during a segment, ordered by name.
Config = tuple[tuple[str, Scalar], ...]

_PIECE = re.compile(r'(?P<value>"(?:[^"\\]|\\.)*"|[^"|@]+)@(?P<start>\d+)(?=\||$)\|?')
_END = re.compile(r"\|@(?P<end>\d+)$")
_PLAIN = re.compile(r"[A-Za-z_][\w.\- ]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of training in which no hyper-parameter changes.

    Attributes:
        start: Epochs that were done when it begins.
        end: Epochs that are done when it ends; greater than `start`.
        config: What the hyper-parameters are meanwhile.
    """

    start: int
    end: int
    config: Config


Path = tuple[Segment, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """The values of one hyper-parameter over time. Its text is what stands in `trial.hyperparameters.values`.

    Attributes:
        values: The values in turn. Neighbours differ.
        starts: The epochs at which they begin, from 0 on, rising.
        end: The epochs that it is defined for, or None if the last value stays. Nothing may train for longer.

    Example:
        >>> Sequence.of([(0.1, 0), (0.01, 40)])
        Sequence('0.1@0|0.01@40')
        >>> Sequence.parse("128@0|512@60").at(70)
        512
    """

    values: tuple[Scalar, ...]
    starts: tuple[int, ...]
    end: int | None = None

    @classmethod
    def of(cls, pieces: Iterable[tuple[Scalar, int]] | str | Sequence, end: int | None = None) -> Sequence:
        """Makes a sequence of pairs (value, epoch at which it begins); takes a text and a sequence, too.

        Raises:
            InvalidSequenceError: The first does not begin at 0, epochs do not rise, or values are of different types.
        """
        if isinstance(pieces, Sequence):
            return pieces
        if isinstance(pieces, str):
            return cls.parse(pieces)
        try:
            pairs = [(_scalar(value), start) for value, start in pieces]
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidSequenceError):
                raise
            raise InvalidSequenceError(
                f"expected pairs (value, epoch at which it begins), such as [(0.1, 0), (0.01, 40)], got {pieces!r}."
            ) from None
        _check(pairs)
        if end is not None and end <= pairs[-1][1]:
            raise InvalidSequenceError(f"expected the last value to begin before the end, {end}, got {pairs[-1][1]}.")
        # A piece that changes nothing would keep equal prefixes apart.
        kept = [pair for i, pair in enumerate(pairs) if i == 0 or pair[0] != pairs[i - 1][0]]
        return cls(tuple(value for value, _ in kept), tuple(start for _, start in kept), end)

    @classmethod
    def parse(cls, text: str) -> Sequence:
        """Reads the text of a sequence.

        Raises:
            InvalidSequenceError: It is none.
        """
        if not cls.is_text(text):
            raise InvalidSequenceError(f"expected a sequence such as '0.1@0|0.01@40' (value@epoch), got {text!r}.")
        end = _END.search(text)
        pieces = text if end is None else text[: end.start()]
        pairs = [(_read(m["value"]), int(m["start"])) for m in _PIECE.finditer(pieces)]
        return cls.of(pairs, None if end is None else int(end["end"]))

    @staticmethod
    def is_text(value: object) -> bool:
        """Whether a value is the text of a sequence."""
        if not isinstance(value, str) or value.endswith("|"):
            return False
        pieces = _END.sub("", value)
        position = 0
        while position < len(pieces):
            match = _PIECE.match(pieces, position)
            if match is None or (position == 0 and match["start"] != "0"):
                return False
            position = match.end()
        return position > 0

    def at(self, epoch: int) -> Scalar:
        """The value during the epoch that begins when `epoch` epochs are done."""
        for value, start in zip(reversed(self.values), reversed(self.starts), strict=True):
            if start <= epoch:
                return value
        raise InvalidSequenceError(f"expected an epoch from 0 on, got {epoch}.")

    def __str__(self) -> str:
        pieces = [f"{_write(value)}@{start}" for value, start in zip(self.values, self.starts, strict=True)]
        return "|".join(pieces if self.end is None else [*pieces, f"@{self.end}"])

    def __repr__(self) -> str:
        return f"Sequence({str(self)!r})"


def path_of(values: Mapping[str, Scalar | Sequence], epochs: int) -> Path:
    """The segments of a trial.

    Args:
        values: The hyper-parameters of the trial; those that are sequences, as `Sequence`.
        epochs: How many epochs it trains; at least 1.

    Returns:
        Segments from 0 to `epochs`, none shorter than one epoch.

    Raises:
        InvalidSequenceError: There is no epoch to train, or a sequence is shorter.

    Example:
        >>> path_of({"lr": Sequence.parse("0.1@0|0.01@4"), "units": 8}, 6)[1]
        Segment(start=4, end=6, config=(('lr', 0.01), ('units', 8)))
    """
    if epochs < 1:
        raise InvalidSequenceError(f"expected at least one epoch to train, got {epochs}.")
    for name, value in values.items():
        if isinstance(value, Sequence) and value.end is not None and value.end < epochs:
            raise InvalidSequenceError(
                f"expected {name!r} to be defined for the {epochs} epochs that are to be trained, got {value}, which ends "
                f"after {value.end}. Make the schedule longer, or train for fewer epochs."
            )
    names = sorted(values)
    starts = {0, epochs}
    for value in values.values():
        if isinstance(value, Sequence):
            starts.update(start for start in value.starts if start < epochs)

    def config_at(epoch: int) -> Config:
        now = ((name, values[name]) for name in names)
        return tuple((name, value.at(epoch) if isinstance(value, Sequence) else value) for name, value in now)

    return tuple(Segment(a, b, config_at(a)) for a, b in itertools.pairwise(sorted(starts)))


def _check(pairs: list[tuple[Scalar, int]]) -> None:
    if not pairs:
        raise InvalidSequenceError("expected at least one value, got an empty sequence.")
    starts = [start for _, start in pairs]
    if any(isinstance(start, bool) or not isinstance(start, int) for start in starts):
        raise InvalidSequenceError(f"expected whole numbers of epochs at which values begin, got {starts}.")
    if starts[0] != 0:
        raise InvalidSequenceError(f"expected the first value to begin at epoch 0, got {starts[0]}.")
    if any(b <= a for a, b in itertools.pairwise(starts)):
        raise InvalidSequenceError(f"expected epochs that rise, each value lasting at least one, got {starts}.")
    kinds = {str if isinstance(v, str) else bool if isinstance(v, bool) else float for v, _ in pairs}
    if len(kinds) > 1:
        raise InvalidSequenceError(
            f"expected values of one kind (numbers, truth values or texts), got {[v for v, _ in pairs]}."
        )


def _scalar(value: object) -> Scalar:
    if hasattr(value, "item") and not isinstance(value, bool | int | float | str):
        value = value.item()  # NumPy's scalars
    if not isinstance(value, bool | int | float | str):
        raise InvalidSequenceError(f"expected numbers, truth values or texts, got {value!r} of {type(value).__name__}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidSequenceError(f"expected finite numbers, got {value!r}.")
    return value


def _write(value: Scalar) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) is not None and value not in ("True", "False")
        return value if plain else json.dumps(value)
    return repr(value)  # the shortest text that reads back as the same float


def _read(text: str) -> Scalar:
    if text.startswith('"'):
        value: str = json.loads(text)
        return value
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

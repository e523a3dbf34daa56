"""Definitions of studies for the simulator: which trials, and who decides how long they train."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Literal

from tf_ext.tuner.errors import InvalidSequenceError
from tf_ext.tuner.segments import Path, Scalar, Sequence, path_of

__all__ = ["Algorithm", "StudyDefinition", "synthetic_score"]

Algorithm = Literal["grid", "sha", "asha"]
Values = Mapping[str, Scalar | Sequence]


@dataclasses.dataclass(frozen=True)
class StudyDefinition:
    """What a study would train, without a model.

    Attributes:
        name: Of the study.
        trials: The values of each trial, some of them sequences, and the epochs that it trains if nothing stops it.
        algorithm: `"grid"`: all trials train in full. `"sha"`: successive halving; a rung begins when the one before has
            ended. `"asha"`: a trial goes on as soon as it is among the best of those that have come so far.
        reduction: One trial in so many goes on to the next rung (eta).
        min_epochs: Where the first rung ends; each further one is `reduction` times longer. Without meaning for a grid.
        seed: Of the scores that decide who goes on. They are synthetic.

    Example:
        >>> StudyDefinition("s", [({"lr": 0.1}, 120)], "sha", reduction=4, min_epochs=15).rungs(0)
        (15, 60, 120)
    """

    name: str
    trials: tuple[tuple[Values, int], ...]
    algorithm: Algorithm = "grid"
    reduction: int = 4
    min_epochs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", tuple(self.trials))
        if not self.trials:
            raise InvalidSequenceError(f"expected at least one trial in study {self.name!r}, got none.")
        if self.algorithm not in ("grid", "sha", "asha"):
            raise InvalidSequenceError(f"expected 'grid', 'sha' or 'asha', got {self.algorithm!r}.")
        if self.reduction < 2 or self.min_epochs < 1:
            raise InvalidSequenceError(
                f"expected reduction >= 2 and min_epochs >= 1, got {self.reduction} and {self.min_epochs}."
            )

    def rungs(self, trial: int) -> tuple[int, ...]:
        """The epochs at which a trial is compared with others, and at last its end."""
        epochs = self.trials[trial][1]
        ends, end = [], self.min_epochs
        while self.algorithm != "grid" and end < epochs:
            ends.append(end)
            end *= self.reduction
        return (*ends, epochs)

    def path(self, trial: int, epochs: int) -> Path:
        """The segments of a trial up to an epoch."""
        return path_of(self.trials[trial][0], epochs)


def synthetic_score(path: Path, seed: int = 0) -> float:
    """A made-up score between 0 and 1, a function of the path alone; no training stands behind it.

    Every stretch of a path has a pseudo-random rate that depends on all that came before. The score is the mean rate over
    all epochs, so that a trial that was good at one rung is likely to be good at the next, and equal paths score equally.
    """
    total, digest = 0.0, str(seed).encode()
    for segment in path:
        digest = hashlib.blake2b(digest + repr((segment.start, segment.config)).encode(), digest_size=8).digest()
        total += int.from_bytes(digest, "big") / 2**64 * (segment.end - segment.start)
    return total / path[-1].end

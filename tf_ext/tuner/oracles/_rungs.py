"""Rungs of epochs, and a bracket of trials that climbs them by halving.

Jamieson & Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016; the symbols
are those of Li et al., "Hyperband", JMLR 18 (2018): `n` trials, `r` epochs at first and `R` at most, reduction `eta`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping

__all__ = ["Bracket", "best", "rung_epochs"]


def rung_epochs(min_epochs: int, max_epochs: int, factor: int) -> tuple[int, ...]:
    """The epochs of each rung: r, r * eta, r * eta ** 2, ..., the last one R.

    Example:
        >>> rung_epochs(1, 10, 3)
        (1, 3, 10)
    """
    powers = itertools.takewhile(lambda r: r <= max_epochs, (min_epochs * factor**k for k in itertools.count()))
    return (*list(powers)[:-1], max_epochs)


def best(trial_ids: Iterable[str], scores: Mapping[str, float | None], count: int, direction: str) -> list[str]:
    """The best trials, the best first. Of equal ones the earlier wins; those that failed, without a score, never do.

    Args:
        trial_ids: Trials in the order in which they began.
        scores: Of those that ended: the score, or None if the trial failed.
        count: How many to return at most.
        direction: "min" or "max".
    """
    sign = -1.0 if direction == "max" else 1.0
    ranked = [
        (sign * score, trial_id) for trial_id in trial_ids if (score := _finite(scores.get(trial_id))) is not None
    ]
    return [trial_id for _, trial_id in sorted(ranked, key=lambda pair: pair[0])][:count]


def _finite(score: float | None) -> float | None:
    return None if score is None or math.isnan(score) else score


@dataclasses.dataclass(eq=False)
class Bracket:
    """Successive halving: when all trials of a rung have ended, the best of them climb to the next.

    Who climbs does not depend on the order in which trials end, as it does in Keras Tuner, which promotes as soon as
    enough have ended. A trial that failed counts as the worst. Where fewer than planned have a score, fewer climb.

    Attributes:
        number: What stands in `tuner/bracket`.
        sizes: How many trials each rung is planned for.
        epochs: The epochs at which the trials of each rung end.
        rungs: The trials of each rung, in the order in which they began.
        parents: The trials that those of each rung continue; none in the first.
        scores: Of trials that ended: the score, or None if it failed.
        exhausted: Whether the search space has no more trials for the first rung.
    """

    number: int
    sizes: tuple[int, ...]
    epochs: tuple[int, ...]
    direction: str
    rungs: list[list[str]] = dataclasses.field(init=False)
    parents: list[list[str]] = dataclasses.field(init=False)
    scores: dict[str, float | None] = dataclasses.field(default_factory=dict)
    exhausted: bool = False

    def __post_init__(self) -> None:
        self.rungs = [[] for _ in self.sizes]
        self.parents = [[] for _ in self.sizes]
        self._chosen: dict[int, list[str]] = {}

    @property
    def wants_new(self) -> bool:
        """Whether the first rung has room."""
        return not self.exhausted and len(self.rungs[0]) < self.sizes[0]

    def begin(self, trial_id: str, rung: int, parent: str | None) -> None:
        """A trial began on a rung, as a new one or continuing `parent`."""
        self.rungs[rung].append(trial_id)
        if parent is not None:
            self.parents[rung].append(parent)
            self.exhausted = True  # nothing climbs before the first rung is as full as it will be

    def chosen(self, rung: int) -> list[str] | None:
        """Who climbs to `rung` from the one below, the best first; None as long as trials there have not ended."""
        below = rung - 1
        if rung not in self._chosen and self._is_full(below) and all(i in self.scores for i in self.rungs[below]):
            self._chosen[rung] = best(self.rungs[below], self.scores, self.sizes[rung], self.direction)
        return self._chosen.get(rung)

    def promotion(self) -> tuple[int, str] | None:
        """The next trial to climb, with the rung that it climbs to; None if there is none now."""
        for rung in range(1, len(self.rungs)):
            chosen = self.chosen(rung)
            if chosen is not None and len(self.rungs[rung]) < len(chosen):
                return rung, chosen[len(self.rungs[rung])]
        return None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to begin or to wait for."""
        last = len(self.rungs) - 1
        return self._is_full(last) and all(i in self.scores for rung in self.rungs for i in rung)

    def can_climb(self, trial_id: str, rung: int) -> bool:
        """Whether a trial on a rung that ended may still begin on the next."""
        if rung + 1 >= len(self.rungs) or trial_id in self.parents[rung + 1] or self.scores.get(trial_id, 0.0) is None:
            return False
        chosen = self.chosen(rung + 1)
        return chosen is None or trial_id in chosen

    def _is_full(self, rung: int) -> bool:
        if rung == 0:
            return not self.wants_new
        chosen = self.chosen(rung)
        return chosen is not None and len(self.rungs[rung]) == len(chosen)

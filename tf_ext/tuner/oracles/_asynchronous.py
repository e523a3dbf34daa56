"""Who climbs, asynchronously: the rule of ASHA as a fold over reports, for the oracle and for checking its log."""

from __future__ import annotations

import bisect
import math

__all__ = ["AsynchronousRungs"]


class AsynchronousRungs:
    """Rungs from which a trial climbs as soon as it is among the best 1 / `factor` of those that have ended there.

    Args:
        count: How many rungs there are.
        factor: The reduction (eta).
        direction: "min" or "max".

    Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, algorithm 2.
    """

    def __init__(self, count: int, factor: int, direction: str) -> None:
        self.factor = factor
        self._sign = -1.0 if direction == "max" else 1.0
        # Of each rung: (score, number, trial), the best first; of equal scores the earlier trial.
        self._ended: list[list[tuple[float, int, str]]] = [[] for _ in range(count)]
        self._climbed: list[set[str]] = [set() for _ in range(count)]
        self._numbers: dict[str, int] = {}

    def start(self, trial_id: str, parent: str | None = None, rung: int = 0) -> None:
        """A trial began on a rung: a new one on the first, or one that continues `parent` of the rung below."""
        self._numbers[trial_id] = len(self._numbers)
        if parent is not None:
            self._climbed[rung - 1].add(parent)

    def report(self, trial_id: str, rung: int, score: float | None) -> None:
        """A trial ended on a rung with a score, or None if it failed, which counts as the worst."""
        failed = score is None or math.isnan(score)
        key = math.inf if score is None or failed else self._sign * score
        # A failed trial is behind all others of that score, too.
        number = self._numbers[trial_id] + (1 << 60 if failed else 0)
        bisect.insort(self._ended[rung], (key, number, trial_id))

    def promotion(self) -> tuple[int, str] | None:
        """The next trial to climb, and the rung that it climbs to; the highest rung goes first. None if there is none."""
        for rung in reversed(range(len(self._ended) - 1)):
            ended, climbed = self._ended[rung], self._climbed[rung]
            for _, number, trial_id in ended[: len(ended) // self.factor]:
                if trial_id not in climbed and number < 1 << 60:
                    return rung + 1, trial_id
        return None

    def can_climb(self, trial_id: str, rung: int, most: int) -> bool:
        """Whether a trial may still climb if no more than `most` ever end on its rung."""
        if rung + 1 >= len(self._ended) or trial_id in self._climbed[rung]:
            return False
        # Those before it stay before it: more results can only push it back.
        places = self._ended[rung][: most // self.factor]
        if all(other != trial_id for _, _, other in self._ended[rung]):
            return True
        return any(other == trial_id and number < 1 << 60 for _, number, other in places)

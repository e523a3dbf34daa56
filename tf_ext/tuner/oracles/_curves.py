"""Whether to stop a trial early: the median rule as a fold over reports, for the oracle and for checking its log."""

from __future__ import annotations

import math
import statistics

__all__ = ["Curves"]


class Curves:
    """The objective of each trial at each epoch.

    A trial is stopped at epoch s if the best that it reached until s is strictly worse than the median, over all trials
    that completed and trained for s epochs at least, of the mean of their objectives up to s.

    Args:
        min_trials: How many completed trials that takes at least.
        direction: "min" or "max".

    Example:
        >>> curves = Curves(min_trials=1, direction="min")
        >>> curves.report("0", 0, [3.0, 2.0]), curves.complete("0"), curves.report("1", 0, [4.0, 2.6])
        (None, None, None)
        >>> curves.should_stop("1", 2)
        True

    Source: Golovin et al., "Google Vizier: A Service for Black-Box Optimization", KDD 2017, section 3.2.1.
    """

    def __init__(self, min_trials: int, direction: str) -> None:
        self.min_trials = min_trials
        self._sign = -1.0 if direction == "max" else 1.0
        self._curves: dict[str, list[float]] = {}
        self._sums: dict[str, list[float]] = {}  # of completed trials: the sum up to each epoch

    def known(self, trial_id: str) -> int:
        """How many epochs of a trial were reported."""
        return len(self._curves.get(trial_id, ()))

    def report(self, trial_id: str, start: int, values: list[float | None]) -> None:
        """Adds the objective at the epochs from `start` on; None where it was not a number, which is the worst."""
        curve = self._curves.setdefault(trial_id, [])
        del curve[start:]
        curve += [math.inf if value is None or math.isnan(value) else self._sign * value for value in values]

    def complete(self, trial_id: str) -> None:
        """The trial ended with a score."""
        sums, total = [], 0.0
        for value in self._curves.get(trial_id, ()):
            total += value
            sums.append(total)
        self._sums[trial_id] = sums

    def should_stop(self, trial_id: str, epoch: int) -> bool:
        """Whether the rule stops the trial when `epoch` epochs are done."""
        means = [sums[epoch - 1] / epoch for sums in self._sums.values() if len(sums) >= epoch]
        own = self._curves.get(trial_id, [])[:epoch]
        if not own or len(means) < self.min_trials:
            return False
        return min(own) > statistics.median(means)

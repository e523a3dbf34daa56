"""Lower bounds of the makespan of stages on equal workers, to hold simulated schedules against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tf_ext.tuner.stage_tree import Stage

__all__ = ["Jobs", "simple", "tighter"]

_POINTS = 48

Floats = NDArray[np.float64]


class Jobs:
    """Stages that begin at one time or after their parents.

    Attributes:
        costs: Seconds of each.
        heads: Seconds of what must be done before it.
        tails: Seconds of the longest chain from it on, itself included.
    """

    def __init__(self, costs: Sequence[float], parents: Sequence[int]) -> None:
        self.costs = np.asarray(costs, np.float64)
        self.heads = np.zeros_like(self.costs)
        self.tails = self.costs.copy()
        for job, parent in enumerate(parents):
            if parent >= 0:
                self.heads[job] = self.heads[parent] + self.costs[parent]
        for job in reversed(range(len(parents))):
            if (parent := parents[job]) >= 0:
                self.tails[parent] = max(self.tails[parent], self.costs[parent] + self.tails[job])

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> Jobs:
        """Takes stages, parents before children; parents that are not among them are done."""
        stages = list(stages)
        number = {stage: job for job, stage in enumerate(stages)}
        parents = [number.get(stage.parent, -1) if stage.parent is not None else -1 for stage in stages]
        return cls([stage.cost for stage in stages], parents)


def simple(jobs: Jobs, workers: int) -> float:
    """The longest chain, or all work shared equally."""
    return float(max(jobs.tails.max(), jobs.costs.sum() / workers)) if len(jobs.costs) else 0.0


def tighter(jobs: Jobs, workers: int) -> float:
    """The best of `simple`, of two bounds that know that stages are indivisible, and of what must be run in an interval."""
    if not len(jobs.costs):
        return 0.0
    bound = max(simple(jobs, workers), _indivisible(jobs.costs, workers), _uneven(jobs.costs, workers))
    return bound + max(0.0, _excess(jobs, workers, bound))


def _indivisible(costs: Floats, workers: int) -> float:
    """Of the `k * workers + 1` longest stages, one worker must run at least `k + 1`."""
    longest = np.sort(costs)[::-1]
    return max(
        (float(longest[k * workers - k : k * workers + 1].sum()) for k in range(1, (len(costs) - 1) // workers + 1)),
        default=0.0,
    )


def _uneven(costs: Floats, workers: int) -> float:
    """Of `k * workers + q` stages, some `s <= q` workers run `k * s + q` at least; one of them runs the mean or longer."""
    sums = np.cumsum(np.sort(costs))
    bound = 0.0
    for k in range(1, (len(costs) - 1) // workers + 1):
        surplus = len(costs) - k * workers
        those = np.arange(1, min(surplus, workers) + 1)
        bound = max(bound, float((sums[k * those + surplus - 1] / those).min()))
    return bound


def _excess(jobs: Jobs, workers: int, end: float) -> float:
    """By how much `end` must be exceeded (Fernandez and Bussell, 1973).

    A stage cannot begin before its head nor, if all is to end in time, after `end` less its tail. So a part of it lies in
    an interval, wherever it is put. If these parts are more than all workers can do in the interval, the end comes later.
    """
    earliest_end, latest_start = jobs.heads + jobs.costs, end - jobs.tails
    excess = 0.0
    for begin in _points(jobs.heads):
        left = np.clip(earliest_end - begin, 0.0, jobs.costs)
        for stop in _points(latest_start + jobs.costs):
            if stop > begin:
                inside = np.minimum(np.minimum(left, stop - begin), np.clip(stop - latest_start, 0.0, jobs.costs))
                excess = max(excess, float(inside.sum()) / workers - (stop - begin))
    return excess


def _points(times: Floats) -> Floats:
    """Some of the times, if they are many: every interval gives a valid bound."""
    times = np.unique(times)
    if len(times) <= _POINTS:
        return times
    return times[np.linspace(0, len(times) - 1, _POINTS).round().astype(int)]

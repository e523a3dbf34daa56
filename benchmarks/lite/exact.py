"""Exact optima for a few requests that come at once: the least makespan and the least mean latency of any schedule."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from tf_ext.lite.simulator import Model, Workload


class Optimum(NamedTuple):
    """The least makespan, and the least mean latency, of all schedules; in microseconds. No schedule need have both."""

    makespan: float
    mean_latency: float


def of_whole(workload: Workload) -> Optimum:
    """Returns the optima where each model is one piece: all assignments to workers are tried.

    The makespan depends on the assignment alone, and the shortest first on each worker has the least mean latency.

    Args:
        workload: All jobs at time 0, without deadlines, priorities and pinned jobs.
    """
    if any(model.units > 1 for model in workload.models):
        raise ValueError("Models of one unit were expected: `of_split` solves the others.")
    rows = [workload.models[job.model].pieces[0].latency_us for job in workload.jobs]
    costs = np.array([[math.inf if us is None else round(us) for us in row] for row in rows])
    choices = np.array(list(itertools.product(range(workload.workers), repeat=len(rows))))
    makespan, total = np.zeros(len(choices)), np.zeros(len(choices))
    for worker in range(workload.workers):
        load, behind = np.zeros(len(choices)), np.zeros(len(choices))
        for job in np.argsort(-costs[:, worker]):  # the last one on the worker first
            here = choices[:, job] == worker
            behind += here
            load[here] += costs[job, worker]
            total[here] += behind[here] * costs[job, worker]
        makespan = np.maximum(makespan, load)
    return Optimum(float(makespan.min()), float(total.min()) / len(rows))


def of_split(workload: Workload) -> Optimum:
    """Returns the optima where models are split; for about four jobs and ten units.

    All schedules are tried in the order in which pieces begin. A partial schedule is left out if another one stands at the
    same units and is nowhere behind it, or if it cannot become better than the best whole one.

    Args:
        workload: All jobs at time 0, without deadlines, priorities and pinned jobs.
    """
    return Optimum(_Search(workload, total=False).run(), _Search(workload, total=True).run() / len(workload.jobs))


class _Search:
    """Depth first, over jobs as (model, unit, time at which the unit can begin)."""

    def __init__(self, workload: Workload, total: bool) -> None:
        self._models = workload.models
        self._remaining = [_remaining(model) for model in workload.models]
        self._total = total
        self._best = math.inf
        self._seen: dict[object, list[tuple[float, ...]]] = defaultdict(list)
        self._start = [(job.model, 0, 0.0) for job in workload.jobs]
        self._workers = workload.workers

    def run(self) -> float:
        self._visit(tuple(sorted(self._start)), (0.0,) * self._workers, 0.0, 0.0)
        return self._best

    def _visit(
        self, jobs: tuple[tuple[int, int, float], ...], free: tuple[float, ...], last: float, done: float
    ) -> None:
        """`last` is when the last piece began; `done` the objective over the jobs that have ended."""
        if not jobs:
            self._best = min(self._best, done)
            return
        if self._bound(jobs, free, done) >= self._best - 1e-9 or self._dominated(jobs, free, last, done):
            return
        moves = []
        for at, (model, unit, ready) in enumerate(jobs):
            if at and jobs[at - 1] == jobs[at]:
                continue
            for piece in self._models[model].pieces:
                if piece.begin != unit:
                    continue
                for worker, us in enumerate(piece.latency_us):
                    begin = max(free[worker], ready)
                    if us is not None and begin >= last:
                        moves.append(
                            (begin + round(us) + self._remaining[model][piece.end], at, piece.end, worker, begin, us)
                        )
        for _, at, end, worker, begin, us in sorted(moves):
            after = begin + round(us)
            rest = jobs[:at] + jobs[at + 1 :]
            value = done
            if end == self._models[jobs[at][0]].units:
                value = done + after if self._total else max(done, after)
            else:
                rest = tuple(sorted((*rest, (jobs[at][0], end, after))))
            self._visit(rest, free[:worker] + (after,) + free[worker + 1 :], begin, value)

    def _bound(self, jobs: tuple[tuple[int, int, float], ...], free: tuple[float, ...], done: float) -> float:
        ends = [ready + self._remaining[model][unit] for model, unit, ready in jobs]
        if self._total:
            return done + sum(ends)
        work = sum(self._remaining[model][unit] for model, unit, _ in jobs)
        return max(done, *ends, (sum(free) + work) / self._workers)

    def _dominated(
        self, jobs: tuple[tuple[int, int, float], ...], free: tuple[float, ...], last: float, done: float
    ) -> bool:
        key = tuple(sorted(Counter((model, unit) for model, unit, _ in jobs).items()))
        # Workers are not idle before the last begin: an earlier time is of no use.
        point = (done, *(ready for *_, ready in jobs), *(max(time, last) for time in free))
        others = self._seen[key]
        if any(all(a <= b for a, b in zip(other, point, strict=True)) for other in others):
            return True
        others.append(point)
        return False


def _remaining(model: Model) -> list[float]:
    least = [math.inf] * model.units + [0.0]
    for piece in sorted(model.pieces, key=lambda piece: -piece.begin):
        for us in piece.latency_us:
            if us is not None:
                least[piece.begin] = min(least[piece.begin], round(us) + least[piece.end])
    return least

"""The best order of few stages on several equal workers, by branch and bound.

The problem is P | outtree, r_j | C_max: jobs in a forest, each after its parent, on machines that become free at given
times. A schedule is built job by job in the order of the starting times; each job goes to the machine that is free first.
That reaches an optimal schedule, also one that lets a machine wait for a job that is about to become ready.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

__all__ = ["Plan", "Problem", "lower_bound", "plan"]

_EPSILON = 1e-9


@dataclasses.dataclass(frozen=True)
class Problem:
    """Jobs in a forest and the machines that are to run them.

    Attributes:
        costs: Seconds of each job.
        parents: The index of the job that must be done before, smaller than its own; -1 for none.
        releases: The time before which each job cannot start.
        free: The time from which each machine is free.
    """

    costs: Sequence[float]
    parents: Sequence[int]
    releases: Sequence[float]
    free: Sequence[float]

    def tails(self) -> list[float]:
        """Seconds of the longest chain from each job on, itself included."""
        tails = list(self.costs)
        for job in reversed(range(len(tails))):
            parent = self.parents[job]
            if parent >= 0:
                tails[parent] = max(tails[parent], self.costs[parent] + tails[job])
        return tails


@dataclasses.dataclass(frozen=True)
class Plan:
    """A schedule.

    Attributes:
        makespan: When the last job ends.
        order: The jobs by the time at which they start.
        starts: The time at which each job starts, by job.
        optimal: Whether the search came to its end, so that no schedule is shorter.
        nodes: Partial schedules that were looked at.
    """

    makespan: float
    order: tuple[int, ...]
    starts: tuple[float, ...]
    optimal: bool
    nodes: int


def plan(problem: Problem, max_nodes: int | None = None, hints: Sequence[Sequence[float]] = ()) -> Plan:
    """Finds the shortest schedule.

    Args:
        problem: What is to be scheduled.
        max_nodes: The search ends after so many partial schedules with the best so far; None: it is carried through.
        hints: Priorities by job (high ones first) of schedules to compare with from the start, apart from that by
            longest chain, which wins a tie.

    Returns:
        The schedule.
    """
    search = _Search(problem, max_nodes)
    for priorities in [search.tails, *hints]:
        search.offer(*_list_schedule(problem, priorities))
    search.descend(0, sorted(problem.free), (), 0.0)
    return search.result()


def lower_bound(problem: Problem) -> float:
    """A time before which no schedule ends: the longest chain, or all work shared equally."""
    search = _Search(problem, None)
    return search.bound(0, sorted(problem.free), 0.0)


def _list_schedule(problem: Problem, priorities: Sequence[float]) -> tuple[float, list[int], list[float]]:
    """Whenever a machine is free it gets the ready job of the highest priority."""
    count = len(problem.costs)
    free = sorted(problem.free)
    starts, ends, order = [0.0] * count, [0.0] * count, []
    left = set(range(count))
    while left:
        ready = {
            job: max(problem.releases[job], ends[problem.parents[job]] if problem.parents[job] >= 0 else 0.0)
            for job in left
            if problem.parents[job] not in left
        }
        now = max(free[0], min(ready.values()))
        job = min((j for j, time in ready.items() if time <= now + _EPSILON), key=lambda j: (-priorities[j], j))
        left.remove(job)
        order.append(job)
        starts[job], ends[job] = now, now + problem.costs[job]
        free = sorted([*free[1:], ends[job]])
    return max([*ends, *problem.free], default=0.0), order, starts


class _Search:
    def __init__(self, problem: Problem, max_nodes: int | None) -> None:
        self.problem = problem
        self.tails = problem.tails()
        self.count = len(problem.costs)
        self.ends = [0.0] * self.count
        self.starts = [0.0] * self.count
        self.best = float("inf")
        self.best_order: list[int] = []
        self.best_starts: list[float] = []
        self.nodes = 0
        self.max_nodes = max_nodes
        self.complete = True
        self._seen: dict[int, list[tuple[float, ...]]] = {}

    def offer(self, makespan: float, order: Sequence[int], starts: Sequence[float]) -> None:
        # A schedule that is only a rounding error better is not worth another order.
        if makespan < self.best - _EPSILON * max(1.0, abs(makespan)):
            self.best, self.best_order, self.best_starts = makespan, list(order), list(starts)

    def result(self) -> Plan:
        return Plan(self.best, tuple(self.best_order), tuple(self.best_starts), self.complete, self.nodes)

    def heads(self, done: int) -> list[float]:
        """The earliest start of each job that is not in `done`, machines aside."""
        problem, heads = self.problem, [0.0] * self.count
        for job in range(self.count):
            if done >> job & 1:
                continue
            parent = problem.parents[job]
            before = 0.0
            if parent >= 0:
                before = self.ends[parent] if done >> parent & 1 else heads[parent] + problem.costs[parent]
            heads[job] = max(problem.releases[job], before)
        return heads

    def bound(self, done: int, free: list[float], now: float) -> float:
        """A time before which no completion of a partial schedule ends."""
        start = max(now, free[0])
        value, work = free[-1], 0.0
        for job, head in enumerate(self.heads(done)):
            if not done >> job & 1:
                value = max(value, max(head, start) + self.tails[job])
                work += self.problem.costs[job]
        return max(value, (sum(max(time, start) for time in free) + work) / len(free))

    def descend(self, done: int, free: list[float], order: tuple[int, ...], now: float) -> None:
        """Tries every job that may be the next to start, the one with the longest chain first."""
        if len(order) == self.count:
            self.offer(max(free[-1], max(self.ends, default=0.0)), order, self.starts)
            return
        heads, parents = self.heads(done), self.problem.parents
        options = [j for j in range(self.count) if not done >> j & 1 and (parents[j] < 0 or done >> parents[j] & 1)]
        tried = set()
        for job in sorted(options, key=lambda j: (max(heads[j], now) - self.tails[j], j)):
            start = max(heads[job], free[0], now)
            # Two leaves of equal length that may start at the same time are one and the same to the schedule.
            twin = (start, self.tails[job], self.problem.costs[job]) if self._is_leaf(job) else job
            if twin in tried:
                continue
            tried.add(twin)
            if self.max_nodes is not None and self.nodes >= self.max_nodes:
                self.complete = False
                return
            self.nodes += 1
            self.starts[job], self.ends[job] = start, start + self.problem.costs[job]
            after = sorted([*free[1:], self.ends[job]])
            mask = done | 1 << job
            slack = _EPSILON * max(1.0, abs(self.best))
            if self.bound(mask, after, start) < self.best - slack and not self._dominated(mask, after, start):
                self.descend(mask, after, (*order, job), start)

    def _is_leaf(self, job: int) -> bool:
        return job not in self.problem.parents

    def _dominated(self, done: int, free: list[float], now: float) -> bool:
        """Whether the same jobs were placed before such that machines and children are free no later."""
        heads, parents = self.heads(done), self.problem.parents
        options = [j for j in range(self.count) if not done >> j & 1 and (parents[j] < 0 or done >> parents[j] & 1)]
        # What comes next starts at `now` or later, so that what is free before is as good as what is free then.
        key = (*(max(time, now) for time in free), *(max(heads[j], now) for j in options))
        seen = self._seen.setdefault(done, [])
        if any(all(a <= b for a, b in zip(old, key, strict=True)) for old in seen):
            return True
        if len(seen) < 64:
            seen.append(key)
        return False

"""The best order of few stages on several equal workers, by branch and bound.

The problem is P | outtree, r_j, q_j | C_max: jobs in a forest, each after its parent, on machines that become free at
given times; what is made has to be delivered, which takes time but no machine. A schedule is built job by job in the
order of the starting times; each job goes to the machine that is free first. That reaches an optimal schedule, also one
that lets a machine wait for a job that is about to become ready.
"""

from __future__ import annotations

import dataclasses
import math
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
        delivery: Seconds that follow the end of each job without a machine; none by default.
    """

    costs: Sequence[float]
    parents: Sequence[int]
    releases: Sequence[float]
    free: Sequence[float]
    delivery: Sequence[float] = ()

    def after(self, job: int) -> float:
        """Seconds that follow the end of a job without a machine."""
        return self.delivery[job] if self.delivery else 0.0

    def tails(self) -> list[float]:
        """Seconds of the longest chain from each job on, itself and the delivery included."""
        tails = [cost + self.after(job) for job, cost in enumerate(self.costs)]
        for job in reversed(range(len(tails))):
            parent = self.parents[job]
            if parent >= 0:
                tails[parent] = max(tails[parent], self.costs[parent] + tails[job])
        return tails


@dataclasses.dataclass(frozen=True)
class Plan:
    """A schedule.

    Attributes:
        makespan: When the last job is delivered.
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


def plan(
    problem: Problem,
    max_nodes: int | None = None,
    order: Sequence[int] = (),
    tolerance: float = 0.0,
    enough: float = -math.inf,
) -> Plan:
    """Finds the shortest schedule.

    Args:
        problem: What is to be scheduled.
        max_nodes: The search ends after so many partial schedules with the best so far; None: it is carried through.
        order: The order of starts of a schedule to begin with, parents before children. Some others are always tried;
            that by longest chain wins a tie.
        tolerance: A schedule need not be found if it is better by less than this share.
        enough: No schedule need be found that is shorter than this.

    Returns:
        The schedule.
    """
    search = _Search(problem, max_nodes, tolerance, enough)
    search.offer(*_list_schedule(problem, search.tails))
    if order:
        search.offer(*_in_order(problem, order))
    if search.best > enough:
        for priorities in _priorities(problem, search.tails):
            search.offer(*_list_schedule(problem, priorities))
        search.run()
    return Plan(search.best, tuple(search.best_order), tuple(search.best_starts), search.complete, search.nodes)


def lower_bound(problem: Problem) -> float:
    """A time before which no schedule ends: the longest chain, or all work shared equally."""
    search = _Search(problem, None, 0.0, -math.inf)
    return search.bound(search.first, sorted(problem.free), 0.0, max(problem.free), sum(problem.costs))


def _priorities(problem: Problem, tails: Sequence[float]) -> list[list[float]]:
    """Other orders than by longest chain that are sometimes better: they look at all that waits for a job."""
    weights = list(problem.costs)
    for job in reversed(range(len(weights))):
        if (parent := problem.parents[job]) >= 0:
            weights[parent] += weights[job]
    machines = len(problem.free)
    mixed = [
        [tail + share * weight / machines for tail, weight in zip(tails, weights, strict=True)] for share in (0.5, 1, 2)
    ]
    return [*mixed, weights, list(problem.costs)]


def _list_schedule(problem: Problem, priorities: Sequence[float]) -> tuple[float, list[int], list[float]]:
    """Whenever a machine is free it gets the ready job of the highest priority."""
    count = len(problem.costs)
    free = sorted(problem.free)
    starts, ends, order = [0.0] * count, [0.0] * count, []
    heads = {job: problem.releases[job] for job in range(count) if problem.parents[job] < 0}
    while heads:
        now = max(free[0], min(heads.values()))
        job = min((j for j, time in heads.items() if time <= now + _EPSILON), key=lambda j: (-priorities[j], j))
        del heads[job]
        order.append(job)
        starts[job], ends[job] = now, now + problem.costs[job]
        heads |= {j: max(problem.releases[j], ends[job]) for j in range(count) if problem.parents[j] == job}
        free = sorted([*free[1:], ends[job]])
    return max(*problem.free, *(end + problem.after(job) for job, end in enumerate(ends))), order, starts


def _in_order(problem: Problem, order: Sequence[int]) -> tuple[float, Sequence[int], list[float]]:
    """Starts the jobs in an order, each as soon as it can, and none before the one that precedes it."""
    free, now, late = sorted(problem.free), 0.0, max(problem.free)
    starts, ends = [0.0] * len(order), [0.0] * len(order)
    for job in order:
        parent = problem.parents[job]
        now = max(now, free[0], problem.releases[job], ends[parent] if parent >= 0 else 0.0)
        starts[job], ends[job] = now, now + problem.costs[job]
        late = max(late, ends[job] + problem.after(job))
        free = sorted([*free[1:], ends[job]])
    return late, order, starts


class _Search:
    """Depth-first branch and bound over the jobs in the order of their starts."""

    def __init__(self, problem: Problem, max_nodes: int | None, tolerance: float, enough: float) -> None:
        count = len(problem.costs)
        self.costs = problem.costs
        self.releases = problem.releases
        self.after = [problem.after(job) for job in range(count)]
        self.tails = problem.tails()
        self.children: list[list[int]] = [[] for _ in range(count)]
        for job, parent in enumerate(problem.parents):
            if parent >= 0:
                self.children[parent].append(job)
        self.first = tuple(job for job in range(count) if problem.parents[job] < 0)
        self.heads = list(problem.releases)  # the earliest start of each job whose parent is placed
        self.starts = [0.0] * count
        self.free = sorted(problem.free)
        self.order: list[int] = []
        self.best = math.inf
        self.best_order: list[int] = []
        self.best_starts: list[float] = []
        self.nodes = 0
        self.complete = True
        self._max_nodes = math.inf if max_nodes is None else max_nodes
        self._share = 1 - tolerance
        self._enough = enough
        self._seen: dict[int, list[tuple[float, ...]]] = {}

    def run(self) -> None:
        late, work = self.free[-1], float(sum(self.costs))
        if self.bound(self.first, self.free, 0.0, late, work) < self._target():
            self._descend(self.first, self.free, 0.0, late, work, 0)

    def offer(self, makespan: float, order: Sequence[int], starts: Sequence[float]) -> None:
        # A schedule that is only a rounding error better is not worth another order.
        if makespan < self.best - _EPSILON * max(1.0, abs(makespan)):
            self.best, self.best_order, self.best_starts = makespan, list(order), list(starts)

    def bound(self, options: Sequence[int], free: Sequence[float], now: float, late: float, work: float) -> float:
        """A time before which no completion of a partial schedule ends.

        Args:
            options: The jobs whose parents are placed; all others that are left come after one of them.
            free: When the machines are free, rising.
            now: When the last one started; none starts before.
            late: When all that are placed will have been delivered.
            work: Seconds of all that are left.
        """
        if not options:
            return late
        earliest, busy = max(now, free[0]), work
        starts = [max(self.heads[job], earliest) for job in options]
        for job, start in zip(options, starts, strict=True):
            late = max(late, start + self.tails[job])
        # Fewer options than machines: the others stand idle until the first option has ended.
        first_end = min([start + self.costs[job] for job, start in zip(options, starts, strict=True)])
        starts.sort()
        for machine, time in enumerate(free):
            busy += max(time, starts[machine] if machine < len(starts) else first_end)
        return max(late, busy / len(free))

    def _target(self) -> float:
        return self._share * self.best - _EPSILON * max(1.0, abs(self.best))

    def _descend(
        self, options: tuple[int, ...], free: list[float], now: float, late: float, work: float, done: int
    ) -> None:
        """Tries every job that may be the next to start, the one with the longest chain first."""
        if not options:
            self.offer(late, self.order, self.starts)
            return
        heads, costs, tails = self.heads, self.costs, self.tails
        earliest, tried = max(now, free[0]), set()
        for job in sorted(options, key=lambda j: (max(heads[j], earliest) - tails[j], j)):
            start = max(heads[job], earliest)
            # Two leaves of equal length that may start at the same time are one and the same to the schedule.
            twin = job if self.children[job] else (start, tails[job], costs[job])
            if twin in tried:
                continue
            tried.add(twin)
            if self.nodes >= self._max_nodes:
                self.complete = False
                return
            if self.best <= self._enough:
                return
            self.nodes += 1
            self.starts[job], end = start, start + costs[job]
            for child in self.children[job]:
                heads[child] = max(self.releases[child], end)
            then = (
                (*(j for j in options if j != job), *self.children[job]),
                sorted([*free[1:], end]),
                start,
                max(late, end + self.after[job]),
                work - costs[job],
            )
            if self.bound(*then) < self._target() and not self._dominated(*then[:4], done | 1 << job):
                self.order.append(job)
                self._descend(*then, done | 1 << job)
                self.order.pop()

    def _dominated(self, options: tuple[int, ...], free: list[float], now: float, late: float, done: int) -> bool:
        """Whether the same jobs were placed before such that machines and children are free no later."""
        # What comes next starts at `now` or later, so that what is free before is as good as what is free then.
        times = [max(time, now) for time in free] + [max(self.heads[j], now) for j in sorted(options)]
        seen = self._seen.setdefault(done, [])
        for old in seen:
            if old[0] <= late and all(a <= b for a, b in zip(old[1:], times, strict=True)):
                return True
        if len(seen) < 64:
            seen.append((late, *times))
        return False

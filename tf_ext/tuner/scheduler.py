"""Which stage a free worker runs next.

    scheduler = CriticalPathScheduler(tree, workers=4)
    stage = scheduler.pick("worker 0", last=None)
    if stage is not None:
        tree.start(stage)

The makespan of a stage tree is that of its longest chains, from a root to a leaf: whoever runs them must not be kept
waiting, while all else fills the gaps (Hippo, section 4.3). A worker that goes on with a child of what it ran last has the
model on the device already, and no checkpoint is loaded.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Hashable
from typing import Protocol

from tf_ext.tuner import _exact
from tf_ext.tuner._heap import Heap
from tf_ext.tuner.stage_tree import Stage, StageTree

__all__ = ["BreadthFirstScheduler", "CriticalPathScheduler", "Scheduler"]

# Chains that differ by less are equally long: costs are estimates.
_NEARLY = 0.02
# A chain shorter than this share of what every worker has to do on average is not urgent.
_URGENT = 0.5
# Up to so many stages all orders are searched: above it lists are close to the optimum, and the search takes too long.
_FEW = 12
# Some 10 ms as a rule and 100 ms at worst, once for what is left of a tree. A number of nodes and not of seconds, so that
# the same tree is always scheduled in the same way.
_MAX_NODES = 6000
# Orders that are better by less are not searched for: it takes ten times longer.
_TOLERANCE = 0.01
# A plan is kept while it ends later than was planned by no more than this share of what is left.
_SLACK = 0.005


class Scheduler(Protocol):
    """What the engine and the simulator ask for the next stage."""

    def pick(self, worker: Hashable, last: Stage | None) -> Stage | None:
        """Chooses the next stage for a free worker.

        Args:
            worker: Which one.
            last: What it ran last, whose state at the end it has in memory; None if there is no such stage.

        Returns:
            A ready stage, which the caller starts at once. None if there is none, or if waiting for a running stage to end
            is better; that is never so while no stage is running.
        """
        ...


@dataclasses.dataclass(frozen=True)
class _Choice:
    stage: Stage | None
    why: str


class CriticalPathScheduler:
    """Hands out the stage from which the longest chain remains.

    Among nearly equal ones a worker gets a child of what it ran last. It gets that, too, while no chain is urgent: as long
    as the longest is short against what every worker has to do, any order that keeps all busy is as good.

    When few stages are left, lists by longest chain may be some 10 % longer than need be; then all orders are searched.

    One worker goes depth-first, with the *shortest* chain first: a checkpoint is deleted when its last child has begun, so
    that the longest child should be that last one. Otherwise the checkpoint would have to be kept all through the longest
    part, on top of those that this part needs itself.

    Args:
        tree: What is to be run.
        workers: How many workers there are.
        clock: Returns the present time in seconds; the simulator brings its own.

    Example:
        >>> tree = StageTree(cost=lambda config, epochs: float(epochs))
        >>> leaf = tree.add("x", path_of({"lr": 0.1}, 3))
        >>> CriticalPathScheduler(tree).pick("worker 0", None) is leaf
        True
    """

    def __init__(self, tree: StageTree, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        if workers < 1:
            raise ValueError(f"expected at least one worker, got {workers}.")
        self.tree = tree
        self.workers = workers
        self._clock = clock
        self._since: dict[Stage, float] = {}  # when the stages were handed out that may still be running
        self._planned: list[Stage] = []  # the best order that was found
        self._promise = -math.inf  # when it ends; no other ends much earlier

    def pick(self, worker: Hashable, last: Stage | None) -> Stage | None:
        """Chooses the next stage for a free worker; see `Scheduler`."""
        stage = self._choose(last).stage
        if stage is not None:
            if len(self._since) > 4 * self.workers + 64:
                self._since = {s: t for s, t in self._since.items() if s.state == "running"}
            self._since[stage] = self._clock()
        return stage

    def explain(self, last: Stage | None = None) -> str:
        """Says what would be picked for a worker and why.

        Args:
            last: What that worker ran last.
        """
        tree = self.tree
        choice = self._choose(last)
        what = "nothing" if choice.stage is None else f"{choice.stage!r}"
        return (
            f"{len(tree)} stages are not done, {len(tree.ready_heap())} are ready; {tree.work:.4g} s of work for "
            f"{self.workers} worker{'s' * (self.workers > 1)}.\nNext: {what}: {choice.why}."
        )

    def _choose(self, last: Stage | None) -> _Choice:
        top = self.tree.ready_heap().largest()
        if top is None:
            return _Choice(None, "no stage is ready")
        if self.workers == 1:
            return self._depth_first(last)
        if 1 < len(self.tree) <= _FEW:
            return self._searched(last)
        self._planned = []
        return self._longest(top, last)

    def _longest(self, top: Stage, last: Stage | None) -> _Choice:
        below = self.tree.ready_below(last) if last is not None else None
        own = below.largest() if below is not None else None
        if own is None or own is top:
            kept = ", and this worker has its parent on the device" if own is not None else ""
            return _Choice(top, f"{top.remaining:.4g} s, the longest chain, remain from it on{kept}")
        if own.remaining >= (1 - _NEARLY) * top.remaining:
            return _Choice(
                own, f"a child of what this worker ran last, with nearly the longest chain ({own.remaining:.4g} s)"
            )
        share = self.tree.work / self.workers
        if top.remaining < _URGENT * share:
            why = f"the longest chain ({top.remaining:.4g} s) is short against the {share:.4g} s left for each worker"
            return _Choice(own, f"a child of what this worker ran last; {why}")
        return _Choice(top, f"{top.remaining:.4g} s, the longest chain, remain from it on; the worker's own is shorter")

    def _depth_first(self, last: Stage | None) -> _Choice:
        at = last
        while at is not None:
            below = self.tree.ready_below(at)
            if below is not None and (stage := below.smallest()) is not None:
                return _Choice(
                    stage, f"depth-first, the shortest chain ({stage.remaining:.4g} s) of the latest fork first"
                )
            at = at.parent
        # Forks that are begun come before new roots: their checkpoints are held already.
        parent = next((fork for fork in self.tree.forks() if fork is not None), None)
        heap = self.tree.ready_below(parent) or Heap()
        stage = heap.smallest()
        return _Choice(stage, "the shortest chain where a checkpoint waits, or the shortest root if none does")

    # --- few stages ---

    def _searched(self, last: Stage | None) -> _Choice:
        """Looks for the best order of all that is left, and takes what comes first in it."""
        tree, now = self.tree, self._clock()
        running = [stage for stage in tree.open if stage.state == "running"]
        pending = sorted((s for s in tree.open if s.state == "pending"), key=lambda s: (s.start, s.serial))
        plan = self._plan(running, pending, now)
        if plan.nodes or len(self._planned) < len(pending):
            self._promise = plan.makespan if plan.optimal else -math.inf
        self._planned = [pending[job] for job in plan.order]
        ready = tree.ready_heap()
        at_once = [pending[job] for job in plan.order if plan.starts[job] <= now and pending[job] in ready]
        how = "of all orders" if plan.optimal else f"of {plan.nodes} partial orders"
        if not at_once and running:
            return _Choice(None, f"the shortest {how} begins when a running stage has ended")
        # Workers are alike, so that any of those that start now may go to this one.
        mine = next((stage for stage in at_once if stage.parent is last), at_once[0])
        return _Choice(mine, f"it is first in the shortest {how}, which ends in {plan.makespan - now:.4g} s")

    def _plan(self, running: list[Stage], pending: list[Stage], now: float) -> _exact.Plan:
        ends = self._ends(running, now)
        number = {stage: job for job, stage in enumerate(pending)}
        free = sorted(ends[run] for run in {id(s.run): s for s in running}.values())
        free = [now] * max(1, self.workers - len(free)) + free
        problem = _exact.Problem(
            costs=[stage.cost for stage in pending],
            parents=[number.get(stage.parent, -1) if stage.parent is not None else -1 for stage in pending],
            releases=[ends.get(stage.parent, now) if stage.parent is not None else now for stage in pending],
            free=free,
            delivery=[stage.ahead for stage in pending],
        )
        order = [number[stage] for stage in self._planned if stage in number]
        if len(order) < len(pending):
            return _exact.plan(problem, _MAX_NODES, (), _TOLERANCE)
        # All goes as it was planned, or nearly so: then there is nothing to search for.
        return _exact.plan(problem, _MAX_NODES, order, _TOLERANCE, self._promise + _SLACK * (self._promise - now))

    def _ends(self, running: list[Stage], now: float) -> dict[Stage, float]:
        """When the running stages are expected to end. All stages of one run end with its last."""
        ends = {}
        for stage in running:
            parts = stage.run.stages if stage.run is not None else [stage]
            began = next((self._since[part] for part in parts if part in self._since), now)
            cost = sum(part.cost for part in parts)
            # One that is overdue may end at any moment, but has not: its children are not ready.
            ends[stage] = max(now + _NEARLY * cost, began + cost)
        return ends


class BreadthFirstScheduler:
    """Hands out stages in the order in which they became ready; a peer to compare with.

    Args:
        tree: What is to be run.
        workers: How many workers there are; makes no difference.
        clock: Makes no difference.
    """

    def __init__(self, tree: StageTree, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.tree = tree
        self.workers = workers

    def pick(self, worker: Hashable, last: Stage | None) -> Stage | None:
        """Chooses the next stage for a free worker; see `Scheduler`."""
        return next(iter(self.tree.ready_heap()), None)

    def explain(self, last: Stage | None = None) -> str:
        """Says what would be picked for a worker and why."""
        return f"Next: {self.pick(None, last)!r}: of the ready stages it has been so for the longest."

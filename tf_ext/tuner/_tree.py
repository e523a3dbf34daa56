"""What keeps a stage tree consistent: states, counts, the ready stages and the longest chains, all kept incrementally."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator

from tf_ext.tuner._heap import Heap
from tf_ext.tuner._stage import Stage, State
from tf_ext.tuner.segments import Config, Path

__all__ = ["Tree"]

_MANY = 8  # so many children are looked through in less time than a heap of them takes


class Tree:
    """The part of `StageTree` that knows nothing of executions.

    Two rules hold between calls of `StageTree`. A pending stage never waits below a done stage without a checkpoint: that
    one is pending again. A pending stage is there because somebody waits for it: it has requests or pending children.
    """

    def __init__(self, cost: Callable[[Config, int], float], cuts: Iterable[int]) -> None:
        self.cost = cost
        self.cuts = frozenset(cuts)
        self.distinct = 0
        self.work = 0.0
        self._sorted_cuts = sorted(self.cuts)
        self._roots: dict[Config, Stage] = {}
        self._open: dict[Stage, None] = {}
        self._ready: Heap[Stage] = Heap()
        self._forks: dict[Stage | None, Heap[Stage]] = {}  # the ready ones by their parents
        self._serial = itertools.count()

    def walk(self, stage: Stage | None = None) -> Iterator[Stage]:
        """The stages of the tree, or those below one and itself, depth-first, parents before children."""
        waiting = list(reversed(self._roots.values())) if stage is None else [stage]
        while waiting:
            stage = waiting.pop()
            yield stage
            waiting.extend(reversed(stage._children.values()))

    # --- shape ---

    def _pieces(self, path: Path) -> Iterator[tuple[Config, int]]:
        """The configs of a path and the epochs up to which they last, cut at `cuts` and nowhere else without need."""
        cuts = iter(self._sorted_cuts)
        cut = next(cuts, None)
        for config, group in itertools.groupby(path, key=lambda segment: segment.config):
            segments = list(group)
            start, end = segments[0].start, segments[-1].end
            while cut is not None and cut < end:
                if cut > start:
                    yield config, cut
                cut = next(cuts, None)
            yield config, end

    def _siblings(self, parent: Stage | None) -> dict[Config, Stage]:
        return self._roots if parent is None else parent._children

    def _attach(self, parent: Stage | None, end: int, config: Config) -> Stage:
        start = 0 if parent is None else parent.end
        stage = Stage(parent, start, end, config, self.cost(config, end - start), next(self._serial))
        siblings = self._siblings(parent)
        siblings[config] = stage
        if parent is not None:
            parent._pending += 1
            if parent._tails is None and len(siblings) > _MANY:
                parent._tails = Heap()
                for sibling in siblings.values():
                    parent._tails.set(sibling, sibling.remaining)
        self.distinct += stage.epochs
        self.work += stage.cost
        self._open[stage] = None
        self._update_ready(stage)
        return stage

    def _remove(self, stage: Stage) -> None:
        """Takes out a stage that has no children."""
        self._set_state(stage, "gone")
        self._update_ready(stage)
        del self._siblings(stage.parent)[stage.config]
        self.distinct -= stage.epochs
        if stage.parent is not None:
            self._leave(stage.parent, stage)
            self._refresh(stage.parent)

    def _split(self, stage: Stage, epoch: int) -> Stage:
        """Cuts a stage in two; returns the first half, a new object. Both halves are in the state that it was in."""
        self._unready(stage)
        first = Stage(stage.parent, stage.start, epoch, stage.config, 0.0, next(self._serial))
        self._siblings(stage.parent)[stage.config] = first  # in its place, so that the order of the children stays
        first._children[stage.config] = stage
        first.state, first.again, first.run = stage.state, stage.again, stage.run
        first._pending, first._running = int(stage.state == "pending"), int(stage.state == "running")
        if stage.run is not None:
            stage.run.stages.insert(stage.run.stages.index(stage), first)
        self._leave(stage.parent, stage)
        if stage.state != "done":
            self._open[first] = None
        stage.parent, stage.start = first, epoch
        self._reckon(first)
        self._reckon(stage)
        self._update_ready(first)
        return first

    def _mend(self, stage: Stage) -> None:
        """Joins a pending stage with its only child if there is no reason left to cut between them."""
        child = next(iter(stage._children.values()), None)
        if stage.state != "pending" or stage.again or stage.requests or stage.end in self.cuts or child is None:
            return
        if len(stage._children) > 1 or child.config != stage.config or child.state != "pending" or child.again:
            return
        self._set_state(stage, "gone")
        self._update_ready(stage)
        child.parent, child.start = stage.parent, stage.start
        self._siblings(stage.parent)[stage.config] = child
        self._leave(child.parent, stage)
        if child.parent is not None:
            child.parent._pending += 1
        self._reckon(child)
        self._update_ready(child)

    def _reckon(self, stage: Stage) -> None:
        """Estimates anew what a stage costs whose length has changed."""
        old, stage.cost = stage.cost, self.cost(stage.config, stage.epochs)
        if stage.state != "done":
            self.work += stage.cost - old
        self._refresh(stage, until=stage)

    # --- states ---

    def _set_state(self, stage: Stage, state: State) -> None:
        old, stage.state = stage.state, state
        if stage.parent is not None:
            stage.parent._pending += (state == "pending") - (old == "pending")
            stage.parent._running += (state == "running") - (old == "running")
        was_open, is_open = old in ("pending", "running"), state in ("pending", "running")
        if is_open and not was_open:
            self._open[stage] = None
            self.work += stage.cost
        elif was_open and not is_open:
            del self._open[stage]
            self.work = self.work - stage.cost if self._open else 0.0  # no rounding errors are left over
        self._refresh(stage)

    def _refresh(self, stage: Stage | None, until: Stage | None = None) -> None:
        """Brings `remaining` up to date towards the root: up to `until`, and on for as long as it changes."""
        while stage is not None:
            value = max(self._below(stage), stage.ahead) + (
                stage.cost if stage.state in ("pending", "running") else 0.0
            )
            if until is None and value == stage.remaining:
                return
            until = None if stage is until else until
            stage.remaining = value
            if stage in self._ready:
                self._ready.set(stage, value)
                self._forks[stage.parent].set(stage, value)
            if stage.parent is not None and stage.parent._tails is not None:
                stage.parent._tails.set(stage, value)
            stage = stage.parent

    @staticmethod
    def _below(stage: Stage) -> float:
        """Seconds of the longest chain below a stage."""
        if stage._tails is None:
            return max((child.remaining for child in stage._children.values()), default=0.0)
        longest = stage._tails.largest()
        return longest.remaining if longest is not None else 0.0

    @staticmethod
    def _leave(parent: Stage | None, child: Stage) -> None:
        if parent is not None and parent._tails is not None:
            parent._tails.discard(child)

    def _update_ready(self, stage: Stage) -> None:
        parent = stage.parent
        forkable = parent is None or (parent.state == "done" and parent.checkpoint)
        if forkable and stage.state == "pending":
            self._ready.set(stage, stage.remaining)
            self._forks.setdefault(parent, Heap()).set(stage, stage.remaining)
        else:
            self._unready(stage)

    def _unready(self, stage: Stage) -> None:
        self._ready.discard(stage)
        fork = self._forks.get(stage.parent)
        if fork is not None:
            fork.discard(stage)
            if not fork:
                del self._forks[stage.parent]

    def _settle(self, stage: Stage) -> None:
        """Brings a stage whose state has changed in line with the rules, and what depends on it."""
        if stage.state == "done" and stage._pending:
            if stage.checkpoint:
                for child in stage._children.values():
                    self._update_ready(child)
            else:
                self._run_again(stage)
        self._update_ready(stage)
        self._walk_back(stage)

    def _walk_back(self, stage: Stage) -> None:
        """Makes done stages pending again, from a pending one up to the latest checkpoint."""
        while (parent := stage.parent) is not None and stage.state == "pending":
            if parent.state == "done":
                if parent.checkpoint:
                    return
                self._run_again(parent)
            stage = parent

    def _run_again(self, stage: Stage) -> None:
        stage.again = True
        self._set_state(stage, "pending")
        self._update_ready(stage)

    def _tidy(self, stage: Stage | None) -> None:
        """Drops pending stages that nobody waits for any more, from one towards its root."""
        while stage is not None and stage.state == "pending" and not stage._pending:
            if stage.again:
                stage.again = False
                self._set_state(stage, "done")
                self._update_ready(stage)
            elif stage.requests:
                break
            else:
                self._remove(stage)
            stage = stage.parent
        if stage is not None:
            self._mend(stage)

    def _clear(self, top: Stage) -> list[Hashable]:
        """Removes what is below a stage, but for what was done before; returns the requests that waited for it."""
        lost: list[Hashable] = []
        below = list(self.walk(top))[1:]
        for stage in below:
            if not stage.answered:
                lost += stage.requests
        for stage in reversed(below):
            if not stage.answered:
                self._remove(stage)
            elif stage.state == "pending":
                stage.again = False
                self._set_state(stage, "done")
                self._update_ready(stage)
        return lost

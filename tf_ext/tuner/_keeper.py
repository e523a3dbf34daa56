"""Which states stay on disk: those that a pending stage starts from, or may start from; the others go at once."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Hashable, Iterable

from tf_ext.checkpoint.store import Store
from tf_ext.tuner._ledger import Ledger
from tf_ext.tuner.plan import Plan
from tf_ext.tuner.segments import Path
from tf_ext.tuner.stage_tree import Stage, StageTree

__all__ = ["Keeper"]

_STATES = "states"


class Keeper:
    """The checkpoints of a study.

    Args:
        plan: Names them. A name is dropped before its data, and written after them.
        ledger: Tells the nodes of stages.
        tree: Tells what still starts from where.
        cuts: Epochs at which trials may branch, for as long as more of them may come.
        budget: Bytes of states that nothing needs but that may stay, for studies that come later.
    """

    def __init__(self, plan: Plan, ledger: Ledger, tree: StageTree, cuts: Iterable[int], budget: int) -> None:
        self._plan, self._ledger, self._tree = plan, ledger, tree
        self._cuts, self._budget = frozenset(cuts), budget
        self._store = Store(self.directory)
        self._held: dict[Hashable, tuple[int, int]] = {}
        self._holds: collections.Counter[tuple[int, int]] = collections.Counter()
        self.open_ended = True
        self._sweep_orphans()

    @property
    def directory(self) -> pathlib.Path:
        """Where the states lie."""
        return self._plan.directory / _STATES

    def hold(self, name: Hashable, path: Path) -> None:
        """Keeps the state at the end of a path until `release`."""
        self._held[name] = place = self._ledger.spans(path)[-1].node, path[-1].end
        self._holds[place] += 1

    def release(self, name: Hashable, stage: Stage | None) -> None:
        """Ends a `hold`, of the state at the end of a stage."""
        place = self._held.pop(name, None)
        if place is None:
            return
        self._holds[place] -= 1
        if not self._holds[place]:
            del self._holds[place]
            if stage is not None:
                self.drop_unneeded(stage)

    def keeps(self, stage: Stage) -> bool:
        """Whether the state at the end of a stage is needed, or may be."""
        if self._tree.needs_checkpoint(stage) or (self._ledger.node_of(stage), stage.end) in self._holds:
            return True
        return (self.open_ended or self._budget > 0) and stage.end in self._cuts

    def settle(self) -> None:
        """Says that no trial comes that is not known."""
        self.open_ended = False
        for stage in [s for s in self._tree.walk() if s.checkpoint]:
            self.drop_unneeded(stage)
        self._evict()

    def drop_unneeded(self, stage: Stage) -> None:
        """Drops the state at the end of a stage, unless it is needed or there is room for it."""
        if not stage.checkpoint or self.keeps(stage) or self._plan.shared:
            return
        self._tree.drop_checkpoint(stage)
        self._drop(self._ledger.node_of(stage), stage.end, "state")

    def drop_best(self, node: int, epoch: int) -> None:
        """Drops the weights of a best epoch."""
        self._drop(node, epoch, "best")

    def _drop(self, node: int, epoch: int, kind: str) -> None:
        name = self._plan.checkpoint(node, epoch, kind)
        self._plan.drop_checkpoint(node, epoch, kind)
        if name is not None and name in self._store:
            self._store.delete(name)

    def _evict(self) -> None:
        """The oldest states go until the others fit into the budget."""
        if self._budget <= 0 or self._plan.shared:
            return
        sizes = self._plan.checkpoints()
        total = sum(size for _, size in sizes.values())
        for (node, epoch), (_, size) in sizes.items():
            if total <= self._budget:
                return
            self._drop(node, epoch, "state")
            total -= size

    def _sweep_orphans(self) -> None:
        """Deletes states that a killed process wrote and did not live to name in the plan."""
        _ = self._plan.owner
        if self._plan.shared:
            return
        named = {name for kind in ("state", "best") for name, _ in self._plan.checkpoints(kind).values()}
        for name in self._store.names():
            if name not in named:
                self._store.delete(name)
        self._store.collect_garbage(older_than_s=0.0)

"""The stage tree: what is left to train when every common prefix of all requests is trained once.

    tree = StageTree(cost=lambda config, epochs: 2.0 * epochs)
    tree.add("trial 0", path_of({"lr": Sequence.parse("0.1@0|0.01@4")}, 6))
    tree.add("trial 1", path_of({"lr": Sequence.parse("0.1@0|0.05@4")}, 6))
    first, *_ = tree.ready()          # epochs 0 to 4 with 0.1, for both
    tree.start(first)
    tree.finish(first, checkpoint=True)
    len(tree.ready())                 # 2

A request names the end of a path: a trial, or a trial up to a rung. Stages that are done stay as history, so that a later
request is answered at once, or starts from the latest checkpoint on its path (Hippo, sections 3.2 and 4.1).

Nothing here trains, stores or locks anything; the engine and the simulator drive the same tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from tf_ext.tuner._heap import Heap
from tf_ext.tuner._stage import Run, Stage, State
from tf_ext.tuner._tree import Tree
from tf_ext.tuner.segments import Config, Path

__all__ = ["Run", "Stage", "StageTree", "State"]


class StageTree(Tree):
    """Merges the paths of requests into stages and keeps account of what is done.

    Args:
        cost: Takes a config and a number of epochs and returns the seconds that a stage of them is estimated to take.
        cuts: Epochs that no stage crosses, such as those at which new requests may branch off.

    Attributes:
        requested: Epochs of all requests that are known, each counted in full.
        distinct: Epochs of all stages: what has to be run if each is run once.
        executed: Epochs that were run for the first time.
        repeated: Epochs that were run again, for want of a checkpoint.
        work: Seconds that all stages take that are not done.
    """

    def __init__(self, cost: Callable[[Config, int], float], cuts: Iterable[int] = ()) -> None:
        super().__init__(cost, cuts)
        self.requested = 0
        self.executed = 0
        self.repeated = 0
        self._leaves: dict[Hashable, tuple[Stage, int]] = {}

    # --- requests ---

    def add(self, request: Hashable, path: Path, ahead: float = 0.0) -> Stage:
        """Merges the path of a request into the tree.

        Done stages on the path that have to be run once more, because there is no later checkpoint, are pending again.

        Args:
            request: What names it; new to the tree.
            path: Its segments, from epoch 0 on.
            ahead: Seconds of training that may follow its end once its result is known: of a trial up to a rung, the time
                to its last rung. Makes the chain longer that ends with it, so that nobody waits for the rung to be full.

        Returns:
            The stage with which it ends. If that is `answered`, its result is known and nothing is run for it. It ends before
            the path does where training has stopped by itself.

        Raises:
            ValueError: The request is in the tree, or the path has gaps.
        """
        if request in self._leaves:
            raise ValueError(f"expected a request that is new to the tree, got {request!r} for the second time.")
        ends = [0, *(segment.end for segment in path)]
        if len(ends) == 1 or any(segment.start != end for segment, end in zip(path, ends, strict=False)):
            raise ValueError(f"expected segments that follow each other from epoch 0 on, got {path!r}.")
        leaf = new = None
        for config, end in self._pieces(path):
            while leaf is None or (leaf.end < end and not leaf.stopped):
                child = self._siblings(leaf).get(config)
                if child is None:
                    child = self._attach(leaf, end, config)
                    new = new or child
                elif child.end > end:
                    child = self._split(child, end)
                leaf = child
        assert leaf is not None
        leaf.requests[request] = ahead
        self._leaves[request] = leaf, ends[-1]
        self.requested += ends[-1]
        self._refresh(leaf, until=new or leaf)
        self._walk_back(leaf)
        return leaf

    def discard(self, request: Hashable) -> None:
        """Forgets a request; KeyError if it is not in the tree.

        Pending stages that no request needs any more leave the tree; running ones run on.
        """
        self._tidy(self._forget(request))

    def leaf(self, request: Hashable) -> Stage:
        """The stage with which a request ends; KeyError if it is not in the tree."""
        return self._leaves[request][0]

    def __contains__(self, request: object) -> bool:
        return request in self._leaves

    # --- execution ---

    def start(self, stage: Stage) -> Run:
        """Marks a ready stage as running; ValueError if it is not ready."""
        if stage not in self._ready:
            raise ValueError(f"expected a stage that is ready, got {stage!r}. `StageTree.ready` lists them.")
        stage.run = Run([stage])
        self._set_state(stage, "running")
        self._update_ready(stage)
        return stage.run

    def finish(self, stage: Stage, checkpoint: bool) -> list[Hashable]:
        """Marks a running stage as done, together with those before it in its run.

        The rest of the run goes on: an engine that saves its state at the ends of earlier stages can finish them one by one.
        Those before `stage` get no checkpoint.

        Args:
            stage: What is done. One that has left the tree meanwhile answers nothing.
            checkpoint: Whether the state at its end can be forked from.

        Returns:
            The requests that are answered by it.
        """
        parts = self._leave_run(stage)
        answered: list[Hashable] = []
        for part in parts:
            if part.again:
                self.repeated += part.epochs
            else:
                self.executed += part.epochs
                answered += part.requests
            part.again = False
            part.checkpoint = checkpoint and part is stage
            self._set_state(part, "done")
        for part in reversed(parts):
            self._settle(part)
        return answered

    def requeue(self, stage: Stage) -> None:
        """Makes the whole run of a stage pending: its worker is lost.

        Stages that nobody waits for any more leave the tree. Where the checkpoint is gone from which it started, the
        stages up to the latest one are pending again.
        """
        parts = self._leave_run(stage, whole=True)
        for part in parts:
            self._set_state(part, "pending")
        for part in parts:
            self._settle(part)
        for part in reversed(parts):
            self._tidy(part)

    def stop(self, stage: Stage, epoch: int | None = None) -> list[Hashable]:
        """Marks a running stage as done because training ended by itself in it, and all below it as done with it.

        Every path that comes through here later ends here, too.

        Args:
            stage: Where training ended; with `epoch`, any stage of the run.
            epoch: How many epochs were done then; the end of the stage if left out.

        Returns:
            The requests that are answered: its own, those of the stages before it in its run, and all that wait below.

        Raises:
            ValueError: The epoch is not in the run.
        """
        if stage.state == "gone":
            return []
        if epoch is not None:
            parts = stage.run.stages if stage.run is not None else [stage]
            stage = next((part for part in parts if part.start < epoch <= part.end), stage)
            if not stage.start < epoch <= stage.end:
                raise ValueError(f"expected an epoch after {parts[0].start} and up to {parts[-1].end}, got {epoch}.")
        below = self._clear(stage)
        for request in below:
            stage.requests[request] = 0.0
            self._leaves[request] = stage, self._leaves[request][1]
        # What follows on a stage that is run again is known: it did not end there the first time.
        if not stage.again:
            stage.stopped = True
            if epoch is not None:
                self.distinct -= stage.end - epoch
                stage.end = epoch
                self._reckon(stage)
            below = []
        return self.finish(stage, checkpoint=False) + below

    def fail(self, stage: Stage) -> list[Hashable]:
        """Takes a pending or running stage out of the tree with all that was to come after it.

        If it is running its whole run has failed. What was done before stays: a failed repetition is as if it had not been
        asked for.

        Returns:
            The requests that cannot be answered. The tree has forgotten them.
        """
        if stage.state == "done":
            raise ValueError(f"expected a stage that is not done, got {stage!r}.")
        if stage.state == "gone":
            return []
        top = stage if stage.run is None else stage.run.stages[0]
        if stage.run is not None:
            for part in self._leave_run(stage, whole=True):
                self._set_state(part, "pending")
        lost = self._clear(top) + ([] if top.answered else list(top.requests))
        for request in lost:
            self._forget(request)
        self._tidy(top)
        return lost

    # --- checkpoints ---

    def drop_checkpoint(self, stage: Stage) -> None:
        """Notes that the state at the end of a stage cannot be forked from any more.

        If pending stages still wait for it, it is pending again.
        """
        if stage.checkpoint:
            stage.checkpoint = False
            for child in list(self._forks.get(stage, ())):
                self._unready(child)
            self._settle(stage)

    def needs_checkpoint(self, stage: Stage) -> int:
        """How many stages depend on the state at the end of this one.

        Those are its children that have not started, and those that are running: a lost worker begins them anew.
        """
        return stage._pending + stage._running

    # --- what to do next ---

    def ready(self) -> list[Stage]:
        """The stages that can start now, in no particular order."""
        return list(self._ready)

    def ready_heap(self) -> Heap[Stage]:
        """The ready stages by what remains from them on; only to be looked at."""
        return self._ready

    def ready_below(self, parent: Stage | None) -> Heap[Stage] | None:
        """The ready stages below one parent (None: the roots) by what remains from them on; None if there are none."""
        return self._forks.get(parent)

    def forks(self) -> Iterable[Stage | None]:
        """The parents of the ready stages; None stands for the roots."""
        return self._forks.keys()

    def remaining(self, stage: Stage) -> float:
        """Seconds of the longest chain that is not done from a stage down, with what may follow it."""
        return stage.remaining

    @property
    def roots(self) -> list[Stage]:
        """The stages with which training begins."""
        return list(self._roots.values())

    @property
    def open(self) -> list[Stage]:
        """The stages that are pending or running."""
        return list(self._open)

    def __len__(self) -> int:
        """How many stages are not done."""
        return len(self._open)

    def __bool__(self) -> bool:
        return True  # a tree in which all is done is a tree

    def _forget(self, request: Hashable) -> Stage:
        leaf, epochs = self._leaves.pop(request)
        leaf.requests.pop(request, None)
        self.requested -= epochs
        self._refresh(leaf)
        return leaf

    @staticmethod
    def _leave_run(stage: Stage, whole: bool = False) -> list[Stage]:
        """Takes a stage and those before it out of their run, or the whole run."""
        if stage.state == "gone":
            return []
        if stage.run is None:
            raise ValueError(f"expected a stage that is running, got {stage!r}.")
        stages = stage.run.stages
        count = len(stages) if whole else stages.index(stage) + 1
        parts, stages[:count] = stages[:count], []
        for part in parts:
            part.run = None
        return parts

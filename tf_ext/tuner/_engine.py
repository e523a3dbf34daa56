"""Drives a study: merges what trials ask for into the stage tree, has its stages trained, and answers the trials.

    requests -> stage tree -> scheduler -> executor -> plan

All that is known is in the plan; the tree is what is left to do, made anew from the plan when a search begins again.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import keras_tuner

from tf_ext.checkpoint.errors import CheckpointNotFoundError, CorruptedCheckpointError
from tf_ext.tuner._job import Job, StageResult, StageTask
from tf_ext.tuner._keeper import Keeper
from tf_ext.tuner._ledger import Ledger
from tf_ext.tuner.executors import Done, Executor
from tf_ext.tuner.plan import Plan, Run
from tf_ext.tuner.scheduler import CriticalPathScheduler
from tf_ext.tuner.segments import Config, Path, Segment
from tf_ext.tuner.stage_tree import Stage, StageTree

__all__ = ["Answer", "Engine"]

EXECUTION = "tuner/execution"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        request: Its name.
        error: The traceback, if training failed.
        exception: What was raised, where it is known.
    """

    request: Hashable
    error: str | None = None
    exception: BaseException | None = None


class Engine:
    """The stages of one study, from requests to answers.

    Args:
        plan: Where everything is written down.
        context: Number of what the trials have in common; see `Plan.context`.
        job: How stages are trained.
        executor: Who trains them.
        cuts: Epochs at which trials may branch.
        memory: Bytes of states that may stay in memory.
        budget: Bytes of states on disk that may stay though nothing needs them.
        on_change: Called when something has happened, for a display.
    """

    def __init__(
        self,
        plan: Plan,
        context: int,
        job: Job,
        executor: Executor,
        *,
        cuts: Iterable[int] = (),
        memory: int = 256 << 20,
        budget: int = 0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan, self._job, self._executor = plan, job, executor
        self._ledger = Ledger(plan, context, job.objective)
        self._trained = (0.0, 0)  # seconds and epochs, to estimate what is left
        self.tree = StageTree(self._estimate, cuts)
        self.scheduler = CriticalPathScheduler(self.tree, executor.workers)
        self._on_change = on_change
        self._running: dict[int, Stage] = {}
        self._last: dict[int, Stage | None] = dict.fromkeys(range(executor.workers))
        self._elsewhere: set[Stage] = set()
        self._ready: list[Answer] = []
        self.steps = self.repeated = 0
        self.requested = 0.0
        self.seconds = 0.0
        self.keeper = Keeper(plan, self._ledger, self.tree, cuts, budget)
        executor.start(job, self.keeper.directory, memory)

    # --- requests ----------------------------------------------------------------------------------------------------

    def request(self, name: Hashable, path: Path, ahead: int = 0) -> None:
        """Asks for the training of a path; `advance` answers.

        Args:
            name: What the answer is told by.
            path: The path.
            ahead: Epochs that may be asked for once this is answered.
        """
        self._learn(path)
        leaf = self.tree.add(name, path, self._estimate((), ahead))
        if leaf.answered:
            self._answer(name)

    def release(self, name: Hashable, path: Path) -> None:
        """Says that nothing more will be asked of a path that the keeper holds."""
        self.keeper.release(name, self._deepest(path))

    def history(self, path: Path) -> list[dict[str, float]]:
        """The metrics of each epoch of a path that was trained; shorter where training stopped by itself."""
        return self._ledger.history(path)

    def best(self, path: Path) -> tuple[int, int] | None:
        """Node and epoch, from 0 on, of the best epoch of a path."""
        return self._ledger.best(path)

    def leaf(self, path: Path) -> int:
        """Number of the node at which a path ends."""
        return self._ledger.spans(path)[-1].node

    def count(self, path: Path, start: int) -> None:
        """Adds the steps of a trial, from an epoch on, to what training each trial by itself would have taken."""
        self.requested += self._ledger.steps(path, start)

    @property
    def merge_rate(self) -> float | None:
        """Steps that the trials that ended would have taken by themselves, over those that were trained for them."""
        executed = self.steps + self.repeated
        return self.requested / executed if executed and self.requested else None

    @property
    def workers(self) -> int:
        """How many train at a time."""
        return self._executor.workers

    @property
    def pending(self) -> int:
        """Stages that are not done."""
        return len(self.tree)

    def close(self) -> None:
        """Stops the workers. What is finished is in the plan."""
        self._executor.close()
        for stage in self._running.values():
            self._plan.release(self._ledger.node_of(stage), stage.start)

    # --- execution ---------------------------------------------------------------------------------------------------

    def advance(self, timeout: float = 1.0) -> list[Answer]:
        """Gives free workers something to do, waits for a stage to end, and returns what is answered."""
        self._look_elsewhere()
        self._dispatch()
        if not self._ready and (self._running or self._elsewhere):
            for done in self._executor.wait(timeout if self._running else min(timeout, 0.1)):
                self._take(done)
        answers, self._ready = self._ready, []
        return answers

    def _dispatch(self) -> None:
        for worker in range(self._executor.workers):
            while worker not in self._running:
                stage = self.scheduler.pick(worker, self._last[worker])
                if stage is None:
                    return
                self._start(worker, stage)

    def _start(self, worker: int, stage: Stage) -> None:
        node = self._ledger.node_of(stage)
        self.tree.start(stage)
        if not self._plan.claim(node, stage.start, stage.end):
            self._elsewhere.add(stage)
            return
        if not stage.again and self._ledger.refresh(node, stage.start):
            self._plan.release(node, stage.start)  # another study trained it in the meantime
            self._take_known(stage)
            return
        task = self._task(stage, node)
        self._running[worker] = stage
        self._last[worker] = stage
        self._plan.log("start", {"node": node, "start": stage.start, "end": stage.end, "worker": worker})
        self._on_change()
        self._executor.submit(worker, task)

    def _task(self, stage: Stage, node: int) -> StageTask:
        parent = stage.parent
        state = None if parent is None else self._plan.checkpoint(self._ledger.node_of(parent), parent.end)
        best = self._ledger.best_before(stage)
        keep = f"n{node}-e{stage.end}" if stage.again or self.keeper.keeps(stage) else None
        return StageTask(
            node=node,
            start=stage.start,
            end=stage.end,
            config=plain(stage.config),
            before=None if parent is None else plain(parent.config),
            state=state,
            execution=int(dict(stage.config).get(EXECUTION, 0)),
            best=best,
            keep=keep,
            keep_best=f"b{node}-s{stage.start}",
        )

    def _take(self, done: Done) -> None:
        stage = self._running.pop(done.worker)
        node = self._ledger.node_of(stage)
        if done.result is not None:
            self._finish(stage, node, done.task, done.result)
        elif done.lost:
            self._plan.release(node, done.task.start)
            self.tree.requeue(stage)
        elif (
            isinstance(done.exception, CheckpointNotFoundError | CorruptedCheckpointError) and stage.parent is not None
        ):
            # Another study dropped it, or the disk did: what leads there is trained again.
            parent = next(a for a in _ancestors(stage) if a.end == done.task.start)  # it may have been cut meanwhile
            self._plan.release(node, done.task.start)
            self._plan.drop_checkpoint(self._ledger.node_of(parent), parent.end)
            self.tree.requeue(stage)
            self.tree.drop_checkpoint(parent)
        else:
            self._plan.release(node, done.task.start)
            self._fail(stage, done)
        self._on_change()

    def _fail(self, stage: Stage, done: Done) -> None:
        if isinstance(done.exception, keras_tuner.errors.FatalError):
            raise done.exception
        if isinstance(done.exception, OSError) and done.exception.errno in _NO_SPACE:
            raise OSError(
                done.exception.errno,
                f"expected room for a checkpoint in {self.keeper.directory}, but the disk is full. Nothing that is in "
                "the plan is lost: make room, and run the search again to go on",
            ) from done.exception
        for request in self.tree.fail(stage):
            self._ready.append(Answer(request, done.error, done.exception))

    def _finish(self, stage: Stage, node: int, task: StageTask, result: StageResult) -> None:
        again = stage.again
        run = Run(
            node,
            task.start,
            task.start + len(result.history),
            result.history,
            result.steps,
            result.seconds,
            result.stopped,
        )
        with self._plan.transaction():
            self._plan.record(run, again=again)
            if result.bytes and task.keep is not None and not result.stopped:
                self._plan.add_checkpoint(node, task.end, task.keep, result.bytes)
            if result.best_epoch is not None and task.keep_best is not None:
                self._plan.add_checkpoint(node, result.best_epoch, task.keep_best, result.best_bytes, "best")
        self.steps += 0 if again else result.steps
        self.repeated += result.steps if again else 0
        self.seconds += result.seconds
        self._trained = self._trained[0] + run.seconds, self._trained[1] + len(run.history)
        if not again:
            self._ledger.add(run)
        self._mark(stage, run, checkpoint=bool(result.bytes))

    def _mark(self, stage: Stage, run: Run, *, checkpoint: bool) -> None:
        ended = run.stopped and not stage.again
        answered = self.tree.stop(stage, run.end) if ended else self.tree.finish(stage, checkpoint)
        for request in answered:
            self._answer(request)
        for each in (stage.parent, stage):
            if each is not None:
                self.keeper.drop_unneeded(each)

    def _answer(self, request: Hashable) -> None:
        self._ready.append(Answer(request))

    def forget(self, request: Hashable) -> None:
        """Takes an answered request out of the tree."""
        if request in self.tree:
            self.tree.discard(request)

    # --- what others do, and did -------------------------------------------------------------------------------------

    def _learn(self, path: Path) -> None:
        """Marks as done what the plan knows of a path, before the path is asked for."""
        for position, (prefix, run) in enumerate(self._ledger.unseen(path)):
            name = ("known", position)
            leaf = self.tree.add(name, prefix)
            for stage in reversed([leaf, *_ancestors(leaf)]):
                if stage.state != "pending" or stage not in self.tree.ready_heap():
                    continue
                self.tree.start(stage)
                if run.stopped and stage is leaf:
                    self.tree.stop(stage)
                else:
                    self.tree.finish(stage, checkpoint=True)
            self.tree.discard(name)
        deepest = self._deepest(path)
        for known in [] if deepest is None else [deepest, *_ancestors(deepest)]:
            node = self._ledger.node_of(known)
            if known.checkpoint and self._plan.checkpoint(node, known.end) is None:
                self.tree.drop_checkpoint(known)

    def _deepest(self, path: Path) -> Stage | None:
        """The last stage of the tree on a path that is done."""
        found, stages = None, self.tree.roots
        configs = {segment.start: segment for segment in path}
        while stages:
            start = stages[0].start
            segment = next((s for s in path if s.start <= start < s.end), configs.get(start))
            chosen = next((s for s in stages if segment is not None and s.config == segment.config), None)
            if chosen is None or chosen.state != "done":
                return found
            found, stages = chosen, chosen.children
        return found

    def _look_elsewhere(self) -> None:
        """Looks after stages that another process trains."""
        for stage in list(self._elsewhere):
            node = self._ledger.node_of(stage)
            if self._ledger.refresh(node, stage.start) and not stage.again:
                self._elsewhere.remove(stage)
                self._take_known(stage)
            elif self._plan.claim(node, stage.start, stage.end):  # given up, or its process died
                self._plan.release(node, stage.start)
                self._elsewhere.remove(stage)
                self.tree.requeue(stage)

    def _take_known(self, stage: Stage) -> None:
        """A running stage of the tree that turns out to be trained already."""
        node = self._ledger.node_of(stage)
        run = self._ledger.run_at(node, stage.start)
        if run.end < stage.end and not run.stopped:
            self.tree.requeue(stage)  # a part of it; the tree is told of that part, and the rest stays to be done
            self._learn_part(stage, run)
            return
        known = self._plan.checkpoint(node, stage.end) is not None
        self._mark(stage, dataclasses.replace(run, end=min(run.end, stage.end)), checkpoint=known)

    def _learn_part(self, stage: Stage, run: Run) -> None:
        path = path_to(stage)
        cut = (*path[:-1], dataclasses.replace(path[-1], end=run.end))
        name = ("part", stage.serial)
        leaf = self.tree.add(name, cut)
        self.tree.start(leaf)
        self.tree.finish(leaf, self._plan.checkpoint(run.node, run.end) is not None)
        self.tree.discard(name)

    # --- costs -------------------------------------------------------------------------------------------------------

    def _estimate(self, config: Config, epochs: int) -> float:
        seconds, count = self._trained
        return epochs * (seconds / count if count else 1.0)


def plain(config: Config) -> Config:
    """A configuration without what is not the build function's."""
    return tuple((name, value) for name, value in config if name != EXECUTION)


def path_to(stage: Stage) -> Path:
    """The path of a stage, from the beginning to its end."""
    chain: list[Any] = [stage, *_ancestors(stage)]
    return tuple(Segment(s.start, s.end, s.config) for s in reversed(chain))


def _ancestors(stage: Stage | None) -> list[Stage]:
    found: list[Stage] = []
    while stage is not None and stage.parent is not None:
        stage = stage.parent
        found.append(stage)
    return found

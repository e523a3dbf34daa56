"""The events of a simulated execution: stages end, trials are promoted, free workers get stages."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tf_ext.tuner._study import StudyDefinition, synthetic_score
from tf_ext.tuner.scheduler import Scheduler
from tf_ext.tuner.segments import Config, Path, Segment
from tf_ext.tuner.stage_tree import Stage, StageTree

__all__ = ["Driver", "Execution", "MakeScheduler", "Request"]


class Request(NamedTuple):
    """A trial up to the end of a rung."""

    study: int
    trial: int
    rung: int


class MakeScheduler(Protocol):
    """The constructor of a scheduler."""

    def __call__(self, tree: StageTree, workers: int, clock: Callable[[], float]) -> Scheduler:
        """Makes a scheduler of a tree."""
        ...


@dataclasses.dataclass(frozen=True)
class Execution:
    """What one simulated execution took.

    Attributes:
        makespan: Seconds from the first stage's beginning to the last one's end.
        gpu_hours: Hours that workers were busy, all together.
        epochs: That were run.
        stages: That were run.
        switches: How often a worker had to load a checkpoint: it ran what does not follow what it had run before.
        lower_bound: Seconds that no schedule can go below: the longest chain, or all work shared equally by all workers;
            with successive halving rung by rung.
        tighter_bound: The same for a bound that also knows that stages are not divisible and begin after their parents.
    """

    makespan: float
    gpu_hours: float
    epochs: int
    stages: int
    switches: int
    lower_bound: float = 0.0
    tighter_bound: float = 0.0


class Driver:
    """Executes studies on a clock of its own.

    Args:
        studies: That run at the same time.
        workers: How many there are.
        cost: Seconds of a stage.
        scheduler: Makes the scheduler.
        share: Whether trials share stages.
        replay: For ASHA: who was promoted in another execution, and how many trials of the rung had ended then.

    Attributes:
        decisions: Who was promoted in this one, and how many trials of the rung had ended then.
        tree: The stages.
        now: Simulated seconds since the beginning.
    """

    def __init__(
        self,
        studies: Sequence[StudyDefinition],
        workers: int,
        cost: Callable[[Config, int], float],
        scheduler: MakeScheduler,
        share: bool,
        replay: dict[Request, int] | None = None,
    ) -> None:
        self.studies = studies
        self.workers = workers
        self.share = share
        self.decisions: dict[Request, int] = {}
        self.tree = StageTree(cost, self._cuts())
        self.now = 0.0
        self._replay = replay
        self._scheduler = scheduler(self.tree, workers, lambda: self.now)
        self._scores: dict[tuple[int, int], dict[int, float]] = {}  # by study and rung, then by trial
        self._events: list[tuple[float, int, int, Stage]] = []
        self._last: dict[int, Stage | None] = dict.fromkeys(range(workers))
        self._free = list(range(workers))
        self._busy_s = 0.0
        self._stages = 0
        self._switches = 0

    def run(self) -> None:
        """Runs all studies to their ends."""
        for number, study in enumerate(self.studies):
            for trial in range(len(study.trials)):
                self._request(Request(number, trial, 0))
        while len(self.tree):
            self._start()
            if not self._events:
                raise RuntimeError(f"expected a stage to run, got none of the {len(self.tree)} that are left.")
            self.now = self._events[0][0]
            ended = []
            # What ends at the same time is seen at the same time, before anything new begins.
            while self._events and self._events[0][0] <= self.now:
                _, _, worker, stage = heapq.heappop(self._events)
                ended += self.tree.finish(stage, checkpoint=True)
                self._free.append(worker)
                self._last[worker] = stage
            self._answer(ended)

    def result(self) -> Execution:
        """What it took, without bounds."""
        epochs = self.tree.executed + self.tree.repeated
        return Execution(self.now, self._busy_s / 3600, epochs, self._stages, self._switches)

    def phases(self) -> list[list[Stage]]:
        """The stages in parts of which each begins when the one before has ended: the rungs of successive halving.

        Other studies have one, and so have several studies together: one may run ahead of the other and share with it.
        """
        rungs = max(len(study.rungs(trial)) for study in self.studies for trial in range(len(study.trials)))
        if len(self.studies) > 1 or self.studies[0].algorithm != "sha":
            return [list(self.tree.walk())]
        phase: dict[Stage, int] = {}
        for rung in range(rungs):
            requests = (
                self.decisions if rung else [Request(0, trial, 0) for trial in range(len(self.studies[0].trials))]
            )
            for request in requests:
                stage: Stage | None = self.tree.leaf(request) if request.rung == rung else None
                while stage is not None and stage not in phase:
                    phase[stage] = rung
                    stage = stage.parent
        return [[stage for stage in self.tree.walk() if phase[stage] == rung] for rung in range(rungs)]

    def path(self, request: Request) -> Path:
        """The path of a request; where nothing is shared each trial has a config of its own."""
        study = self.studies[request.study]
        path = study.path(request.trial, study.rungs(request.trial)[request.rung])
        if self.share:
            return path
        own = ("(trial)", f"{request.study}/{request.trial}")
        return tuple(Segment(segment.start, segment.end, (*segment.config, own)) for segment in path)

    def _cuts(self) -> set[int]:
        """Where a later request may leave a stage: it would have to be run again from its beginning if it were not cut.

        Requests that come together cut each other where it is needed.
        """
        if not self.share or (len(self.studies) == 1 and self.studies[0].algorithm != "asha"):
            return set()
        trials = [(study, trial) for study in self.studies for trial in range(len(study.trials))]
        return {s.end for study, trial in trials for s in study.path(trial, study.trials[trial][1])}

    def _start(self) -> None:
        idle = []
        for worker in sorted(self._free):
            stage = self._scheduler.pick(worker, self._last[worker])
            if stage is None:
                idle.append(worker)
                continue
            self.tree.start(stage)
            last = self._last[worker]
            self._switches += last is not None and stage.parent is not last
            self._stages += 1
            self._busy_s += stage.cost
            heapq.heappush(self._events, (self.now + stage.cost, stage.serial, worker, stage))
        self._free = idle

    # --- who goes on ---

    def _request(self, request: Request) -> None:
        study = self.studies[request.study]
        end, last = study.rungs(request.trial)[request.rung], study.trials[request.trial][1]
        coming = [segment for segment in study.path(request.trial, last) if segment.end > end]
        ahead = sum(self.tree.cost(segment.config, segment.end - max(segment.start, end)) for segment in coming)
        if self.tree.add(request, self.path(request), ahead).answered:
            self._answer([request])

    def _answer(self, ended: Sequence[object]) -> None:
        touched: dict[tuple[int, int], None] = {}
        for request in ended:
            assert isinstance(request, Request)
            study = self.studies[request.study]
            score = synthetic_score(study.path(request.trial, study.rungs(request.trial)[request.rung]), study.seed)
            self._scores.setdefault((request.study, request.rung), {})[request.trial] = score
            touched[request.study, request.rung] = None
        for number, rung in touched:
            promoted = [Request(number, trial, rung + 1) for trial in self._promoted(number, rung)]
            self.decisions |= dict.fromkeys(promoted, len(self._scores[number, rung]))
            for request in promoted:
                self._request(request)

    def _promoted(self, number: int, rung: int) -> list[int]:
        """The trials that go on from a rung now and have not before."""
        study, scores = self.studies[number], self._scores[number, rung]
        going = [trial for trial in scores if rung + 1 < len(study.rungs(trial))]
        new = [trial for trial in going if Request(number, trial, rung + 1) not in self.decisions]
        if study.algorithm == "asha":
            if self._replay is not None:
                needed = {trial: self._replay.get(Request(number, trial, rung + 1)) for trial in new}
                return [trial for trial, count in needed.items() if count is not None and count <= len(scores)]
            best = self._best(going, scores, len(scores) // study.reduction)
            return [trial for trial in best if trial in set(new)]
        if len(scores) < self._width(number, rung):
            return []
        return self._best(going, scores, max(1, len(scores) // study.reduction)) if new == going else []

    def _width(self, number: int, rung: int) -> int:
        """How many trials take part in a rung of successive halving."""
        if rung == 0:
            return len(self.studies[number].trials)
        return sum(request.study == number and request.rung == rung for request in self.decisions)

    @staticmethod
    def _best(trials: list[int], scores: dict[int, float], count: int) -> list[int]:
        return sorted(trials, key=lambda trial: (-scores[trial], trial))[:count]

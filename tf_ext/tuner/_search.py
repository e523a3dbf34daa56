"""The search: opens trials as the oracle suggests them, has their paths trained, and reports what came of them."""

from __future__ import annotations

import dataclasses
import time
import traceback
from typing import Any, cast

import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial, TrialStatus

from tf_ext.tuner._discovery import Discovery
from tf_ext.tuner._display import Display
from tf_ext.tuner._engine import EXECUTION, Answer, Engine
from tf_ext.tuner._preparing import path_for
from tf_ext.tuner.errors import TunerError
from tf_ext.tuner.oracles import StagedOracle
from tf_ext.tuner.plan import Plan, TrialRecord
from tf_ext.tuner.segments import Path

__all__ = ["Search"]

_IDLE_SECONDS = (0.01, 1.0)


@dataclasses.dataclass
class _Open:
    """A trial that is not ended.

    Attributes:
        trial: It.
        slot: Number of the virtual tuner that asked for it.
        paths: That of each execution, up to the present target.
        waiting: Executions that are not answered.
        error: What went wrong.
    """

    trial: Trial
    slot: int
    paths: dict[int, Path]
    waiting: set[int]
    error: Answer | None = None


class Search:
    """One call of `Tuner.search`, or one trial of it where another process holds the oracle.

    Args:
        oracle: What suggests trials.
        engine: What trains them.
        plan: Where they are written down.
        study: Number of the study in the plan.
        context: Number of the context in the plan.
        epochs: Epochs of a trial, where the oracle does not say.
        executions: Executions of each trial.
        tuner: Told about the begin and the end of each trial.
        display: Shown what happens.
        discovery: What finds hyper-parameters that only some trials have.
    """

    def __init__(
        self,
        oracle: StagedOracle,
        engine: Engine,
        plan: Plan,
        study: int,
        context: int,
        *,
        epochs: int,
        executions: int,
        tuner: Any,
        display: Display,
        discovery: Discovery,
    ) -> None:
        self._oracle, self._engine, self._plan = oracle, engine, plan
        self._study, self._context = study, context
        self._epochs, self._executions = epochs, executions
        self._tuner, self._display, self._discovery = tuner, display, discovery
        self._open: dict[str, _Open] = {}
        self._resumable: dict[str, dict[int, Path]] = {}
        self._exhausted = False

    def run(self) -> None:
        """Searches until the oracle stops."""
        pause = _IDLE_SECONDS[0]
        while True:
            opened = self._fill()
            if not self._open:
                if self._exhausted:
                    break
                time.sleep(pause)  # the oracle waits for a process that is not ours
                pause = min(2 * pause, _IDLE_SECONDS[1])
                continue
            pause = _IDLE_SECONDS[0]
            answers = self._engine.advance()
            if not answers and not opened and not self._engine.pending:
                raise TunerError(f"expected trials to be trained, but nothing is left to do for {sorted(self._open)}.")
            for answer in answers:
                self._take(answer)
            self._release_resumable()

    def run_one(self, trial: Trial) -> dict[str, float]:
        """Trains one trial and returns its metrics; for a tuner whose oracle is elsewhere.

        Raises:
            keras_tuner.errors.FailedTrialError: It failed.
        """
        entry = self._begin(trial, 0)
        while entry.waiting:
            for answer in self._engine.advance():
                self._note(answer)
        self._open.pop(trial.trial_id)
        if entry.error is not None:
            self._write(entry, "FAILED", None, entry.error.error)
            raise keras_tuner.errors.FailedTrialError(entry.error.error or "the training failed")
        metrics, _ = self._metrics(entry)
        self._write(entry, "COMPLETED", metrics)
        return metrics

    # --- opening -----------------------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Opens trials, as many as the oracle allows; whether there were any."""
        opened = False
        limit = self._oracle.lookahead
        while not self._exhausted and (limit is None or len(self._open) < limit):
            slot = next(n for n in range(len(self._open) + 1) if all(e.slot != n for e in self._open.values()))
            self._tuner.pre_create_trial()
            trial = self._oracle.create_trial(f"{self._tuner.tuner_id}-{slot}")
            if trial.status == TrialStatus.STOPPED:
                self._exhausted = True
                self._engine.keeper.settle()
            elif trial.status == TrialStatus.IDLE:
                break
            else:
                opened = True
                self._tuner.on_trial_begin(trial)
                self._begin(trial, slot)
        self._display.refresh()
        return opened

    def _begin(self, trial: Trial, slot: int) -> _Open:
        if self._discovery.look(trial.hyperparameters):
            self._oracle.update_space(trial.hyperparameters)
        entry = self._open[trial.trial_id] = _Open(trial, slot, {}, set())
        try:
            self._ask(entry, self._oracle.first_target(trial, self._epochs))
        except Exception as error:
            entry.error = Answer(trial.trial_id, traceback.format_exc(), error)
            self._end(entry)
        return entry

    def _ask(self, entry: _Open, epochs: int) -> None:
        ahead = max(0, max(self._oracle.cut_epochs(), default=0) - epochs)
        for execution in range(self._executions):
            extra = {EXECUTION: execution} if execution else None
            path = path_for(entry.trial.hyperparameters, epochs, extra)
            entry.paths[execution] = path
            entry.waiting.add(execution)
            if self._oracle.goes_on():
                self._engine.keeper.hold(
                    (entry.trial.trial_id, execution, epochs), path
                )  # until it is known what follows
            self._engine.request((entry.trial.trial_id, execution, epochs), path, ahead)
        self._write(entry, "RUNNING", None)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _take(self, answer: Answer) -> None:
        entry = self._note(answer)
        if entry is None or entry.waiting:
            return
        reached = dict(entry.paths)
        self._decide(entry)
        for execution, path in reached.items():
            self._engine.release((entry.trial.trial_id, execution, path[-1].end), path)

    def _decide(self, entry: _Open) -> None:
        """Ends a trial that has reached its target, or gives it another one."""
        if entry.error is None:
            history = self._engine.history(entry.paths[0])
            target = None
            if len(history) >= entry.paths[0][-1].end:  # otherwise the training ended by itself
                target = self._oracle.advance(entry.trial.trial_id, history)
            if target is not None:
                self._ask(entry, target)
                return
        self._end(entry)

    def _note(self, answer: Answer) -> _Open | None:
        trial_id, execution, _ = cast("tuple[str, int, int]", answer.request)
        entry = self._open.get(trial_id)
        self._engine.forget(answer.request)
        if entry is not None:
            entry.waiting.discard(execution)
            if answer.error is not None:
                entry.error = answer
        return entry

    def _end(self, entry: _Open) -> None:
        trial = entry.trial
        self._open.pop(trial.trial_id, None)
        if self._oracle.goes_on():
            for execution, path in entry.paths.items():
                self._engine.keeper.hold((trial.trial_id, execution), path)
            self._resumable[trial.trial_id] = entry.paths
        if entry.error is not None:
            failed = isinstance(entry.error.exception, keras_tuner.errors.FailedTrialError)
            trial.status = TrialStatus.FAILED if failed else TrialStatus.INVALID
            trial.message = entry.error.error
            self._write(entry, "FAILED", None, trial.message)
        else:
            metrics, step = self._metrics(entry)
            for path in entry.paths.values():
                self._engine.count(path, int(trial.hyperparameters.values.get("tuner/initial_epoch", 0)))
            self._oracle.update_trial(trial.trial_id, metrics, step=step)
            trial.status = TrialStatus.COMPLETED
            self._write(entry, "COMPLETED", metrics)
        self._tuner._trial_ended(trial, entry.paths)
        self._tuner.on_trial_end(trial)
        self._display.trial_ended(self._oracle.get_trial(trial.trial_id))

    def _metrics(self, entry: _Open) -> tuple[dict[str, float], int]:
        """The metrics of the best epoch, averaged over the executions; and that epoch."""
        found, steps = [], []
        for path in entry.paths.values():
            best = self._engine.best(path)
            if best is None:
                raise keras_tuner.errors.FatalValueError(
                    f"expected the objective {self._oracle.objective.name!r} in at least one epoch of a trial, found none."
                )
            logs = dict(self._engine.history(path)[best[1]])
            logs.setdefault(self._oracle.objective.name, float(self._oracle.objective.get_value(logs)))
            found.append(logs)
            steps.append(best[1])
        names = [name for name in found[0] if all(name in logs for logs in found)]  # some epochs are not validated
        return {name: float(np.mean([logs[name] for logs in found])) for name in names}, int(np.mean(steps))

    def _release_resumable(self) -> None:
        for trial_id, paths in list(self._resumable.items()):
            if not self._oracle.can_resume(trial_id):
                del self._resumable[trial_id]
                for execution, path in paths.items():
                    self._engine.release((trial_id, execution), path)

    def _write(self, entry: _Open, status: str, metrics: dict[str, float] | None, message: str | None = None) -> None:
        trial = entry.trial
        with self._plan.transaction():
            for execution, path in entry.paths.items():
                best = self._engine.best(path) if status == "COMPLETED" else None
                score = None if metrics is None else metrics[self._oracle.objective.name]
                self._plan.put_trial(
                    self._study,
                    TrialRecord(
                        trial=trial.trial_id,
                        execution=execution,
                        values=dict(trial.hyperparameters.values),
                        context=self._context,
                        leaf=self._engine.leaf(path),
                        epochs=path[-1].end,
                        status=status,
                        score=score,
                        best_epoch=None if best is None else best[1],
                        message=message,
                    ),
                )

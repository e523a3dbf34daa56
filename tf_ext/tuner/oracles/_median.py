"""Median stopping, in front of any oracle."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._checks import check_whole
from tf_ext.tuner.oracles._curves import Curves
from tf_ext.tuner.oracles._forwarding import ForwardingOracle
from tf_ext.tuner.oracles._journal import Event, Journal
from tf_ext.tuner.oracles._staged import History, StagedOracle
from tf_ext.tuner.oracles._wrapper import StageOracle

__all__ = ["MedianStoppingOracle"]


class MedianStoppingOracle(ForwardingOracle):
    """Stops a trial whose best so far is worse than the median of the running means of those that completed.

    It compares at `grace_epochs` and every `interval` epochs after that. A trial that is stopped is COMPLETED, with the
    best score that it reached. When trials are compared depends on the order in which they are trained; what was decided
    once stays so after a restart, and a log of the decisions can be checked with `replay`.

    Args:
        oracle: What suggests the trials: one of this package, or any of Keras Tuner's.
        grace_epochs: How many epochs each trial may train in any case.
        interval: How many epochs lie between two comparisons.
        min_trials: How many trials must have completed before one is stopped.

    Raises:
        ValueError: A number is too small.
        TypeError: `oracle` is none.

    Example:
        oracle = MedianStoppingOracle(RandomSearchOracle("val_loss", max_trials=50, seed=1), grace_epochs=3)

    Source: Golovin et al., "Google Vizier: A Service for Black-Box Optimization", KDD 2017, section 3.2.1.
    """

    _own = ForwardingOracle._own | {
        "grace_epochs", "interval", "min_trials", "_curves", "_answers", "_targets", "_journal_of_stops", "_lock",
    }  # fmt: skip

    def __init__(
        self, oracle: keras_tuner.Oracle, grace_epochs: int = 1, interval: int = 1, min_trials: int = 3
    ) -> None:
        check_whole("grace_epochs", grace_epochs, 1)
        check_whole("interval", interval, 1)
        check_whole("min_trials", min_trials, 1)
        super().__init__(oracle if isinstance(oracle, StagedOracle) else StageOracle(oracle))
        self.grace_epochs, self.interval, self.min_trials = grace_epochs, interval, min_trials
        self._lock = threading.RLock()
        self._journal_of_stops: Journal | None = None
        self._forget()

    def cut_epochs(self) -> set[int]:
        """Those of the oracle behind it, and the epochs of the comparisons up to the longest trial so far."""
        longest = max(self._targets.values(), default=0)
        return self._oracle.cut_epochs() | set(range(self.grace_epochs, longest, self.interval))

    def first_target(self, trial: Trial, epochs: int) -> int:
        """The first comparison after the path that the trial continues."""
        target = self._oracle.first_target(trial, epochs)
        with self._lock:
            self._targets[trial.trial_id] = target
        return self._next(int(trial.hyperparameters.values.get("tuner/initial_epoch", 0)), target)

    def advance(self, trial_id: str, history: History) -> int | None:
        """Stops the trial, or lets it go on to the next comparison."""
        with self._lock:
            epoch = len(history)
            if (trial_id, epoch) not in self._answers:
                known = min(self._curves.known(trial_id), epoch)
                values = [self._value(metrics) for metrics in history[known:]]
                self._curves.report(trial_id, known, values)
                self._say("report", trial_id=trial_id, start=known, values=values)
                answer = self._decide(trial_id, history)
                event = {"id": trial_id, "epoch": epoch, "answer": answer}
                self._log(event | {"start": known, "values": values, "target": self._targets.get(trial_id)})
                self._answers[trial_id, epoch] = answer
            return self._answers[trial_id, epoch]

    def end_trial(self, trial: Trial) -> None:
        """Ends an open trial; if it completed, later ones are compared with it."""
        self._oracle.end_trial(trial)
        with self._lock:
            if self._oracle.get_trial(trial.trial_id).status == "COMPLETED":
                self._curves.complete(trial.trial_id)
                self._say("complete", trial_id=trial.trial_id)

    def reload(self) -> None:
        """Takes up the search that lies in the project directory, with what was decided."""
        self._oracle.reload()
        with self._lock:
            self._forget()
            journal = self._open()
            # A journal may be ahead of the oracle, which will create those trials again.
            events = [event for event in journal.read() if event["id"] in self._oracle.trials]
            for event in events:
                self._redo(event)
            for trial in self._oracle.trials.values():
                if trial.status == "COMPLETED":
                    self._curves.complete(trial.trial_id)
            journal.start(events)
            self._journal_of_stops = journal

    def save(self) -> None:
        """Makes durable what happened so far."""
        with self._lock:
            if self._journal_of_stops is not None:
                self._journal_of_stops.sync()
        self._oracle.save()

    def _decide(self, trial_id: str, history: History) -> int | None:
        epoch, target = len(history), self._targets.get(trial_id, 0)
        if epoch >= target:
            more = self._oracle.advance(trial_id, history)
            if more is None:
                return None
            self._targets[trial_id] = target = more
        if epoch < self.grace_epochs:
            return self._next(epoch, target)
        stops = self._curves.should_stop(trial_id, epoch)
        rule = {"min_trials": self.min_trials, "direction": self._oracle.objective.direction}
        self._say("stop" if stops else "continue", trial_id=trial_id, epoch=epoch, **rule)
        return None if stops else self._next(epoch, target)

    def _next(self, epoch: int, target: int) -> int:
        """The first comparison after `epoch`, or `target` if that comes before."""
        passed = max(0, epoch - self.grace_epochs + self.interval) // self.interval
        return min(target, self.grace_epochs + passed * self.interval)

    def _value(self, metrics: dict[str, float]) -> float | None:
        objective = self._oracle.objective
        value = float(objective.get_value(metrics)) if objective.has_value(metrics) else None
        return None if value is None or value != value else value

    def _say(self, decision: str, **facts: Any) -> None:
        if self.on_decision is not None:
            self.on_decision({"oracle": type(self).__name__, "decision": decision, **facts})

    def _forget(self) -> None:
        self._curves = Curves(self.min_trials, self._oracle.objective.direction)
        self._answers: dict[tuple[str, int], int | None] = {}
        self._targets: dict[str, int] = {}
        self._journal_of_stops = None

    def _redo(self, event: Event) -> None:
        self._curves.report(event["id"], event["start"], event["values"])
        self._answers[event["id"], event["epoch"]] = event["answer"]
        if event["target"] is not None:
            self._targets[event["id"]] = event["target"]

    def _open(self) -> Journal:
        return Journal(pathlib.Path(self._oracle._project_dir) / "stops.jsonl")

    def _log(self, event: Event) -> None:
        if self._journal_of_stops is None:
            self._journal_of_stops = self._open()
            self._journal_of_stops.start([])
        self._journal_of_stops.append(event)

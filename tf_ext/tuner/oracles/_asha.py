"""Asynchronous successive halving."""

from __future__ import annotations

from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._asynchronous import AsynchronousRungs
from tf_ext.tuner.oracles._checks import check_whole
from tf_ext.tuner.oracles._durable import DurableOracle
from tf_ext.tuner.oracles._halving import check_budget
from tf_ext.tuner.oracles._journal import Event
from tf_ext.tuner.oracles._rungs import rung_epochs

__all__ = ["ASHAOracle"]


class ASHAOracle(DurableOracle):
    """Successive halving that never waits for a rung: whoever is among the best so far climbs, else a new trial begins.

    The rungs are those of `SuccessiveHalvingOracle`. Who climbs depends on the order in which trials end; a log of the
    decisions can be checked with `replay`.

    Args:
        objective: As for `keras_tuner.Oracle`.
        max_trials: How many trials begin on the first rung, or until the search space is exhausted. Those that climb
            come on top, so that the attribute `max_trials` is None. May be raised when a search is continued.
        min_epochs: The epochs of the first rung (r).
        max_epochs: The epochs of the last rung (R).
        factor: By how much trials become fewer and epochs more from rung to rung (eta).
        seed: What the values depend on.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.

    Attributes:
        configurations: How many trials begin on the first rung: `max_trials`.
        parallelism: How many trials are open at once.

    Raises:
        ValueError: Budgets contradict each other.

    Example:
        oracle = ASHAOracle("val_loss", max_trials=100, min_epochs=1, max_epochs=27, factor=3, seed=1)

    Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020.
    """

    _fixed = ("min_epochs", "max_epochs", "factor")

    def __init__(
        self,
        objective: Any = None,
        max_trials: int = 27,
        min_epochs: int = 1,
        max_epochs: int = 100,
        factor: int = 3,
        seed: int | None = None,
        hyperparameters: keras_tuner.HyperParameters | None = None,
        allow_new_entries: bool = True,
        tune_new_entries: bool = True,
        max_retries_per_trial: int = 0,
        max_consecutive_failed_trials: int = 3,
    ) -> None:
        check_whole("max_trials", max_trials, 1)
        check_budget(min_epochs, max_epochs, factor)
        super().__init__(
            objective=objective,
            seed=seed,
            hyperparameters=hyperparameters,
            allow_new_entries=allow_new_entries,
            tune_new_entries=tune_new_entries,
            max_retries_per_trial=max_retries_per_trial,
            max_consecutive_failed_trials=max_consecutive_failed_trials,
        )
        self.configurations = max_trials
        self.min_epochs, self.max_epochs, self.factor = min_epochs, max_epochs, factor
        self._epochs = rung_epochs(min_epochs, max_epochs, factor)
        self._rungs = AsynchronousRungs(len(self._epochs), factor, self.objective.direction)
        self._begun = 0
        self._is_over = False

    @property
    def lookahead(self) -> int | None:
        """As many as are trained at once: each trial that ends may change what comes next."""
        return self.parallelism

    @lookahead.setter
    def lookahead(self, value: int | None) -> None:
        self.parallelism = value or 1

    def cut_epochs(self) -> set[int]:
        """The epochs of all rungs."""
        return set(self._epochs)

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Promotes a trial if one may climb, or begins a new one."""
        promotion = self._rungs.promotion()
        self._is_over = False
        if promotion is not None:
            rung, parent = promotion
            self._say("promote", trial_id, parent, rung)
            values = dict(self.trials[parent].hyperparameters.values)
            return {"status": "RUNNING", "values": values | self._place(rung) | {"tuner/trial_id": parent}}
        new = self._random_values() if self._begun < self.configurations else None
        if new is not None:
            self._say("start", trial_id, None, 0)
            return {"status": "RUNNING", "values": new | self._place(0)}
        self._is_over = not self.ongoing_trials
        return {"status": "STOPPED" if self._is_over else "IDLE"}

    def can_resume(self, trial_id: str) -> bool:
        """Whether the trial may still climb."""
        trial = self.trials.get(trial_id)
        if trial is None or self._is_over or "tuner/round" not in trial.hyperparameters.values:
            return False
        # All that begin may climb in the worst order, in which each is better than those before.
        return self._rungs.can_climb(trial_id, trial.hyperparameters.values["tuner/round"], self.configurations)

    def _compute_values_hash(self, values: dict[str, Any]) -> str:
        return super()._compute_values_hash({k: v for k, v in values.items() if not k.startswith("tuner/")})

    def _opened(self, trial: Trial, note: Any) -> None:
        del note
        values = trial.hyperparameters.values
        self._begun += values["tuner/round"] == 0
        self._rungs.start(trial.trial_id, values.get("tuner/trial_id"), values["tuner/round"])

    def _closed(self, trial: Trial) -> None:
        rung = trial.hyperparameters.values["tuner/round"]
        score = trial.score if trial.status == "COMPLETED" else None
        self._rungs.report(trial.trial_id, rung, score)
        self._decide("report", trial_id=trial.trial_id, rung=rung, score=score)

    def _say(self, decision: str, trial_id: str, parent: str | None, rung: int) -> None:
        rule = {"rungs": len(self._epochs), "factor": self.factor, "direction": self.objective.direction}
        self._decide(decision, trial_id=trial_id, parent=parent, rung=rung, **rule)

    def _place(self, rung: int) -> dict[str, Any]:
        initial = self._epochs[rung - 1] if rung else 0
        place = {"tuner/epochs": self._epochs[rung], "tuner/initial_epoch": initial}
        return place | {"tuner/bracket": 0, "tuner/round": rung}

    def _settings(self) -> Event:
        budget = {"min_epochs": self.min_epochs, "max_epochs": self.max_epochs, "factor": self.factor}
        return super()._settings() | budget

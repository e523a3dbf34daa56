"""Successive halving."""

from __future__ import annotations

from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._checks import check_whole
from tf_ext.tuner.oracles._durable import DurableOracle
from tf_ext.tuner.oracles._journal import Event
from tf_ext.tuner.oracles._rungs import Bracket, rung_epochs

__all__ = ["HalvingOracle", "SuccessiveHalvingOracle", "check_budget"]


def check_budget(min_epochs: int, max_epochs: int, factor: int) -> None:
    """Refuses budgets that contradict each other.

    Raises:
        ValueError: They do.
    """
    check_whole("factor", factor, 2)
    check_whole("min_epochs", min_epochs, 1)
    check_whole("max_epochs", max_epochs, 1)
    if min_epochs > max_epochs:
        raise ValueError(
            f"expected `min_epochs` up to `max_epochs` = {max_epochs}, got {min_epochs}. A trial trains `min_epochs` before "
            "it is first compared, and `max_epochs` at most."
        )


class HalvingOracle(DurableOracle):
    """What oracles with brackets have in common; `_bracket_at` finds the bracket to work on."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._brackets: list[Bracket] = []
        self._place: dict[str, tuple[int, int]] = {}  # of each trial: the index of its bracket, and its rung

    def _compute_values_hash(self, values: dict[str, Any]) -> str:
        # A trial that climbed is no other point of the search space.
        return super()._compute_values_hash({k: v for k, v in values.items() if not k.startswith("tuner/")})

    def _new_trial(self, index: int) -> dict[str, Any] | None:
        """A random trial for the first rung of a bracket; None if the search space has no more."""
        bracket = self._brackets[index]
        values = self._random_values()
        if values is None:
            bracket.exhausted = True
            return None
        self._note = index
        return {"status": "RUNNING", "values": values | _place(bracket, 0)}

    def _promoted(self, index: int) -> dict[str, Any] | None:
        """A trial that continues the next one to climb in a bracket; None if there is none now."""
        bracket = self._brackets[index]
        promotion = bracket.promotion()
        if promotion is None:
            return None
        rung, parent = promotion
        self._note = index
        values = dict(self.trials[parent].hyperparameters.values)
        self._decide("promote", trial_id=parent, bracket=bracket.number, rung=rung, score=bracket.scores[parent])
        return {"status": "RUNNING", "values": values | _place(bracket, rung) | {"tuner/trial_id": parent}}

    def _opened(self, trial: Trial, note: Any) -> None:
        values = trial.hyperparameters.values
        rung = values["tuner/round"]
        self._place[trial.trial_id] = note, rung
        self._brackets[note].begin(trial.trial_id, rung, values.get("tuner/trial_id"))

    def _closed(self, trial: Trial) -> None:
        index, _ = self._place[trial.trial_id]
        self._brackets[index].scores[trial.trial_id] = trial.score if trial.status == "COMPLETED" else None

    def can_resume(self, trial_id: str) -> bool:
        """Whether the trial may still climb to the next rung."""
        if trial_id not in self._place:
            return False
        index, rung = self._place[trial_id]
        return self._brackets[index].can_climb(trial_id, rung)


def _place(bracket: Bracket, rung: int) -> dict[str, Any]:
    return {
        "tuner/epochs": bracket.epochs[rung],
        "tuner/initial_epoch": bracket.epochs[rung - 1] if rung else 0,
        "tuner/bracket": bracket.number,
        "tuner/round": rung,
    }


class SuccessiveHalvingOracle(HalvingOracle):
    """Draws trials at random, trains all a little, and the best of them `factor` times as long, again and again.

    Rung k has `max_trials` // `factor` ** k trials, at least one, of `min_epochs` * `factor` ** k epochs; those of the last
    rung train `max_epochs`. A trial that climbs is a new trial that continues the path of the old one.

    Args:
        objective: As for `keras_tuner.Oracle`.
        max_trials: How many trials the first rung has (n). The attribute counts those of all rungs.
        min_epochs: The epochs of the first rung (r).
        max_epochs: The epochs of the last rung (R).
        factor: By how much trials become fewer and epochs more from rung to rung (eta).
        seed: What the values depend on.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.

    Raises:
        ValueError: Budgets contradict each other.

    Example:
        oracle = SuccessiveHalvingOracle("val_loss", max_trials=27, min_epochs=1, max_epochs=27, factor=3, seed=1)

    Source: Jamieson & Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016.
    """

    _fixed = ("max_trials", "min_epochs", "max_epochs", "factor")

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
        self.min_epochs, self.max_epochs, self.factor = min_epochs, max_epochs, factor
        epochs = rung_epochs(min_epochs, max_epochs, factor)
        sizes = tuple(max(1, max_trials // factor**k) for k in range(len(epochs)))
        super().__init__(
            objective=objective,
            max_trials=sum(sizes),
            seed=seed,
            hyperparameters=hyperparameters,
            allow_new_entries=allow_new_entries,
            tune_new_entries=tune_new_entries,
            max_retries_per_trial=max_retries_per_trial,
            max_consecutive_failed_trials=max_consecutive_failed_trials,
        )
        self._brackets = [Bracket(0, sizes, epochs, self.objective.direction)]

    def cut_epochs(self) -> set[int]:
        """The epochs of all rungs."""
        return set(self._brackets[0].epochs)

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Fills the first rung; promotes when a rung is complete; waits in between."""
        del trial_id
        suggestion = self._new_trial(0) if self._brackets[0].wants_new else None
        suggestion = suggestion or self._promoted(0)
        return suggestion or {"status": "IDLE" if self.ongoing_trials else "STOPPED"}

    def _settings(self) -> Event:
        return super()._settings() | {
            "max_trials": self._brackets[0].sizes[0],
            "min_epochs": self.min_epochs,
            "max_epochs": self.max_epochs,
            "factor": self.factor,
        }

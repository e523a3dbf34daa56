"""Hyperband."""

from __future__ import annotations

import math
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._checks import check_whole
from tf_ext.tuner.oracles._halving import HalvingOracle, check_budget
from tf_ext.tuner.oracles._journal import Event
from tf_ext.tuner.oracles._rungs import Bracket

__all__ = ["HyperbandOracle"]


class HyperbandOracle(HalvingOracle):
    """Successive halving in several brackets, from many short trials to few long ones.

    Brackets and rungs are as large as those of `keras_tuner.oracles.HyperbandOracle`, and with the same seed the first
    rungs have the same values. Three things differ. A rung's best climb when all of it has ended, so that results do not
    depend on the order in which trials end. A trial that climbs continues from its last epoch, not its best one. And its
    score is that of its whole path. All brackets of an iteration are open at once.

    Args:
        objective: As for `keras_tuner.oracles.HyperbandOracle`, and all the others, too.
        max_epochs: How many epochs a trial trains at most (R).
        factor: By how much trials become fewer and epochs more from rung to rung (eta).
        hyperband_iterations: How often to go through all brackets. None: for ever. May be raised when a search continues.
        seed: What the values depend on.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.

    Raises:
        ValueError: Budgets contradict each other.

    Example:
        oracle = HyperbandOracle("val_loss", max_epochs=27, factor=3, seed=1)

    Source: Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 18 (2018).
    """

    _fixed = ("max_epochs", "factor")

    def __init__(
        self,
        objective: Any = None,
        max_epochs: int = 100,
        factor: int = 3,
        hyperband_iterations: int | None = 1,
        seed: int | None = None,
        hyperparameters: keras_tuner.HyperParameters | None = None,
        allow_new_entries: bool = True,
        tune_new_entries: bool = True,
        max_retries_per_trial: int = 0,
        max_consecutive_failed_trials: int = 3,
    ) -> None:
        check_budget(1, max_epochs, factor)
        if hyperband_iterations:
            check_whole("hyperband_iterations", hyperband_iterations, 1)
        super().__init__(
            objective=objective,
            seed=seed,
            hyperparameters=hyperparameters,
            allow_new_entries=allow_new_entries,
            tune_new_entries=tune_new_entries,
            max_retries_per_trial=max_retries_per_trial,
            max_consecutive_failed_trials=max_consecutive_failed_trials,
        )
        self.max_epochs, self.factor = max_epochs, factor
        self.hyperband_iterations = hyperband_iterations or math.inf
        self._unfinished: list[int] = []

    @property
    def _brackets_per_iteration(self) -> int:
        # s_max + 1; counted, since a logarithm may fall short of a whole number.
        count, epochs = 0, float(self.max_epochs)
        while epochs >= 1:
            epochs, count = epochs / self.factor, count + 1
        return count

    def cut_epochs(self) -> set[int]:
        """The epochs of all rungs of all brackets."""
        return {r for s in range(self._brackets_per_iteration) for r in self._plan(s).epochs}

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Fills the first rungs of all brackets of an iteration, and promotes when a rung is complete."""
        del trial_id
        self._unfinished = [index for index in self._unfinished if not self._brackets[index].is_done]
        for index in self._unfinished:
            suggestion = self._suggestion(index)
            if suggestion:
                return suggestion
        while self._may_begin_bracket():
            self._begin_bracket()
            suggestion = self._suggestion(len(self._brackets) - 1)
            if suggestion:
                return suggestion
        return {"status": "IDLE" if self.ongoing_trials else "STOPPED"}

    def _suggestion(self, index: int) -> dict[str, Any] | None:
        suggestion = self._new_trial(index) if self._brackets[index].wants_new else None
        return suggestion or self._promoted(index)

    def _may_begin_bracket(self) -> bool:
        if self._brackets and not self._brackets[-1].rungs[0]:
            return False  # the search space is exhausted
        iteration, position = divmod(len(self._brackets), self._brackets_per_iteration)
        if iteration >= self.hyperband_iterations:
            return False
        # An endless search must not open endlessly many trials.
        return position > 0 or not self._unfinished or self.hyperband_iterations < math.inf

    def _begin_bracket(self) -> None:
        # From the bracket that halves most often, s = s_max, down to s = 0.
        s = self._brackets_per_iteration - 1 - len(self._brackets) % self._brackets_per_iteration
        self._unfinished.append(len(self._brackets))
        self._brackets.append(self._plan(s))

    def _plan(self, s: int) -> Bracket:
        """Bracket s: s + 1 rungs, as large as Keras Tuner's, which rounds up where the paper rounds down."""
        last_size = math.ceil(1 + math.log(self.max_epochs, self.factor)) / (s + 1)
        sizes = tuple(math.ceil(last_size * self.factor ** (s - rung)) for rung in range(s + 1))
        epochs = tuple(math.ceil(self.max_epochs / self.factor ** (s - rung)) for rung in range(s + 1))
        return Bracket(s, sizes, epochs, self.objective.direction)

    def _opened(self, trial: Trial, note: Any) -> None:
        while len(self._brackets) <= note:  # restoring
            self._begin_bracket()
        if trial.hyperparameters.values["tuner/round"] == 0:
            for earlier in self._brackets[:note]:
                earlier.exhausted |= earlier.wants_new
        super()._opened(trial, note)

    def _settings(self) -> Event:
        return super()._settings() | {"max_epochs": self.max_epochs, "factor": self.factor}

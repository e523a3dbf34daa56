"""Random search."""

from __future__ import annotations

from typing import Any

import keras_tuner

from tf_ext.tuner.oracles._durable import DurableOracle

__all__ = ["RandomSearchOracle"]

# How many trials of an endless search to open at once.
_ENDLESS = 128


class RandomSearchOracle(DurableOracle):
    """Draws values at random: the same as `keras_tuner.oracles.RandomSearchOracle` with the same seed.

    Args:
        objective: As for `keras_tuner.oracles.RandomSearchOracle`, and all the others, too.
        max_trials: How many trials to draw at most. May be raised when a search is continued.
        seed: What the values depend on.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.

    Raises:
        ValueError: Arguments contradict each other.

    Example:
        oracle = RandomSearchOracle(keras_tuner.Objective("score", "max"), max_trials=50, seed=1)
    """

    _continues_keras_tuner = True

    def __init__(
        self,
        objective: Any = None,
        max_trials: int | None = 10,
        seed: int | None = None,
        hyperparameters: keras_tuner.HyperParameters | None = None,
        allow_new_entries: bool = True,
        tune_new_entries: bool = True,
        max_retries_per_trial: int = 0,
        max_consecutive_failed_trials: int = 3,
    ) -> None:
        super().__init__(
            objective=objective,
            max_trials=max_trials,
            seed=seed,
            hyperparameters=hyperparameters,
            allow_new_entries=allow_new_entries,
            tune_new_entries=tune_new_entries,
            max_retries_per_trial=max_retries_per_trial,
            max_consecutive_failed_trials=max_consecutive_failed_trials,
        )
        self.lookahead = None if max_trials else _ENDLESS

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Draws values that no trial has; stops where chance finds none."""
        del trial_id
        values = self._random_values()
        return {"status": "STOPPED"} if values is None else {"status": "RUNNING", "values": values}

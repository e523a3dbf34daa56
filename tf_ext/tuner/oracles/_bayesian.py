"""Bayesian optimization: Keras Tuner's own, with what the engine asks for."""

from __future__ import annotations

from typing import Any

import keras_tuner

from tf_ext.tuner.oracles._checks import check_whole
from tf_ext.tuner.oracles._durable import DurableOracle
from tf_ext.tuner.oracles._stock import generator_state

__all__ = ["BayesianOptimizationOracle"]


class BayesianOptimizationOracle(DurableOracle, keras_tuner.oracles.BayesianOptimizationOracle):
    """Keras Tuner's Gaussian process with an upper confidence bound; a restart goes on with the same random numbers.

    Each suggestion depends on all results so far, so that one trial is open at a time and little can be shared. With
    more, Keras Tuner guesses a pessimistic result for those that are open.

    Args:
        objective: As for `keras_tuner.oracles.BayesianOptimizationOracle`, and all the others, too.
        max_trials: How many trials there are at most. May be raised when a search is continued.
        num_initial_points: How many are drawn at random. None: three times the number of hyper-parameters.
        alpha: The expected variance of the noise.
        beta: How much to explore.
        seed: What the suggestions depend on, besides the results.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.
        lookahead: How many trials may be open at once.

    Raises:
        ImportError: scikit-learn is missing; `pip install scikit-learn`.
        ValueError: Arguments contradict each other.

    Example:
        oracle = BayesianOptimizationOracle("val_loss", max_trials=30, seed=1)
    """

    _continues_keras_tuner = True

    def __init__(
        self,
        objective: Any = None,
        max_trials: int | None = 10,
        num_initial_points: int | None = None,
        alpha: float = 1e-4,
        beta: float = 2.6,
        seed: int | None = None,
        hyperparameters: keras_tuner.HyperParameters | None = None,
        allow_new_entries: bool = True,
        tune_new_entries: bool = True,
        max_retries_per_trial: int = 0,
        max_consecutive_failed_trials: int = 3,
        lookahead: int = 1,
    ) -> None:
        check_whole("lookahead", lookahead, 1)
        super().__init__(
            objective=objective,
            max_trials=max_trials,
            num_initial_points=num_initial_points,
            alpha=alpha,
            beta=beta,
            seed=seed,
            hyperparameters=hyperparameters,
            allow_new_entries=allow_new_entries,
            tune_new_entries=tune_new_entries,
            max_retries_per_trial=max_retries_per_trial,
            max_consecutive_failed_trials=max_consecutive_failed_trials,
        )
        self.lookahead = lookahead

    def _memory(self) -> Any:
        # Keras Tuner does not save it: after a restart it would draw the same starting points again.
        return generator_state(self._random_state)

    def _remember(self, memory: Any) -> None:
        self._random_state.set_state(tuple(memory))

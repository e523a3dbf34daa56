"""Grid search that knows all its trials at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras_tuner
from keras_tuner.engine.hyperparameters import Int
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._durable import DurableOracle

__all__ = ["GridSearchOracle"]

Values = dict[str, Any]


class GridSearchOracle(DurableOracle):
    """Tries all combinations of values, in Keras Tuner's order: the default of each first, the last one varying fastest.

    Keras Tuner's own looks ahead by two trials, since a trial may bring hyper-parameters that nobody knew of. This one
    suggests all combinations that it knows; when a trial brings more, those that they make are suggested afterwards.

    Args:
        objective: As for `keras_tuner.oracles.GridSearchOracle`, and all the others, too.
        max_trials: How many combinations to try at most. None: all.
        seed: Not used; the order is fixed.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.

    Raises:
        ValueError: Arguments contradict each other.

    Example:
        oracle = GridSearchOracle("val_loss", max_trials=20)
        tuner = tf_ext.tuner.Tuner(build_model, oracle=oracle)
    """

    _continues_keras_tuner = True

    def __init__(
        self,
        objective: Any = None,
        max_trials: int | None = None,
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
        self._combinations: Iterator[Values] = iter(())
        self._known_space = -1
        self._tried: set[tuple[tuple[str, Any], ...]] = set()

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Suggests the first combination that no trial has."""
        del trial_id
        space = self.hyperparameters.space
        if self._known_space != len(space):
            self._known_space = len(space)
            self._combinations = combinations(space)
            # Trials that have not ended get the defaults of what is new when they do.
            self._tried = {_key(_active(space, trial.hyperparameters.values)) for trial in self._with_values()}
        for values in self._combinations:
            if _key(values) not in self._tried:
                return {"status": "RUNNING", "values": values}
        # A trial that is open may bring more hyper-parameters.
        return {"status": "IDLE" if self.ongoing_trials else "STOPPED"}

    def _with_values(self) -> list[Trial]:
        trials = self.trials.values()
        return [trial for trial in trials if trial.hyperparameters.values or trial.status != "FAILED"]


def combinations(space: list[Any]) -> Iterator[Values]:
    """All combinations of values, each with those alone that are active.

    Args:
        space: Hyper-parameters, each after those that its conditions name.

    Yields:
        Values by name: the defaults first, and then as an odometer counts whose last wheel is the last hyper-parameter.
    """
    chosen: Values | None = {hp.name: hp.default for hp in space}
    ordered = {id(hp): _ordered(hp) for hp in space}
    while chosen is not None:
        active = _active(space, chosen)
        yield active
        chosen = _next(space, ordered, active)


def _next(space: list[Any], ordered: Mapping[int, list[Any]], values: Values) -> Values | None:
    """The combination after `values`, inactive hyper-parameters at their defaults; None after the last one."""
    for position in reversed(range(len(space))):
        hp = space[position]
        if not _is_active(hp, values) or values[hp.name] == ordered[id(hp)][-1]:
            continue
        wheel = ordered[id(hp)]
        after = {later.name: later.default for later in space[position + 1 :]}
        kept = {name: value for name, value in values.items() if name not in after}
        return after | kept | {hp.name: wheel[wheel.index(values[hp.name]) + 1]}
    return None


def _active(space: list[Any], chosen: Values) -> Values:
    active: Values = {}
    for hp in space:
        if _is_active(hp, active):
            active[hp.name] = chosen.get(hp.name, hp.default)
            if active[hp.name] not in hp.values:
                active[hp.name] = hp.default  # chosen for another one of that name, under another condition
    return active


def _key(values: Values) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(values.items()))


def _is_active(hp: Any, values: Mapping[str, Any]) -> bool:
    return all(condition.is_active(values) for condition in hp.conditions)


def _ordered(hp: Any) -> list[Any]:
    # Keras Tuner computes the steps of an Int as floats.
    values = [round(value) for value in hp.values] if isinstance(hp, Int) else hp.values
    return [hp.default, *(value for value in values if value != hp.default)]

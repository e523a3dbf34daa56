"""An oracle in front of another one, which keeps the trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._staged import History, StagedOracle

__all__ = ["ForwardingOracle"]


class ForwardingOracle(StagedOracle):
    """Forwards all that is asked of it, attributes included, to the oracle that it was given.

    `trials`, `objective`, `hyperparameters` and the like are those of that oracle, so that Keras Tuner's tuners, which
    read and set them, need not know.

    Args:
        oracle: What to put it in front of.
    """

    # Attributes that are its own.
    _own: ClassVar[frozenset[str]] = frozenset({"_oracle", "_lookahead", "_on_decision"})

    def __init__(self, oracle: keras_tuner.Oracle) -> None:  # the other one's `__init__` has run
        self._oracle = oracle
        self._lookahead: int | None = None
        self._on_decision: Callable[[dict[str, Any]], None] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._own:
            raise AttributeError(name)  # asked for before `__init__`, by `copy` or `pickle`
        return getattr(self._oracle, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._own or isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            setattr(self._oracle, name, value)

    @property
    def lookahead(self) -> int | None:
        """That of the oracle behind it."""
        return getattr(self._oracle, "lookahead", 1)

    @lookahead.setter
    def lookahead(self, value: int | None) -> None:
        self._oracle.lookahead = value

    @property
    def parallelism(self) -> int:
        """How many trials are trained at once."""
        return getattr(self._oracle, "parallelism", 1)

    @parallelism.setter
    def parallelism(self, value: int) -> None:
        self._oracle.parallelism = value

    @property
    def on_decision(self) -> Callable[[dict[str, Any]], None] | None:
        """Who is told of the decisions of both."""
        return self._on_decision

    @on_decision.setter
    def on_decision(self, value: Callable[[dict[str, Any]], None] | None) -> None:
        self._on_decision = value
        self._oracle.on_decision = value

    def cut_epochs(self) -> set[int]:
        """Those of the oracle behind it."""
        return self._oracle.cut_epochs()

    def first_target(self, trial: Trial, epochs: int) -> int:
        """That of the oracle behind it."""
        return self._oracle.first_target(trial, epochs)

    def advance(self, trial_id: str, history: History) -> int | None:
        """As the oracle behind it decides."""
        return self._oracle.advance(trial_id, history)

    def can_resume(self, trial_id: str) -> bool:
        """As the oracle behind it says."""
        return self._oracle.can_resume(trial_id)

    def create_trial(self, tuner_id: str) -> Trial:
        """Opens a trial."""
        return self._oracle.create_trial(tuner_id)

    def update_trial(self, trial_id: str, metrics: dict[str, float], step: int = 0) -> Trial:
        """Reports metrics of an open trial."""
        return self._oracle.update_trial(trial_id, metrics, step=step)

    def end_trial(self, trial: Trial) -> None:
        """Ends an open trial."""
        self._oracle.end_trial(trial)

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Suggests values."""
        return self._oracle.populate_space(trial_id)

    def score_trial(self, trial: Trial) -> None:
        """Scores a trial."""
        self._oracle.score_trial(trial)

    def get_space(self) -> keras_tuner.HyperParameters:
        """A copy of the search space."""
        return self._oracle.get_space()

    def update_space(self, hyperparameters: keras_tuner.HyperParameters) -> None:
        """Adds to the search space."""
        self._oracle.update_space(hyperparameters)

    def get_trial(self, trial_id: str) -> Trial:
        """The trial of that number."""
        return self._oracle.get_trial(trial_id)

    def get_best_trials(self, num_trials: int = 1) -> list[Trial]:
        """The best trials."""
        return self._oracle.get_best_trials(num_trials)

    def remaining_trials(self) -> int | None:
        """How many trials may still be created; None if that is not bounded."""
        return self._oracle.remaining_trials()

    def get_state(self) -> dict[str, Any]:
        """The state, in Keras Tuner's form."""
        return self._oracle.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes a state in Keras Tuner's form."""
        self._oracle.set_state(state)

    def save(self) -> None:
        """Makes durable what happened so far."""
        self._oracle.save()

    def reload(self) -> None:
        """Takes up the search that lies in the project directory, if one does."""
        self._oracle.reload()

    def _set_project_dir(self, directory: str, project_name: str) -> None:
        self._oracle._set_project_dir(directory, project_name)

"""Any of Keras Tuner's oracles, with what the engine asks for."""

from __future__ import annotations

import json
import math
import pathlib
import time
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles import _export, _restore, _stock
from tf_ext.tuner.oracles._checks import check_whole
from tf_ext.tuner.oracles._exclusive import exclusively
from tf_ext.tuner.oracles._files import replace_text
from tf_ext.tuner.oracles._forwarding import ForwardingOracle
from tf_ext.tuner.oracles._staged import History, StagedOracle

__all__ = ["StageOracle"]

# From this many trials on, the state is not written at each end of a trial if that takes much of the time.
_MANY = 1000


class StageOracle(ForwardingOracle):
    """Puts the interface of `StagedOracle` in front of an oracle of Keras Tuner or of the user's own.

    It takes over how that oracle is saved: `oracle.json` and `trial_*/trial.json` keep Keras Tuner's form, each written in
    one step, so that a kill at any moment leaves a search that can be continued. What Keras Tuner forgets is saved with
    them: the state of random generators, and how far a grid search is.

    Args:
        oracle: An oracle that is not a `StagedOracle`. It must not be used without this one any more.
        lookahead: How many trials may be open at once. None: any number for random and grid search and Hyperband, which
            says itself when it must wait; 1 for Bayesian optimization, and for oracles that nothing is known of.

    Raises:
        TypeError: `oracle` is no oracle, or is a `StagedOracle` already.
        ValueError: `lookahead` is not a number of trials.

    Example:
        oracle = StageOracle(keras_tuner.oracles.RandomSearchOracle("val_loss", max_trials=50, seed=1))
    """

    _own = ForwardingOracle._own | {"_parents", "_unwritten", "_written_at", "_cost", "_dirty"}

    def __init__(self, oracle: keras_tuner.Oracle, lookahead: int | None = None) -> None:
        if not isinstance(oracle, keras_tuner.Oracle) or isinstance(oracle, StagedOracle):
            raise TypeError(
                f"expected an oracle of keras_tuner or one derived from keras_tuner.Oracle, got {oracle!r} of "
                f"{type(oracle).__name__}. A StagedOracle needs no wrapper: use it as it is."
            )
        if lookahead is not None:
            check_whole("lookahead", lookahead, 1)
        super().__init__(oracle)
        self._lookahead = lookahead if lookahead is not None else _stock.default_lookahead(oracle)
        self._parents: set[str] = set()  # trials that another one continues
        self._unwritten: dict[str, Trial] = {}
        self._written_at, self._cost, self._dirty = -math.inf, 0.0, False
        # Its own methods save after each step, in place. They do not know that somebody else does it.
        oracle.save = _nothing
        oracle._save_trial = _nothing

    @property
    def lookahead(self) -> int | None:
        """How many trials may be open at once."""
        return self._lookahead

    @lookahead.setter
    def lookahead(self, value: int | None) -> None:
        self._lookahead = value

    def cut_epochs(self) -> set[int]:
        """The rungs of Hyperband; nothing of other oracles."""
        return _stock.cut_epochs(self._oracle)

    def first_target(self, trial: Trial, epochs: int) -> int:
        """The trial's `tuner/epochs`, if it has one."""
        return StagedOracle.first_target(self, trial, epochs)

    def advance(self, trial_id: str, history: History) -> int | None:
        """None: Keras Tuner's oracles do not look at trials before they end."""
        return StagedOracle.advance(self, trial_id, history)

    def goes_on(self) -> bool:
        """Whether it is a Hyperband, which promotes trials."""
        return hasattr(self._oracle, "max_epochs")

    def can_resume(self, trial_id: str) -> bool:
        """Whether Hyperband may still promote the trial."""
        trial = self._oracle.trials.get(trial_id)
        if trial is None or trial.status == "FAILED" or trial_id in self._parents:
            return False
        # `tuner/bracket` is that of the bracket which began last, whatever the trial's own is.
        epochs = trial.hyperparameters.values.get("tuner/epochs", 0)
        return 0 < epochs < getattr(self._oracle, "max_epochs", 0)

    def create_trial(self, tuner_id: str) -> Trial:
        """Opens a trial. Nothing is written: after a kill the same trial is suggested again."""
        return exclusively(self._oracle, lambda: self._create(tuner_id))

    def update_trial(self, trial_id: str, metrics: dict[str, float], step: int = 0) -> Trial:
        """Reports metrics of an open trial."""
        return exclusively(self._oracle, lambda: self._oracle.update_trial(trial_id, metrics, step=step))

    def end_trial(self, trial: Trial) -> None:
        """Ends an open trial, and saves."""
        exclusively(self._oracle, lambda: self._end(trial))

    def save(self) -> None:
        """Makes durable what happened so far."""
        exclusively(self._oracle, self._write)

    def reload(self) -> None:
        """Takes up the search that lies in the project directory, if one does.

        Raises:
            PlanMismatchError: A setting changed that shapes the trials; the message names it.
            CorruptedPlanError: `oracle.json` cannot be read.
        """
        exclusively(self._oracle, self._read)

    def _create(self, tuner_id: str) -> Trial:
        oracle = self._oracle
        if tuner_id in oracle.ongoing_trials:
            return oracle.ongoing_trials[tuner_id]
        known = len(oracle.start_order)
        trial = oracle.create_trial(tuner_id)
        if trial.status == "RUNNING":
            self._dirty = True
            self._unwritten[trial.trial_id] = trial
            self._parents.add(trial.hyperparameters.values.get("tuner/trial_id", ""))
            if len(oracle.start_order) == known:
                _restore.forget_results(trial)
        elif trial.status == "STOPPED" and self._dirty and not oracle.ongoing_trials:
            self._write()
        return trial

    def _end(self, trial: Trial) -> None:
        oracle = self._oracle
        stored = oracle.trials[trial.trial_id]
        _export.introduce(oracle, trial)
        try:
            oracle.end_trial(trial)
        except RuntimeError:
            _restore.take_back(oracle, stored)
            raise
        self._dirty = True
        self._unwritten[trial.trial_id] = stored
        if len(oracle.trials) < _MANY or time.monotonic() - self._written_at > 20 * self._cost:
            self._write()

    def _write(self) -> None:
        began = time.monotonic()
        for trial in self._unwritten.values():
            _export.write_trial(self._oracle, trial)
        # Only now may the state name these trials.
        state = self._oracle.get_state() | {"tf_ext": _stock.memory(self._oracle)}
        replace_text(pathlib.Path(self._oracle._project_dir) / "oracle.json", json.dumps(state), durable=True)
        self._unwritten = {}
        self._written_at, self._dirty = time.monotonic(), False
        self._cost = self._written_at - began

    def _read(self) -> None:
        _stock.read(self._oracle)
        self._parents = {t.hyperparameters.values.get("tuner/trial_id", "") for t in self._oracle.trials.values()}


def _nothing(*_: Any) -> None:
    """Stands for what the wrapper does instead."""

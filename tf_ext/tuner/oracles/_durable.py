"""The base of the suite's own oracles: many open trials, a journal instead of whole-state saves, no lock left behind."""

from __future__ import annotations

import contextlib
import copy
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles import _export, _restore
from tf_ext.tuner.oracles._checks import check_objective
from tf_ext.tuner.oracles._exclusive import exclusively
from tf_ext.tuner.oracles._journal import Event, Journal
from tf_ext.tuner.oracles._staged import StagedOracle

__all__ = ["DurableOracle"]

T = TypeVar("T")


class DurableOracle(StagedOracle):
    """Journals what it does, and takes up where it was after a kill at any moment.

    The state of a search is a fold over its events, in the order of the journal `oracle.jsonl`: trials that were created,
    with their values, and trials that ended, with their results. A subclass keeps what it derives from them up to date in
    `_opened` and `_closed`, which are called for each event when it happens and again when it is read back, and decides
    in `populate_space` from that alone. `oracle.json` and `trial_*/trial.json` are written for Keras Tuner's own tools.

    Args:
        objective: As for `keras_tuner.Oracle`, and all the others, too.
        max_trials: How many trials there are at most.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        seed: What the suggestions depend on.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.

    Raises:
        ValueError: Arguments contradict each other; the message says which.
    """

    # Settings that a search in progress cannot take over when they change.
    _fixed: tuple[str, ...] = ()
    # Whether a project that Keras Tuner's oracle of that kind began can be continued.
    _continues_keras_tuner = False

    def __init__(
        self,
        objective: Any = None,
        max_trials: int | None = None,
        hyperparameters: keras_tuner.HyperParameters | None = None,
        allow_new_entries: bool = True,
        tune_new_entries: bool = True,
        seed: int | None = None,
        max_retries_per_trial: int = 0,
        max_consecutive_failed_trials: int = 3,
        **more: Any,
    ) -> None:
        check_objective(objective)
        super().__init__(
            objective=objective,
            max_trials=max_trials,
            # Keras Tuner adds to the space that it is given; the caller's own stays as it is.
            hyperparameters=hyperparameters.copy() if hyperparameters else None,
            allow_new_entries=allow_new_entries,
            tune_new_entries=tune_new_entries,
            seed=seed,
            max_retries_per_trial=max_retries_per_trial,
            max_consecutive_failed_trials=max_consecutive_failed_trials,
            **more,
        )
        self._given_seed = seed
        self._given_space = hyperparameters.copy() if hyperparameters else None
        self._mutex = threading.RLock()
        self._journal: Journal | None = None
        self._journaled_space = 0
        self._journaled_settings: Event = {}
        self._finished: set[str] = set()
        self._within = False
        self._restoring = False
        self._outbox: list[dict[str, Any]] = []
        self._note: Any = None
        self._unexported = 0

    # What subclasses say.

    def _opened(self, trial: Trial, note: Any) -> None:
        """A new trial was created; `note` is what `populate_space` left in `self._note`. May be called while restoring."""

    def _closed(self, trial: Trial) -> None:
        """A trial ended for good, COMPLETED or FAILED. May be called while restoring."""

    def _memory(self) -> Any:
        """What else must be as it was after the last suggestion: JSON, small, for it is written with each trial."""
        return None

    def _remember(self, memory: Any) -> None:
        """Takes back what `_memory` returned."""

    def _event(self, event: Event) -> None:
        """An event of the subclass' own is read back."""

    # Keras Tuner's interface.

    def create_trial(self, tuner_id: str) -> Trial:
        """Opens a trial.

        Args:
            tuner_id: Who asks; it gets the same trial again until that ended.

        Returns:
            A trial of status RUNNING; or IDLE: ask again when a trial ended; or STOPPED: there are no more.
        """
        return self._exclusively(lambda: self._create(tuner_id))

    def update_trial(self, trial_id: str, metrics: dict[str, float], step: int = 0) -> Trial:
        """Reports metrics of an open trial; `step` is the epoch at which it had them.

        Raises:
            KeyError: There is no such trial.
            ValueError: The objective is not among the metrics.
        """

        def update() -> Trial:
            with self._inside():
                return super(DurableOracle, self).update_trial(trial_id, metrics, step=step)

        return self._exclusively(update)

    def end_trial(self, trial: Trial) -> None:
        """Ends an open trial, with its `status` COMPLETED, INVALID (to be tried again, if that is allowed) or FAILED.

        Raises:
            ValueError: It is not open.
            RuntimeError: Too many trials failed in a row. This last one stays open, to be tried again by another search.
        """
        self._exclusively(lambda: self._end(trial))

    def save(self) -> None:
        """Makes durable what happened so far. Costs next to nothing if nothing did."""
        if not self._within:
            self._exclusively(lambda: self._sync(export=True))

    def reload(self) -> None:
        """Takes up the search that lies in the project directory, if one does.

        Trials that were open come back with their ids and values, in the order in which they had been opened.

        Raises:
            PlanMismatchError: A setting changed that shapes the trials; the message names it.
            CorruptedPlanError: The journal cannot be read; the message says how to repair it.
        """
        self._exclusively(lambda: _restore.restore(self))

    # What subclasses use.

    def _decide(self, decision: str, **facts: Any) -> None:
        """Tells `on_decision`, as soon as the lock is free."""
        if not self._restoring:
            self._outbox.append({"oracle": type(self).__name__, "decision": decision, **facts})

    def _log(self, event: Event) -> None:
        """Adds an event to the journal, and what changed in the search space before it."""
        self._begin()
        assert self._journal is not None
        self._log_space()
        self._journal.append(event)
        self._unexported += 1

    def _settings(self) -> Event:
        """The arguments that shape the search, as JSON."""
        return {"objective": str(self.objective)}

    # How it works.

    @property
    def _directory_path(self) -> pathlib.Path:
        return pathlib.Path(self._project_dir)

    def _exclusively(self, call: Callable[[], T]) -> T:
        # Keras Tuner tells threads apart by their names, which need not differ.
        with self._mutex:
            try:
                return exclusively(self, call)
            finally:
                decisions, self._outbox = self._outbox, []
                if self.on_decision is not None:
                    for decision in decisions:
                        self.on_decision(decision)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """While Keras Tuner's methods run: the saves that they ask for are the journal's business."""
        self._within = True
        try:
            yield
        finally:
            self._within = False

    def _create(self, tuner_id: str) -> Trial:
        if tuner_id in self.ongoing_trials:
            return self.ongoing_trials[tuner_id]
        known, self._note = len(self.start_order), None
        with self._inside():
            trial = super().create_trial(tuner_id)
        if len(self.start_order) > known:
            self._opened(trial, self._note)
            self._log_created(trial)
            _export.write_trial(self, trial)
        elif trial.status == "RUNNING":
            _restore.forget_results(trial)
            self._log({"op": "reopen", "id": trial.trial_id})
        elif trial.status == "STOPPED" and not self.ongoing_trials:
            self._sync(export=True, whole=True)
        return trial

    def _end(self, trial: Trial) -> None:
        stored = self.trials.get(trial.trial_id)
        if stored is None or trial.trial_id in self._finished:
            raise ValueError(
                f"expected a trial that is open, got {trial.trial_id!r}, which "
                f"{'is unknown' if stored is None else 'has ended'}. End each trial of `create_trial` once."
            )
        _export.introduce(self, trial)
        try:
            with self._inside():
                super().end_trial(trial)
        except RuntimeError:
            _restore.take_back(self, stored)
            raise
        self._log_ended(stored)
        _export.write_trial(self, stored)
        self._sync(export=True)

    def _log_created(self, trial: Trial) -> None:
        event = {"op": "create", "id": trial.trial_id, "values": trial.hyperparameters.values}
        event |= {"seed_state": self._seed_state, "note": self._note, "memory": self._memory()}
        self._log(event)

    def _log_ended(self, trial: Trial) -> None:
        self._begin()
        if trial.trial_id in self._retry_queue:
            self._log({"op": "retry", "id": trial.trial_id})
            return
        self._finished.add(trial.trial_id)
        self._log(_restore.end_event(self, trial))
        self._closed(trial)

    def _check_consecutive_failures(self) -> None:
        # Keras Tuner walks over all trials at each end, and gives up for ever once there was such a row.
        limit = self.max_consecutive_failed_trials
        last = [self.trials[trial_id] for trial_id in self.end_order[-limit:]] if limit else []
        if limit and len(last) == limit and all(trial.status == "FAILED" for trial in last):
            raise RuntimeError(
                f"expected fewer than {limit} trials in a row to fail, got the trials "
                f"{', '.join(trial.trial_id for trial in last)}. Repair what they report, or raise "
                f"`max_consecutive_failed_trials`; a restart tries the last one again.\n{last[-1].message or ''}"
            )

    def _set_project_dir(self, directory: str, project_name: str) -> None:
        super()._set_project_dir(directory, project_name)
        self._journal = None
        self._journaled_space = 0

    def _begin(self) -> None:
        """Starts the journal, in the place of one that was not reloaded."""
        if self._journal is None:
            self._journal = Journal(self._directory_path / "oracle.jsonl")
            self._journal.start([_restore.begin_event(self)])

    def _log_space(self) -> None:
        assert self._journal is not None
        if len(self.hyperparameters.space) > self._journaled_space:
            configs = self.hyperparameters.get_config()["space"][self._journaled_space :]
            self._journal.append({"op": "space", "add": copy.deepcopy(configs)})
            self._journaled_space = len(self.hyperparameters.space)

    def _save_trial(self, trial: Trial) -> None:
        if not self._within:
            _export.write_trial(self, trial)

    def _sync(self, *, export: bool, whole: bool = False) -> None:
        self._begin()
        assert self._journal is not None
        self._log_space()
        self._journal.sync()
        # The copy for Keras Tuner's tools holds all trials. Written at every sixteenth of growth, it costs all in all
        # what the journal costs, up to a constant.
        if export and self._unexported > (0 if whole else len(self.trials) // 16):
            _export.write_oracle(self)
            self._unexported = 0

"""Trains stages in this process: gets the model there, applies what changes, trains, and keeps what is needed."""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
from typing import Any

import keras
import keras_tuner

from tf_ext.checkpoint.cache import StateCache
from tf_ext.checkpoint.keras import ResumeCallbacks, State, capture, restore
from tf_ext.tuner import schedules
from tf_ext.tuner._applying import move_state, set_learning_rate
from tf_ext.tuner._branches import Branches
from tf_ext.tuner._job import Job, StageResult, StageTask
from tf_ext.tuner._recorder import Recorder
from tf_ext.tuner.segments import Config

__all__ = ["StageRunner"]

# Models that stay at hand, traced, so that going back to one costs nothing; and how large they may be altogether.
_MODELS = 4
_MODEL_BYTES = 512 << 20


@dataclasses.dataclass
class _Loaded:
    """A model at hand.

    Attributes:
        model: It.
        key: Execution and configuration that it was built with.
        initial: Its state as it was built.
        settings: What its train function was made with.
        made: Train functions by the settings they were made with, so that going back to one does not trace anew.
        at: Name of the checkpoint whose state it has exactly, or None.
        state: What else belongs to that state: that of the callbacks.
    """

    model: keras.Model
    key: tuple[int, Config]
    initial: State
    settings: Config
    made: dict[Config, Any]
    at: str | None = None
    state: State | None = None


class StageRunner:
    """Trains the stages of a study, one at a time, with the model that is at hand where it will do.

    Args:
        job: How.
        states: Where states come from and go to.
    """

    def __init__(self, job: Job, states: StateCache) -> None:
        self._job, self._states = job, states
        self._branches = Branches(job)
        self._models: collections.OrderedDict[tuple[int, Config], _Loaded] = collections.OrderedDict()
        self.builds = 0

    def run(self, task: StageTask) -> StageResult:
        """Trains a stage.

        Raises:
            Exception: What the build function, `fit` or a callback raised. The runner can go on with other stages.
        """
        try:
            loaded, state = self._prepare(task)
            return self._train(task, loaded, state)
        except BaseException:
            self._models.pop(self._key(task), None)  # it may be half-way between two states
            raise

    # --- getting there -----------------------------------------------------------------------------------------------

    def _prepare(self, task: StageTask) -> tuple[_Loaded, State | None]:
        """Gets a model with the state and the settings with which the stage begins; and the state of callbacks."""
        if task.before is None:
            loaded, state = self._begin(task)
        else:
            loaded, state = self._go_on(task)
        roles = self._branches.roles(task.config)
        settings = roles.settings_of(task.config)
        if loaded.settings != settings:
            roles.set(loaded.model, task.config)
            loaded.made[loaded.settings] = loaded.model.train_function
            loaded.model.train_function = loaded.made.get(settings)
            if roles.hooks:
                loaded.model.test_function = None  # they may have changed the loss
            loaded.settings = settings
        before, now = dict(task.before or ()), dict(task.config)
        if roles.rate in now and before.get(str(roles.rate)) != now[str(roles.rate)]:
            set_learning_rate(loaded.model, now[str(roles.rate)])
        return loaded, state

    def _begin(self, task: StageTask) -> tuple[_Loaded, State | None]:
        loaded = self._model(task)
        restore(loaded.model, loaded.initial)
        return loaded, None

    def _go_on(self, task: StageTask) -> tuple[_Loaded, State | None]:
        assert task.before is not None and task.state is not None
        now = self._models.get(self._key(task))
        if not self._moves(task) and now is not None and now.at == task.state:
            return now, now.state
        state, metadata = self._states.get_with_metadata(task.state)
        loaded = self._model(task)
        roles, moves = self._branches.roles(task.config), self._moves(task)  # known better once the model is built
        if moves:
            # The model at hand may have been trained, with another learning rate: what is not moved is to be as built.
            restore(loaded.model, loaded.initial)
            if roles.rate in dict(task.config):
                set_learning_rate(loaded.model, dict(task.config)[str(roles.rate)])
            rate = float(_rate_as_built(loaded.initial))
            rate_changed = roles.rate is None and rate != metadata.get("rate_as_built", rate)
            state = move_state(state, loaded.model, rate_changed=rate_changed)
        restore(loaded.model, state)
        return loaded, state

    def _moves(self, task: StageTask) -> bool:
        """Whether the stage begins with another model than the one before it."""
        roles = self._branches.roles(task.config)
        return roles.built_in(task.before or ()) != roles.built_in(task.config)

    def _key(self, task: StageTask) -> tuple[int, Config]:
        return task.execution, self._branches.roles(task.config).built_in(task.config)

    def _model(self, task: StageTask) -> _Loaded:
        """The model that is built with the configuration of a stage: one at hand, or a new one."""
        key = self._key(task)
        if key not in self._models:
            while self._models and not self._room():  # before the next is built, for the sake of memory
                self._models.popitem(last=False)
                gc.collect()
            loaded = self._prepared(key) or self._built(task)
            key = loaded.key
            self._models[key] = loaded
        self._models.move_to_end(key)
        return self._models[key]

    def _built(self, task: StageTask) -> _Loaded:
        with schedules.recording() as uses:
            model = self._job.build(task.config, task.execution)
        self.builds += 1
        for use in uses:
            self._job.roles.require(use.name, use.applies_to)
        self._branches.check(model, task.config)
        settings = self._branches.roles(task.config).settings_of(task.config)
        return _Loaded(model, self._key(task), capture(model), settings, {})

    def _prepared(self, key: tuple[int, Config]) -> _Loaded | None:
        """The model that was built before the search, if it will do: it has traced its test function already."""
        prepared = self._job.prepared
        if prepared is None or key != (0, self._job.roles.built_in(prepared.config)):
            return None
        self._job.prepared = None
        settings = self._job.roles.settings_of(prepared.config)
        return _Loaded(prepared.model, key, prepared.initial, settings, {})

    def _room(self) -> bool:
        return len(self._models) < _MODELS and sum(m.initial.nbytes for m in self._models.values()) < _MODEL_BYTES

    # --- training ----------------------------------------------------------------------------------------------------

    def _train(self, task: StageTask, loaded: _Loaded, state: State | None) -> StageResult:
        job, model = self._job, loaded.model
        callbacks = copy_of_callbacks(job.callbacks)
        sparse = job.data.rest.get("validation_freq", 1) != 1
        recorder = Recorder(task, job.objective, callbacks, sparse=sparse)
        resume = [ResumeCallbacks(state, callbacks)] if state is not None and callbacks else []
        before = _iterations(model)
        loaded.at = None
        model.fit(
            **self._fit_arguments(task),
            epochs=task.end,
            initial_epoch=task.start,
            callbacks=[*callbacks, *resume, recorder],
        )
        size = self._keep(task, loaded, recorder)
        best_bytes = 0
        if recorder.best is not None and task.keep_best is not None:
            best_bytes = self._states.put(task.keep_best, recorder.best[1], {"epoch": recorder.best[0]})
        return StageResult(
            history=recorder.history,
            steps=_iterations(model) - before,
            seconds=recorder.seconds,
            stopped=recorder.stopped,
            bytes=size,
            best_epoch=None if recorder.best is None else recorder.best[0],
            best_bytes=best_bytes,
        )

    def _fit_arguments(self, task: StageTask) -> dict[str, Any]:
        job, data = self._job, self._job.data_of(task.execution)
        config, seed = job.roles.data_config(task.config), job.seed_of(task.execution)
        arguments = {"verbose": 0, **data.rest}
        arguments.update(data.source.fit_arguments(task.start, task.end, seed, config))
        arguments.pop("validation_batch_size", None)
        batch = config.get("batch_size", getattr(data.source, "batch_size", None))
        arguments.update(data.validation_arguments(None if batch is None else int(batch)))
        return arguments

    def _keep(self, task: StageTask, loaded: _Loaded, recorder: Recorder) -> int:
        state = recorder.state
        if state is None or task.keep is None or recorder.stopped:  # nothing follows on a training that ended
            return 0
        loaded.state = state
        if not _ends_otherwise(loaded.model, recorder):
            loaded.at = task.keep
        rate = _rate_as_built(loaded.initial)
        return self._states.put(task.keep, state, {"rate_as_built": float(rate)})


def copy_of_callbacks(callbacks: list[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """Copies, so that nothing that one stage teaches them reaches another.

    Raises:
        keras_tuner.errors.FatalValueError: One cannot be copied.
    """
    copies = []
    for callback in callbacks:
        try:
            copies.append(copy.deepcopy(callback))
        except Exception as error:
            raise keras_tuner.errors.FatalValueError(
                "expected callbacks that copy.deepcopy can copy, since each trial trains with its own, got "
                f"{type(callback).__name__} ({error}). Open files, locks and the like in its on_train_begin."
            ) from error
    return copies


def _iterations(model: keras.Model) -> int:
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))  # a mirrored variable is no number


def _ends_otherwise(model: keras.Model, recorder: Recorder) -> bool:
    """Whether `fit` exchanged the weights at its end: for averages, or for those of the best epoch."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    restoring = any(getattr(callback, "restore_best_weights", False) for callback in recorder._stateful)
    return bool(getattr(optimizer, "use_ema", False)) or restoring


def _rate_as_built(state: State) -> Any:
    rates = [value for path, value in state.optimizer or () if path.endswith("/learning_rate")]
    return rates[-1] if rates else 0.0

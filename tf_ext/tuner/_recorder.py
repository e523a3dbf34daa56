"""The last callback of a stage: takes down metrics, the weights of the best epoch, and the state at the end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import keras
import keras_tuner

from tf_ext.checkpoint.keras import State, capture
from tf_ext.tuner._job import StageTask

__all__ = ["Recorder"]


class Recorder(keras.callbacks.Callback):
    """Comes last, so that it sees what the other callbacks made of an epoch.

    The state is taken in `on_epoch_end`, since `fit` may exchange the weights afterwards.

    Attributes:
        history: The metrics of each epoch, as floats.
        seconds: From the begin of the first epoch to the end of the last.
        stopped: Whether a callback asked to stop.
        state: The state at the end of the stage, if it is to be kept.
        best: Epoch and weights of the best epoch of the path, if it is one of these.
    """

    def __init__(
        self,
        task: StageTask,
        objective: keras_tuner.Objective,
        stateful: Sequence[keras.callbacks.Callback],
        sparse: bool,
    ) -> None:
        super().__init__()
        self._sparse = sparse  # not every epoch is validated
        self._task, self._objective, self._stateful = task, objective, list(stateful)
        self._best_value = task.best
        self._began = 0.0
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0
        self.stopped = False
        self.state: State | None = None
        self.best: tuple[int, State] | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Starts the clock."""
        if not self._began:
            self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes down what there is."""
        self.seconds = time.perf_counter() - self._began
        logs = {name: float(value) for name, value in (logs or {}).items()}
        self.history.append(logs)
        self.stopped = bool(self.model.stop_training)
        if self._objective.has_value(logs):
            self._take_best(epoch, float(self._objective.get_value(logs)))
        elif not self._sparse:
            raise keras_tuner.errors.FatalValueError(
                f"expected the objective {self._objective.name!r} among the metrics of an epoch, got {sorted(logs)}. Name "
                "one of these, or give `fit` what computes it (such as validation_data)."
            )
        if epoch + 1 == self._task.end and self._task.keep is not None:
            self.state = capture(self.model, callbacks=self._stateful)

    def _take_best(self, epoch: int, value: float) -> None:
        # As in `keras_tuner`: the first of equals, and the first epoch even where it is not a number.
        if self._best_value is not None and not self._objective.better_than(value, self._best_value):
            return
        self._best_value = value
        if self._task.keep_best is not None:
            self.best = epoch, dataclasses.replace(capture(self.model), optimizer=None)

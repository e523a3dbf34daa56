"""The time from the first to the last step of each epoch: the same clock for both tuners."""

from __future__ import annotations

import time
from typing import Any

import keras


class Stopwatch(keras.callbacks.Callback):
    """Adds up the seconds, steps and epochs of all trainings that it is given to, validation included.

    Put it first: what other callbacks do at the end of an epoch, such as saving weights, does not count then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.steps = self.epochs = 0
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Starts the clock."""
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts a step."""
        self.steps += 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Stops the clock."""
        self.seconds += time.perf_counter() - self._began
        self.epochs += 1

    def get_state(self) -> dict[str, Any]:
        """Nothing that a training depends on: the stages of a trial need not hand it on."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Nothing to put back."""

    def __deepcopy__(self, memo: Any) -> Stopwatch:
        """Itself: tuners copy callbacks for each trial, and it is one clock for all of them."""
        return self

"""What `keras.callbacks.TensorBoard` would write for each trial, written from the history when a trial has ended.

A stage belongs to many trials, and each trial has its own directory. Scalars and HParams entries are written; graphs,
histograms and profiles would be those of stages and are left out.
"""

from __future__ import annotations

import os
from typing import Any

import keras
import tensorflow as tf
from keras_tuner.engine.trial import Trial

__all__ = ["TensorBoardLogs"]


class TensorBoardLogs:
    """The `TensorBoard` callbacks among the user's.

    Args:
        tuner: Which makes the HParams entries.
        callbacks: The user's.
    """

    def __init__(self, tuner: Any, callbacks: list[keras.callbacks.Callback]) -> None:
        self._tuner = tuner
        self._boards = [c for c in callbacks if isinstance(c, keras.callbacks.TensorBoard)]

    @staticmethod
    def others(callbacks: list[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
        """The callbacks that are none."""
        return [c for c in callbacks if not isinstance(c, keras.callbacks.TensorBoard)]

    def write(self, trial: Trial, histories: dict[int, list[dict[str, float]]]) -> None:
        """Writes the curves of each execution, where `keras_tuner` has them."""
        for board in self._boards:
            for execution, history in histories.items():
                copies = [keras.callbacks.TensorBoard(log_dir=board.log_dir)]
                self._tuner._configure_tensorboard_dir(copies, trial, execution)
                _scalars(os.fspath(copies[0].log_dir), history)
                for entry in copies[1:]:
                    entry.on_train_begin()
                    entry.on_train_end()


def _scalars(directory: str, history: list[dict[str, float]]) -> None:
    for part, prefix in (("train", ""), ("validation", "val_")):
        names = sorted({n for logs in history for n in logs if n.startswith("val_") == bool(prefix)})
        if not names:
            continue
        with tf.summary.create_file_writer(os.path.join(directory, part)).as_default():
            for epoch, logs in enumerate(history):
                for name in (n for n in names if n in logs):
                    tf.summary.scalar(f"epoch_{name.removeprefix(prefix)}", logs[name], step=epoch)

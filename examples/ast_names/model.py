"""The model, and its training within a number of seconds."""

from __future__ import annotations

import math
import time
from typing import Any

import keras
import rich.progress
import tensorflow as tf

from examples.ast_names.data import Data
from tf_ext.recursion import Trees, layers

BATCH = 32


def build(data: Data, units: int = 96, features: int = 64) -> Any:
    """A child-sum TreeLSTM over the syntax tree, and a classifier of what it says of the root.

    Args:
        data: tells the sizes of vocabulary and labels.
        units: of the TreeLSTM.
        features: of a node.

    Returns:
        The compiled model.
    """
    inputs = Trees.inputs()
    embedding = keras.layers.Embedding(len(data.vocabulary), features)
    h = layers.ChildSumTreeLSTM(units, embedding=embedding, dropout=0.3)(inputs)
    h = keras.layers.Dropout(0.5)(h)
    model = keras.Model(inputs, keras.layers.Dense(len(data.names))(h))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(weight_decay=1e-2), loss, metrics=["accuracy"])
    return model


def train(model: Any, data: Data, seconds: float, learning_rate: float = 4e-3) -> None:
    """Trains until the time is over, with a learning rate that falls to zero by then.

    Args:
        model: of `build`.
        data: what to learn from.
        seconds: how long.
        learning_rate: at the start.
    """
    functions = data.train.forest.dataset(data.train.labels)
    dataset = functions.shuffle(len(data.train.labels), seed=0).batch(BATCH).prefetch(2)
    columns = [
        rich.progress.TextColumn("training"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("epoch {task.fields[epoch]:.1f}  loss {task.fields[loss]:.3f}"),
        rich.progress.TimeRemainingColumn(),
    ]
    with rich.progress.Progress(*columns) as progress:
        steps = math.ceil(len(data.train.labels) / BATCH)
        timed = Timed(seconds, learning_rate, steps, progress)
        model.fit(dataset, epochs=1000, verbose=0, shuffle=False, callbacks=[timed])


class Timed(keras.callbacks.Callback):
    """Ends the training in time, and lets the learning rate fall as the time goes by.

    Args:
        seconds: how long the training may last.
        learning_rate: at the start.
        steps: of an epoch.
        progress: where to show how far it is.
    """

    def __init__(self, seconds: float, learning_rate: float, steps: int, progress: rich.progress.Progress) -> None:
        super().__init__()
        self._seconds, self._rate, self._steps, self._progress = seconds, learning_rate, steps, progress
        self._start = time.monotonic()
        self._task = progress.add_task("training", total=seconds, epoch=0.0, loss=math.nan)
        self._batches = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the learning rate."""
        left = max(0.0, 1 - (time.monotonic() - self._start) / self._seconds)
        self.model.optimizer.learning_rate = self._rate * left

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Shows the progress and looks at the clock."""
        self._batches += 1
        passed = time.monotonic() - self._start
        epoch = self._batches / self._steps
        self._progress.update(self._task, completed=min(passed, self._seconds), epoch=epoch, loss=logs["loss"])
        if passed > self._seconds:
            self.model.stop_training = True


def predict(model: Any, data: Data) -> Any:
    """[test functions, labels], the probability of each label."""
    scores = model.predict(data.test.forest.dataset().batch(100), verbose=0)
    return tf.nn.softmax(scores).numpy()

"""The same search with Keras Tuner as it is: a `HyperModel.fit` that changes the hyper-parameters by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import keras_tuner
import tensorflow as tf

from examples.digits_schedule.data import Data
from examples.digits_schedule.study import OBJECTIVE, SEED, Study, network
from tf_ext import tuner
from tf_ext.checkpoint.keras import State, capture, restore


class Scheduled(keras_tuner.HyperModel):
    """Trains each trial from beginning to end, with the same seed and the same batches as `tf_ext.tuner`.

    Args:
        study: What is searched.
        data: What to train with.
        reuse: Hand back one model with its first state for all trials, instead of building one for each: what is left of
            the difference to `tf_ext.tuner` is merging's.
    """

    def __init__(self, study: Study, data: Data, *, reuse: bool) -> None:
        super().__init__()
        self._study, self._reuse = study, reuse
        self._made: tuple[keras.Model, State] | None = None
        self._batches = tuner.data.epochs(data.x, data.y, seed=SEED)
        whole = tf.data.Dataset.from_tensors((data.validation_x, data.validation_y))
        self._validation = whole.cache()  # arrays would be copied anew by each call of `fit`

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """A model with the same weights for each trial."""
        rate = self._study.ask(hp)
        if self._made is None or not self._reuse:
            keras.utils.set_random_seed(SEED)
            model = network(rate)
            self._made = model, capture(model)
        else:
            restore(*self._made)
        return self._made[0]

    def fit(self, hp: keras_tuner.HyperParameters, model: keras.Model, *args: Any, **kwargs: Any) -> dict[str, float]:
        """One call of `model.fit` for each stretch in which nothing changes; returns the best epoch's metrics."""
        rates = tuner.Sequence.parse(hp.get("learning_rate"))
        sizes = tuner.Sequence.parse(hp.get("batch_size"))
        logs: list[dict[str, float]] = []
        for (rate, size), group in itertools.groupby(range(self._study.epochs), lambda e: (rates.at(e), sizes.at(e))):
            logs += self.stretch(model, list(group), float(rate), int(size), **kwargs)
        return max(logs, key=lambda metrics: metrics[OBJECTIVE])  # the first of equals

    def stretch(
        self, model: keras.Model, epochs: Sequence[int], rate: float, batch: int, **fit: Any
    ) -> list[dict[str, float]]:
        """Trains some epochs in a row with one learning rate and one batch size; returns the metrics of each."""
        model.optimizer.learning_rate = rate
        columns = model.fit(
            self._batches.dataset(epochs[0], batch, count=len(epochs)),
            steps_per_epoch=self._batches.steps(batch),
            shuffle=False,  # they are
            validation_data=self._validation,
            initial_epoch=epochs[0],
            epochs=epochs[-1] + 1,
            **fit,
        ).history
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

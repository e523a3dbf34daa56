"""Trains one trial by itself, in a loop over `fit` that knows nothing of the tuner but the order of the data."""

import itertools
from collections.abc import Mapping
from typing import Any

import keras

from benchmarks.tuner import small
from benchmarks.tuner.small import State
from benchmarks.tuner.spaces import Space
from tf_ext import tuner
from tf_ext.tuner.segments import Sequence

History = list[dict[str, float]]


class _Going(keras.callbacks.Callback):
    """A callback that takes several calls of `fit` for one training."""

    def __init__(self, inner: keras.callbacks.Callback) -> None:
        super().__init__()
        self._inner, self._begun = inner, False

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._inner.set_model(model)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._begun:
            self._inner.on_train_begin(logs)
        self._begun = True

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._inner.on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._inner.on_epoch_end(epoch, logs)


class _Weights(keras.callbacks.Callback):
    """Keeps `fit` from exchanging the weights for their averages at its end, in the midst of a training."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.kept = [v.numpy() for v in self.model.variables]

    def put_back(self, model: keras.Model) -> None:
        for variable, value in zip(model.variables, self.kept, strict=True):
            variable.assign(value)


class Alone:
    """Trains trials of a study, each by itself.

    Args:
        space: What the study searches.
        state: What its models are made of.
        seed: Of the weights, the masks and the order of the data.
    """

    def __init__(self, space: Space, state: State, seed: int = small.SEED) -> None:
        self._space, self._state, self._seed = space, state, seed
        (x, y), self._validation = small.data()
        self._batches = tuner.data.epochs(x, y, seed=seed)

    def train(self, values: Mapping[str, Any], epochs: int) -> History:
        """Trains a trial and returns the metrics of each epoch; fewer where a callback stops the training."""
        sequences = {name: _sequence(value) for name, value in values.items() if not name.startswith("tuner/")}
        rows = [{**small.DEFAULTS, **{n: s.at(e) for n, s in sequences.items()}} for e in range(epochs)]
        keras.backend.clear_session()
        keras.utils.set_random_seed(self._seed)
        model = small.network(rows[0].get("optimizer", self._state.optimizer), rows[0], self._state.policy)
        weights = _Weights()
        callbacks = [*(_Going(callback) for callback in self._state.callbacks()), weights]
        history: History = []
        before = rows[0]
        for _, group in itertools.groupby(range(epochs), lambda epoch: sorted(rows[epoch].items())):
            stretch = list(group)
            now = rows[stretch[0]]
            self._change(model, before, now)
            history += self._fit(model, stretch, now, callbacks)
            if model.stop_training:
                break
            weights.put_back(model)
            before = now
        return history

    def _change(self, model: keras.Model, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Does by hand what each change of a hyper-parameter needs."""
        changed = {name for name in now if now[name] != before[name]}
        if "optimizer" in changed:
            small.compile_with(model, small.optimizer(now["optimizer"], now, self._state.policy))
            return
        made = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if "learning_rate" in changed:
            made.learning_rate = now["learning_rate"]
        if "momentum" in changed:
            setattr(made, "momentum" if hasattr(made, "momentum") else "beta_1", now["momentum"])
        if "weight_decay" in changed:
            made.weight_decay = now["weight_decay"]
        if "dropout" in changed:
            model.get_layer("dropout").rate = now["dropout"]
        if "noise" in changed:
            small.set_noise(model, now["noise"])
        if changed - {"learning_rate", "batch_size", "level"}:
            model.make_train_function(force=True)  # settings are constants in the one that was traced

    def _fit(self, model: keras.Model, epochs: list[int], now: Mapping[str, Any], callbacks: list[Any]) -> History:
        batch = int(now["batch_size"])
        if self._space.data_level:
            dataset = small.augmented(epochs[0], self._seed, batch, now["level"])
            for epoch in epochs[1:]:
                dataset = dataset.concatenate(small.augmented(epoch, self._seed, batch, now["level"]))
        else:
            dataset = self._batches.dataset(epochs[0], batch, count=len(epochs))
        logs = model.fit(
            dataset,
            steps_per_epoch=self._batches.steps(batch),
            validation_data=self._validation,
            validation_batch_size=batch,
            initial_epoch=epochs[0],
            epochs=epochs[-1] + 1,
            shuffle=False,
            callbacks=callbacks,
            verbose=0,
        ).history
        return [dict(zip(logs, row, strict=True)) for row in zip(*logs.values(), strict=True)]


def _sequence(value: Any) -> Sequence:
    return Sequence.parse(value) if Sequence.is_text(value) else Sequence.of([(value, 0)])

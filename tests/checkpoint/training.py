"""Small trainings whose every step is a function of the seeds, and a program that resumes one in a new process."""

import sys

import keras
import numpy as np

from tf_ext import checkpoint

SAMPLES, BATCH = 48, 12


class EpochKeyed(keras.utils.PyDataset):
    """Batches whose order is a function of the epoch alone."""

    def __init__(self, epoch=0, **kwargs):
        super().__init__(**kwargs)
        draw = np.random.default_rng(7)
        self._x = draw.standard_normal((SAMPLES, 8, 8, 1)).astype(np.float32)
        self._y = draw.integers(0, 3, SAMPLES)
        self._enter(epoch)

    def _enter(self, epoch):
        self._epoch, self._order = epoch, np.random.default_rng(epoch).permutation(SAMPLES)

    def __len__(self):
        return SAMPLES // BATCH

    def __getitem__(self, index):
        rows = self._order[index * BATCH : (index + 1) * BATCH]
        return self._x[rows], self._y[rows]

    def on_epoch_end(self):
        self._enter(self._epoch + 1)


def make_model(optimizer, seed, dtype="float32", jit_compile=False):
    """A small CNN with everything that keeps a state: statistics, masks, slots."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, dtype=dtype),
            keras.layers.BatchNormalization(dtype=dtype),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3, dtype=dtype),
            keras.layers.Dense(8, activation="relu", dtype=dtype),
            keras.layers.Dropout(0.2, dtype=dtype),
            keras.layers.Dense(3, dtype="float32"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # XLA takes seconds for each model.
    model.compile(OPTIMIZERS[optimizer](), loss, metrics=["accuracy"], jit_compile=jit_compile)
    return model


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "ema": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.8), use_ema=True, gradient_accumulation_steps=2
    ),
    # Grows every third step, so that its counter and its scale change on the way.
    "loss_scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), dynamic_growth_steps=3),
}


def train(model, begin, end, callbacks=()):
    """Trains from one epoch to another and returns the history of losses and metrics."""
    # Order, not speed: a PyDataset with workers of its own would read ahead into the next epoch.
    history = model.fit(
        EpochKeyed(begin), initial_epoch=begin, epochs=end, shuffle=False, verbose=0, callbacks=list(callbacks)
    )
    return history.history


def values(model):
    """All that a training changes, by position."""
    return [keras.ops.convert_to_numpy(v).copy() for v in [*model.variables, *model.optimizer.variables]]


def difference(one, other):
    """The largest difference between two models, in any variable."""
    pairs = list(zip(values(one), values(other), strict=True))
    return max(float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0)) for a, b in pairs)


if __name__ == "__main__":
    directory, name = sys.argv[1:]
    resumed = make_model("adam", seed=123)
    store = checkpoint.Store(directory)
    checkpoint.keras.restore(resumed, checkpoint.keras.load(store, name))
    train(resumed, 2, 4)
    checkpoint.keras.save(store, "resumed", checkpoint.keras.capture(resumed))

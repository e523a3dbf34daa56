"""What is searched: a small CNN, a learning rate with three stages, and a batch size that grows."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from tf_ext import tuner

SEED = 7
OBJECTIVE = "val_accuracy"
# Changes fall on these parts of the training, so that its epochs are a multiple of 6.
PARTS = 6


@dataclasses.dataclass(frozen=True)
class Study:
    """A grid of twelve trials.

    Attributes:
        epochs: Of each trial, a multiple of 6.
    """

    epochs: int

    def __post_init__(self) -> None:
        if self.epochs < PARTS or self.epochs % PARTS:
            raise ValueError(f"expected a multiple of {PARTS} epochs, got {self.epochs}.")

    def rates(self) -> dict[str, Any]:
        """Half of the training with 0.1, then with one of two values, and the last third or sixth with 0.004."""
        part = self.epochs // PARTS
        return {"values": [0.1, [0.05, 0.02], 0.004], "boundaries": [3 * part, [4 * part, 5 * part]]}

    def batches(self) -> list[str]:
        """64 throughout, or larger batches for the second half or the last third."""
        part = self.epochs // PARTS
        return ["64@0", f"64@0|128@{3 * part}", f"64@0|256@{4 * part}"]

    def ask(self, hp: Any) -> float:
        """Asks for the hyper-parameters, which for Keras Tuner are texts, and returns the first learning rate."""
        tuner.sequence(hp, "batch_size", self.batches())
        return float(tuner.piecewise(hp, "learning_rate", **self.rates()))

    def build(self, hp: Any) -> keras.Model:
        """The model as a trial begins with it."""
        return network(self.ask(hp))


def network(rate: float) -> keras.Model:
    """A compiled CNN of 20,000 weights, with all that has a state: averages of batches, masks, momenta."""
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # No XLA: it would compile for every size of batch, which takes longer here than all of the training.
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss, metrics=["accuracy"], jit_compile=False)
    return model

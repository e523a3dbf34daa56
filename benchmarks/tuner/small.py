"""A model of a few weights that has all the state there is, and data for it: what exactness is measured with."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

SEED = 5
COUNT, VALIDATION, FEATURES = 192, 48, 6
# What a trial has where its study says nothing else.
DEFAULTS: dict[str, Any] = {
    "learning_rate": 0.05,
    "momentum": 0.9,
    "weight_decay": 0.01,
    "dropout": 0.3,
    "noise": 0.1,
    "batch_size": 32,
}

Parts = tuple[np.ndarray, np.ndarray]


def data() -> tuple[Parts, Parts]:
    """Returns 144 examples to train with and 48 to validate."""
    random = np.random.default_rng(0)
    x = random.normal(size=(COUNT, FEATURES)).astype("float32")
    y = (x[:, 0] + 0.3 * random.normal(size=COUNT) > 0).astype("int32")
    cut = COUNT - VALIDATION
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def augmented(epoch: int, seed: int, batch_size: int = 32, level: float = 0.0) -> tf.data.Dataset:
    """The training data of an epoch in an order of its own, each feature moved by up to `level`."""
    (x, y), _ = data()
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(x))
    moved = x[order] + level * random.uniform(-1, 1, x.shape).astype("float32")
    return tf.data.Dataset.from_tensor_slices((moved, y[order])).batch(batch_size)


@dataclasses.dataclass(frozen=True)
class State:
    """What has to be handed on from stage to stage besides weights, averages of batches and masks.

    Attributes:
        name: Of the state.
        optimizer: Its kind.
        policy: That of the model's dtypes.
        callbacks: Makes the callbacks that the search is given.
    """

    name: str
    optimizer: str = "sgd"
    policy: str = "float32"
    callbacks: Callable[[], list[keras.callbacks.Callback]] = list

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Sets the dtype policy meanwhile."""
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(self.policy)
        try:
            yield
        finally:
            keras.config.set_dtype_policy(before)


STATES = {
    state.name: state
    for state in (
        State("SGD with momentum"),
        State("Adam", "adam"),
        State("AdamW", "adamw"),
        State("EarlyStopping", callbacks=lambda: [keras.callbacks.EarlyStopping("val_loss", patience=2)]),
        State(
            "ReduceLROnPlateau",
            "adam",
            callbacks=lambda: [keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=0.05)],
        ),
        State("mixed precision", "adam", policy="mixed_bfloat16"),
        State("averaged weights", "averaging"),
    )
}


def optimizer(kind: str, values: Mapping[str, Any], policy: str) -> keras.optimizers.Optimizer:
    """An optimizer with what a trial begins with; one that scales the loss for 16 bits."""
    rate = values["learning_rate"]
    made = {
        "sgd": lambda: keras.optimizers.SGD(rate, momentum=values["momentum"], weight_decay=values["weight_decay"]),
        "adam": lambda: keras.optimizers.Adam(rate, beta_1=values["momentum"], weight_decay=values["weight_decay"]),
        "adamw": lambda: keras.optimizers.AdamW(rate, beta_1=values["momentum"], weight_decay=values["weight_decay"]),
        "averaging": lambda: keras.optimizers.SGD(rate, momentum=values["momentum"], use_ema=True),
    }[kind]()
    return made if policy == "float32" else keras.optimizers.LossScaleOptimizer(made, dynamic_growth_steps=5)


def network(kind: str, values: Mapping[str, Any], policy: str = "float32") -> keras.Model:
    """The compiled model as a trial begins with it."""
    model = keras.Sequential(
        [
            keras.layers.Input((FEATURES,)),
            keras.layers.GaussianNoise(values["noise"], name="noise"),
            keras.layers.Dense(12, activation="relu"),
            keras.layers.Dropout(values["dropout"], name="dropout"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2, dtype="float32"),
        ]
    )
    compile_with(model, optimizer(kind, values, policy))
    return model


def compile_with(model: keras.Model, made: keras.optimizers.Optimizer) -> None:
    """Compiles a model, without XLA."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(made, loss, metrics=["accuracy"], jit_compile=False)


def set_noise(model: keras.Model, value: float) -> None:
    """How a study of noise changes it: a function of the user's own."""
    model.get_layer("noise").stddev = value

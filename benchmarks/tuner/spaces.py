"""What the studies of the bars search: for each kind of hyper-parameter that may change, sequences that share prefixes."""

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any

import keras

from benchmarks.tuner import small
from benchmarks.tuner.small import State
from tf_ext import tuner

EPOCHS = 4
_RATES = ["0.05@0|0.01@2", "0.05@0|0.02@3"]

Build = Callable[[Any], keras.Model]


@dataclasses.dataclass(frozen=True)
class Space:
    """A search space.

    Attributes:
        name: What changes.
        sequences: Candidates by hyper-parameter.
        applies_to: Where the name does not say it.
        data_level: Whether the data are made by `small.augmented`, with the hyper-parameter `level`.
        beside: The hyper-parameter that is there to make more trials only.
    """

    name: str
    sequences: Mapping[str, list[Any]]
    applies_to: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_level: bool = False
    beside: str = ""

    def smallest(self) -> "Space":
        """The same without what makes more trials only."""
        sequences = {name: candidates for name, candidates in self.sequences.items() if name != self.beside}
        return dataclasses.replace(self, sequences=sequences)

    def build(self, state: State, *, population: bool = False) -> Build:
        """A build function.

        Args:
            state: What the model is made of.
            population: Ask for a plain learning rate, which population-based training makes a sequence of.
        """

        def build(hp: Any) -> keras.Model:
            values, sequences = dict(small.DEFAULTS), dict(self.sequences)
            if population:
                sequences.pop("learning_rate", None)
                values["learning_rate"] = hp.Float("learning_rate", 0.005, 0.1, sampling="log")
            for name, candidates in sequences.items():
                values[name] = tuner.sequence(hp, name, candidates, applies_to=self.applies_to.get(name))
            return small.network(values.get("optimizer", state.optimizer), values, state.policy)

        return build


def _of(name: str, candidates: list[Any], **more: Any) -> Space:
    key = more.pop("key", name)
    return Space(name, {"learning_rate": _RATES, key: candidates}, beside="learning_rate", **more)


def _rates(name: str, *schedules: Any) -> Space:
    sequences = {"learning_rate": list(schedules), "dropout": ["0.3@0|0.1@3", "0.3@0"]}
    return Space(name, sequences, beside="dropout")


SPACES = {
    space.name: space
    for space in (
        _rates("learning rate", tuner.multi_step(0.05, 0.2, [2]), tuner.multi_step(0.05, 0.2, [3]), "0.05@0"),
        _of("momentum", ["0.9@0|0.5@2", "0.9@0"]),
        _of("weight decay", ["0.01@0|0.1@2", "0.01@0"], key="weight_decay"),
        _of("batch size", ["16@0|32@2", "16@0"], key="batch_size"),
        _of(
            "augmentation, by a function", ["0.1@0|0.5@2", "0.1@0"], key="noise", applies_to={"noise": small.set_noise}
        ),
        _of(
            "augmentation, in the data",
            ["0.1@0|0.5@2", "0.1@0"],
            key="level",
            applies_to={"level": "data"},
            data_level=True,
        ),
        _of("dropout", ["0.3@0|0.6@2", "0.3@0"]),
        _of("optimizer", ["sgd@0|adam@2", "sgd@0"]),
        _rates(
            "step, exponential, cosine, warm-up",
            tuner.step(0.05, 0.5, every=2, epochs=EPOCHS),
            tuner.exponential(0.05, 0.7, EPOCHS),
            tuner.cosine(0.05, EPOCHS),
            tuner.warmup("0.05@0|0.01@1", 2),
        ),
    )
}


def random_space(seed: int, hyperparameters: int = 3) -> Space:
    """Hyper-parameters with random sequences, some of which begin alike."""
    draw = random.Random(seed)
    values = {
        "learning_rate": (0.1, 0.05, 0.01),
        "batch_size": (16, 32, 48),
        "dropout": (0.2, 0.5),
        "momentum": (0.5, 0.9),
        "noise": (0.1, 0.3),
    }

    def one(name: str) -> str:
        starts = [0, *sorted(draw.sample(range(1, EPOCHS), draw.randint(0, 2)))]
        first = values[name][0]
        return "|".join(f"{first if not s else draw.choice(values[name])}@{s}" for s in starts)

    names = draw.sample(sorted(values), hyperparameters)
    return Space(f"random stage tree {seed}", {name: [one(name) for _ in range(draw.randint(2, 3))] for name in names})

"""One small search of each oracle."""

import random

import keras_tuner
import numpy as np

from tests.tuner.oracles.driver import placed, space
from tf_ext.tuner.oracles import (
    ASHAOracle,
    GridSearchOracle,
    HyperbandOracle,
    MedianStoppingOracle,
    PopulationBasedTrainingOracle,
    RandomSearchOracle,
    StageOracle,
    SuccessiveHalvingOracle,
)

STOCK = keras_tuner.oracles


class GuessingOracle(keras_tuner.Oracle):
    """A user's own: its generator goes on from trial to trial, and it prefers what did well."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.generator = np.random.RandomState(self.seed)

    def populate_space(self, trial_id):
        done = [trial for trial in self.trials.values() if trial.status == "COMPLETED"]
        base = min(done, key=lambda trial: trial.score).hyperparameters.values["units"] if done else 32
        units = int(np.clip(base + self.generator.randint(-9, 10), 1, 64))
        return {
            "status": "RUNNING",
            "values": {"kind": "a", "rate": self.generator.uniform(1e-4, 1e-1), "units": units},
        }


def small() -> keras_tuner.HyperParameters:
    hp = keras_tuner.HyperParameters()
    hp.Choice("kind", ["a", "b"])
    with hp.conditional_scope("kind", ["b"]):
        hp.Boolean("norm")
    hp.Choice("rate", [0.1, 0.01, 0.001])
    return hp


def settings_of(**more):
    return {"objective": "loss", "seed": 3, "hyperparameters": space(conditional=True)} | more


ORACLES = {
    "grid": lambda: GridSearchOracle("loss", hyperparameters=small()),
    "random": lambda: RandomSearchOracle(**settings_of(max_trials=9)),
    "sha": lambda: SuccessiveHalvingOracle(**settings_of(max_trials=9, max_epochs=9)),
    "hyperband": lambda: HyperbandOracle(**settings_of(max_epochs=4, factor=2)),
    "pbt": lambda: PopulationBasedTrainingOracle(**settings_of(population=4, interval=2, max_epochs=5, quantile=0.5)),
    "asha": lambda: ASHAOracle(**settings_of(max_trials=8, max_epochs=4, factor=2)),
    "median": lambda: MedianStoppingOracle(RandomSearchOracle(**settings_of(max_trials=9)), 2, 3, 2),
    "stock random": lambda: StageOracle(STOCK.RandomSearchOracle(**settings_of(max_trials=9))),
    "stock grid": lambda: StageOracle(STOCK.GridSearchOracle("loss", hyperparameters=small()), lookahead=1),
    "stock hyperband": lambda: StageOracle(STOCK.HyperbandOracle(**settings_of(max_epochs=4, factor=2)), lookahead=1),
    "user's own": lambda: StageOracle(GuessingOracle(**settings_of(max_trials=9))),
}
# What these suggest depends on the order in which trials end; with the same order it is the same.
ORDERED = {"asha", "median", "stock grid", "stock hyperband", "user's own"}


def order_of(name: str, seed: int) -> random.Random | None:
    return None if name in ORDERED else random.Random(seed)


def made(name, directory, project="search"):
    oracle = placed(ORACLES[name](), directory, project)
    oracle.parallelism = 3
    return oracle

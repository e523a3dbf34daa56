"""A search as a program, to be killed: python -m tests.tuner.killed_search ORACLE DIRECTORY [WORKERS]."""

import sys

import keras

from tests.tuner import small
from tf_ext import tuner

EPOCHS = 4


def build(hp):
    rate = tuner.sequence(hp, "learning_rate", ["0.1@0|0.02@2", "0.1@0|0.01@3", "0.05@0"])
    tuner.sequence(hp, "batch_size", ["16@0|32@2", "16@0"])
    return small.model(keras.optimizers.SGD(rate, momentum=0.9))


def build_population(hp):
    return small.model(keras.optimizers.SGD(hp.Float("learning_rate", 0.01, 0.3, sampling="log"), momentum=0.9))


def search_with(oracle, directory, workers=None):
    common = {"seed": 5, "directory": directory, "project_name": oracle, "workers": workers, "exact": True}
    makers = {
        "grid": lambda: tuner.GridSearch(build, "val_loss", **common),
        "random": lambda: tuner.RandomSearch(build, "val_loss", max_trials=5, **common),
        "sha": lambda: tuner.SuccessiveHalving(
            build, "val_loss", max_trials=6, min_epochs=1, max_epochs=EPOCHS, factor=2, **common
        ),
        "hyperband": lambda: tuner.Hyperband(build, "val_loss", max_epochs=EPOCHS, factor=2, **common),
        "population": lambda: tuner.PopulationBasedTraining(
            build_population, "val_loss", population=3, interval=2, max_epochs=EPOCHS, **common
        ),
        "asha": lambda: tuner.ASHA(
            build, "val_loss", max_trials=5, min_epochs=1, max_epochs=EPOCHS, factor=2, **common
        ),
    }
    search = makers[oracle]()
    search.search(*small.data(), validation_split=0.25, epochs=EPOCHS, verbose=0)
    return search


if __name__ == "__main__":
    search_with(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)

"""Hyper-parameter tuning that trains every shared prefix once: Keras Tuner with stage trees (Hippo, PVLDB 15(5), 2022).

Stands where `keras_tuner` stands:

    from tf_ext import tuner

    def build(hp):
        rate = tuner.sequence(hp, "learning_rate", ["0.1@0|0.01@40", "0.1@0|0.01@60"])  # the first 40 epochs are shared
        ...

    search = tuner.GridSearch(build, objective="val_accuracy")
    search.search(x, y, validation_split=0.2, epochs=80)
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from tf_ext.tuner.errors import (
    CorruptedPlanError,
    InexactDataError,
    InvalidSequenceError,
    PlanMismatchError,
    PlanVersionError,
    SharingError,
    TunerError,
    WorkerLostError,
)
from tf_ext.tuner.plan import Plan
from tf_ext.tuner.schedules import cosine, exponential, multi_step, piecewise, sequence, step, warmup
from tf_ext.tuner.segments import Sequence

if TYPE_CHECKING:
    from keras_tuner import HyperModel as HyperModel
    from keras_tuner import HyperParameters as HyperParameters
    from keras_tuner import Objective as Objective
    from keras_tuner import Oracle as Oracle
    from keras_tuner import SklearnTuner as SklearnTuner

    from tf_ext.tuner import data as data
    from tf_ext.tuner import oracles as oracles
    from tf_ext.tuner.executors import Executor as Executor
    from tf_ext.tuner.executors import InProcessExecutor as InProcessExecutor
    from tf_ext.tuner.executors import LocalExecutor as LocalExecutor
    from tf_ext.tuner.kfold import KFoldTuner as KFoldTuner
    from tf_ext.tuner.simulator import simulate as simulate
    from tf_ext.tuner.tuner import Tuner as Tuner
    from tf_ext.tuner.tuners import ASHA as ASHA
    from tf_ext.tuner.tuners import BayesianOptimization as BayesianOptimization
    from tf_ext.tuner.tuners import GridSearch as GridSearch
    from tf_ext.tuner.tuners import Hyperband as Hyperband
    from tf_ext.tuner.tuners import PopulationBasedTraining as PopulationBasedTraining
    from tf_ext.tuner.tuners import RandomSearch as RandomSearch
    from tf_ext.tuner.tuners import SuccessiveHalving as SuccessiveHalving

# What needs Keras and Keras Tuner is imported when it is asked for: plans are read without.
_MODULES = {
    "Executor": "executors",
    "InProcessExecutor": "executors",
    "LocalExecutor": "executors",
    "simulate": "simulator",
    "KFoldTuner": "kfold",
    "Tuner": "tuner",
    "ASHA": "tuners",
    "BayesianOptimization": "tuners",
    "GridSearch": "tuners",
    "Hyperband": "tuners",
    "PopulationBasedTraining": "tuners",
    "RandomSearch": "tuners",
    "SuccessiveHalving": "tuners",
}
_SUBMODULES = ("data", "legacy", "oracles", "views")
# Keras Tuner's own, so that programs which say `keras_tuner.HyperModel` need one other import and no more.
_THEIRS = ("HyperModel", "HyperParameters", "Objective", "Oracle", "SklearnTuner")
_THEIR_SUBMODULES = ("applications", "engine")

__all__ = [
    "ASHA",
    "BayesianOptimization",
    "CorruptedPlanError",
    "Executor",
    "GridSearch",
    "HyperModel",
    "HyperParameters",
    "Hyperband",
    "InProcessExecutor",
    "InexactDataError",
    "InvalidSequenceError",
    "KFoldTuner",
    "LocalExecutor",
    "Objective",
    "Oracle",
    "Plan",
    "PlanMismatchError",
    "PlanVersionError",
    "PopulationBasedTraining",
    "RandomSearch",
    "Sequence",
    "SharingError",
    "SklearnTuner",
    "SuccessiveHalving",
    "Tuner",
    "TunerError",
    "WorkerLostError",
    "cosine",
    "exponential",
    "multi_step",
    "piecewise",
    "sequence",
    "simulate",
    "step",
    "warmup",
]


def __getattr__(name: str) -> Any:
    if name not in (*_MODULES, *_SUBMODULES, *_THEIRS, *_THEIR_SUBMODULES):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name in _THEIRS:
            return getattr(importlib.import_module("keras_tuner"), name)
        if name in _THEIR_SUBMODULES:
            return importlib.import_module(f"keras_tuner.{name}")
        if name in _SUBMODULES:
            return importlib.import_module(f"{__name__}.{name}")
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("keras_tuner", "cloudpickle", "scipy"):
            raise ModuleNotFoundError(
                f"tf_ext.tuner needs {error.name}, which is not installed: pip install 'tf_ext[tuner]'", name=error.name
            ) from error
        raise

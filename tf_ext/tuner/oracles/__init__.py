"""Oracles: what to try next, for an engine that trains the common prefixes of many open trials once.

    from tf_ext.tuner import oracles

    oracle = oracles.HyperbandOracle("val_loss", max_epochs=27, factor=3, seed=1)

`StagedOracle` says what the engine asks of an oracle; `StageOracle` puts that in front of any of Keras Tuner's own.
"""

from __future__ import annotations

from tf_ext.tuner.oracles._asha import ASHAOracle
from tf_ext.tuner.oracles._bayesian import BayesianOptimizationOracle
from tf_ext.tuner.oracles._grid import GridSearchOracle
from tf_ext.tuner.oracles._halving import SuccessiveHalvingOracle
from tf_ext.tuner.oracles._hyperband import HyperbandOracle
from tf_ext.tuner.oracles._median import MedianStoppingOracle
from tf_ext.tuner.oracles._population import PopulationBasedTrainingOracle
from tf_ext.tuner.oracles._random import RandomSearchOracle
from tf_ext.tuner.oracles._replay import replay
from tf_ext.tuner.oracles._staged import StagedOracle
from tf_ext.tuner.oracles._wrapper import StageOracle

__all__ = [
    "ASHAOracle",
    "BayesianOptimizationOracle",
    "GridSearchOracle",
    "HyperbandOracle",
    "MedianStoppingOracle",
    "PopulationBasedTrainingOracle",
    "RandomSearchOracle",
    "StageOracle",
    "StagedOracle",
    "SuccessiveHalvingOracle",
    "replay",
]

"""Oracles: what to try next, for an engine that trains the common prefixes of many open trials once."""

from __future__ import annotations

from tf_ext.tuner.oracles._bayesian import BayesianOptimizationOracle
from tf_ext.tuner.oracles._grid import GridSearchOracle
from tf_ext.tuner.oracles._halving import SuccessiveHalvingOracle
from tf_ext.tuner.oracles._hyperband import HyperbandOracle
from tf_ext.tuner.oracles._random import RandomSearchOracle
from tf_ext.tuner.oracles._staged import StagedOracle

__all__ = [
    "BayesianOptimizationOracle",
    "GridSearchOracle",
    "HyperbandOracle",
    "RandomSearchOracle",
    "StagedOracle",
    "SuccessiveHalvingOracle",
]

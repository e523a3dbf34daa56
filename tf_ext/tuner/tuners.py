"""Tuners that bring their oracle along, as those of Keras Tuner do: one import is all that changes."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import keras_tuner

from tf_ext.tuner import oracles
from tf_ext.tuner.tuner import Tuner

__all__ = [
    "ASHA",
    "BayesianOptimization",
    "GridSearch",
    "Hyperband",
    "PopulationBasedTraining",
    "RandomSearch",
    "SuccessiveHalving",
]


class _WithOracle(Tuner):
    """Gives the arguments of the oracle to the oracle, and the others to `Tuner`."""

    _oracle: ClassVar[type[keras_tuner.Oracle]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_oracle" in vars(cls):
            own = list(inspect.signature(cls._oracle).parameters.values())
            rest = [p for p in inspect.signature(Tuner).parameters.values() if p.name not in ("oracle", "hypermodel")]
            names = {p.name for p in own}
            first = inspect.Parameter("hypermodel", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
            keyword = [p.replace(kind=p.KEYWORD_ONLY) for p in rest if p.name not in names and p.kind != p.VAR_KEYWORD]
            cls.__signature__ = inspect.Signature([first, *own, *keyword])

    def __init__(self, hypermodel: Any = None, *args: Any, **kwargs: Any) -> None:
        names = list(inspect.signature(self._oracle).parameters)
        if len(args) > len(names):
            raise TypeError(f"expected at most {len(names) + 1} positional arguments, got {len(args) + 1}.")
        own = dict(zip(names, args, strict=False))
        for name in names:
            if name in kwargs:
                if name in own:
                    raise TypeError(f"expected `{name}` once, got it by position and by name.")
                own[name] = kwargs.pop(name)
        super().__init__(self._oracle(**own), hypermodel, **kwargs)


class GridSearch(_WithOracle):
    """`keras_tuner.GridSearch`: all combinations, their common prefixes trained once.

    Args:
        hypermodel: As for `Tuner`; then the arguments of `oracles.GridSearchOracle`, and by name those of `Tuner`.

    Example:
        search = tuner.GridSearch(build, objective="val_accuracy", directory="studies")
    """

    _oracle = oracles.GridSearchOracle


class RandomSearch(_WithOracle):
    """`keras_tuner.RandomSearch`: combinations by chance, the same ones for the same seed.

    Args:
        hypermodel: As for `Tuner`; then the arguments of `oracles.RandomSearchOracle`, and by name those of `Tuner`.
    """

    _oracle = oracles.RandomSearchOracle


class BayesianOptimization(_WithOracle):
    """`keras_tuner.BayesianOptimization`: what a Gaussian process expects to be good.

    Args:
        hypermodel: As for `Tuner`; then the arguments of `oracles.BayesianOptimizationOracle`, and by name those of
            `Tuner`.
    """

    _oracle = oracles.BayesianOptimizationOracle


class Hyperband(_WithOracle):
    """`keras_tuner.Hyperband`, where a trial that is promoted goes on from its last epoch.

    Args:
        hypermodel: As for `Tuner`; then the arguments of `oracles.HyperbandOracle`, and by name those of `Tuner`.
    """

    _oracle = oracles.HyperbandOracle


class SuccessiveHalving(_WithOracle):
    """Trains many trials for a short time, and the best of them for longer (Jamieson and Talwalkar, AISTATS 2016).

    Args:
        hypermodel: As for `Tuner`; then the arguments of `oracles.SuccessiveHalvingOracle`, and by name those of `Tuner`.
    """

    _oracle = oracles.SuccessiveHalvingOracle


class ASHA(_WithOracle):
    """Successive halving that waits for no rung to fill (Li et al., MLSys 2020).

    Args:
        hypermodel: As for `Tuner`; then the arguments of `oracles.ASHAOracle`, and by name those of `Tuner`.
    """

    _oracle = oracles.ASHAOracle


class PopulationBasedTraining(_WithOracle):
    """Trains a population whose worse members go on from the better ones, perturbed (Jaderberg et al., 2017).

    Args:
        hypermodel: As for `Tuner`; then the arguments of `oracles.PopulationBasedTrainingOracle`, and by name those of
            `Tuner`.
    """

    _oracle = oracles.PopulationBasedTrainingOracle

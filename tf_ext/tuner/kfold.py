"""Cross-validation: the score of a trial is the average over folds."""

from __future__ import annotations

from typing import Any

import keras

from tf_ext.tuner._fit_data import FitData
from tf_ext.tuner._job import Job
from tf_ext.tuner._sources import EpochData, NoData
from tf_ext.tuner.tuner import Tuner

__all__ = ["KFoldTuner"]


class KFoldTuner(Tuner):
    """Trains each trial once on each fold; prefixes are shared among the trials of a fold.

    The metrics of a trial are averages over the folds, each at the best epoch of its fold. `search` takes arrays, and no
    validation data.

    Args:
        oracle: As for `Tuner`.
        hypermodel: As for `Tuner`.
        *args: As for `Tuner`.
        folds: Parts of the data, each held out once.
        **kwargs: As for `Tuner`.

    Example:
        search = tuner.KFoldTuner(tuner.oracles.GridSearchOracle("val_accuracy"), build, folds=5)
        search.search(x, y, epochs=20)
    """

    def __init__(self, oracle: Any, hypermodel: Any = None, *args: Any, folds: int = 5, **kwargs: Any) -> None:
        if folds < 2:
            raise ValueError(f"expected at least two folds, got folds={folds}.")
        self._folds = folds
        super().__init__(oracle, hypermodel, *args, **kwargs)

    @property
    def _executions(self) -> int:
        return int(self.executions_per_trial) * self._folds

    def _job(self, data: FitData, callbacks: list[keras.callbacks.Callback]) -> Job:
        job = super()._job(data, callbacks)
        if isinstance(data.source, EpochData):
            if data.validation is not None:
                raise ValueError(
                    "expected no validation data, since each fold is validated on what it holds out, got some."
                )
            parts = [data.source.fold(number, self._folds, job.seed) for number in range(self._folds)]
            job.folds = tuple(FitData(source, held, data.rest) for source, held in parts)
            job.data = job.folds[0]
        elif not isinstance(data.source, NoData):
            raise ValueError(f"expected arrays to split into folds, got {type(data.source).__name__.strip('_')}.")
        return job

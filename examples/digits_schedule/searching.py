"""The two searches, and what each of them found and took."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

import keras_tuner

from examples.digits_schedule.data import Data
from examples.digits_schedule.peer import Scheduled
from examples.digits_schedule.stopwatch import Stopwatch
from examples.digits_schedule.study import OBJECTIVE, SEED, Study
from tf_ext import tuner


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a search found and took.

    Attributes:
        scores: By the hyper-parameters of the trial.
        clock: What was trained.
        total: Seconds that `search` took.
    """

    scores: dict[tuple[str, str], float]
    clock: Stopwatch
    total: float


def _search(searching: keras_tuner.Tuner, *data: Any, **fit: Any) -> Outcome:
    clock, start = Stopwatch(), time.monotonic()
    searching.search(*data, verbose=0, callbacks=[clock], **fit)
    total = time.monotonic() - start
    trials = searching.oracle.trials.values()
    scores = {(t.hyperparameters.get("learning_rate"), t.hyperparameters.get("batch_size")): t.score for t in trials}
    return Outcome(scores, clock, total)


def ours(study: Study, data: Data, directory: pathlib.Path) -> Outcome:
    """The search with `tf_ext.tuner`; its plan lies in the project `ours` afterwards."""
    search = tuner.GridSearch(study.build, OBJECTIVE, seed=SEED, directory=directory, project_name="ours", exact=True)
    validation = (data.validation_x, data.validation_y)
    fit = {"validation_data": validation, "validation_batch_size": len(data.validation_y), "epochs": study.epochs}
    return _search(search, data.x, data.y, **fit)


def stock(study: Study, data: Data, directory: pathlib.Path, *, reuse: bool) -> Outcome:
    """The search with Keras Tuner."""
    hypermodel = Scheduled(study, data, reuse=reuse)
    name = "reusing" if reuse else "rebuilding"
    return _search(keras_tuner.GridSearch(hypermodel, OBJECTIVE, directory=directory, project_name=name))

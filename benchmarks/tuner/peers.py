"""What is run side by side on the example's grid: ours, Keras Tuner in two ways, Ray Tune, and no tuner at all."""

import itertools
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import keras

from benchmarks.harness import UnavailableError
from examples.digits_schedule import searching
from examples.digits_schedule.data import Data
from examples.digits_schedule.peer import Scheduled
from examples.digits_schedule.searching import Outcome
from examples.digits_schedule.stopwatch import Stopwatch
from examples.digits_schedule.study import OBJECTIVE, SEED, Study, network
from tf_ext import tuner
from tf_ext.checkpoint.keras import capture, restore

OURS = "tf_ext.tuner"
REBUILDING = "keras_tuner, rebuilding"
REUSING = "keras_tuner, one model"
PHYSICAL = "no tuner, each stage once"
RAY = "ray, ASHA"

# Values of the learning rate and of the batch size in each epoch of a trial.
Rows = tuple[tuple[float, int], ...]


def _physical(study: Study, data: Data, directory: pathlib.Path) -> Outcome:
    """Trains the distinct stages depth-first in one model; states are kept in memory, nothing is written."""
    del directory
    clock, start = Stopwatch(), time.monotonic()
    keras.utils.set_random_seed(SEED)
    walk = _Walk(study, data, clock)
    walk.down(walk.rows(), 0, [])
    return Outcome(walk.scores, clock, time.monotonic() - start)


class _Walk:
    def __init__(self, study: Study, data: Data, clock: Stopwatch) -> None:
        self._study, self._clock = study, clock
        self._model = network(study.rates()["values"][0])
        self._fitting = Scheduled(study, data, reuse=True)
        self.scores: dict[tuple[str, str], float] = {}

    def rows(self) -> dict[tuple[str, str], Rows]:
        """All trials of the grid."""
        import keras_tuner

        hp = keras_tuner.HyperParameters()
        self._study.ask(hp)
        choices = {entry.name: entry.values for entry in hp.space}
        found = {}
        for rate, batch in itertools.product(choices["learning_rate"], choices["batch_size"]):
            rates, sizes = tuner.Sequence.parse(rate), tuner.Sequence.parse(batch)
            found[rate, batch] = tuple((float(rates.at(e)), int(sizes.at(e))) for e in range(self._study.epochs))
        return found

    def down(self, trials: dict[tuple[str, str], Rows], epoch: int, scores: list[float]) -> None:
        """Trains what some trials have in common from an epoch on, and then what they have not."""
        if epoch == self._study.epochs:
            self.scores |= dict.fromkeys(trials, max(scores))
            return
        groups: dict[tuple[float, int], dict[tuple[str, str], Rows]] = {}
        for key, rows in trials.items():
            groups.setdefault(rows[epoch], {})[key] = rows
        state = capture(self._model) if len(groups) > 1 else None
        for number, ((rate, size), group) in enumerate(groups.items()):
            if number and state is not None:
                restore(self._model, state)
            end = epoch + 1
            while end < self._study.epochs and {rows[end] for rows in group.values()} == {(rate, size)}:
                end += 1
            logs = self._fitting.stretch(self._model, range(epoch, end), rate, size, callbacks=[self._clock], verbose=0)
            self.down(group, end, scores + [row[OBJECTIVE] for row in logs])


def _ray(study: Study, data: Data, directory: pathlib.Path) -> Outcome:
    """Ray Tune's ASHA with one trial at a time. It stops trials early, so that its steps are not those of a grid."""
    try:
        import ray
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler
    except ImportError as error:
        raise UnavailableError("Ray Tune is not installed: pip install 'ray[tune]'") from error
    trials = _Walk(study, data, Stopwatch()).rows()
    names = sorted(trials)

    def train(config: dict[str, Any]) -> None:
        fitting, clock = Scheduled(study, data, reuse=False), Stopwatch()
        rows = trials[names[config["number"]]]
        keras.utils.set_random_seed(SEED)
        model = network(rows[0][0])
        for epoch, (rate, size) in enumerate(rows):
            (logs,) = fitting.stretch(model, range(epoch, epoch + 1), rate, size, callbacks=[clock], verbose=0)
            tune.report({**logs, "seconds": clock.seconds, "steps": clock.steps, "number": config["number"]})

    start = time.monotonic()
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    scheduler = ASHAScheduler(max_t=study.epochs, grace_period=study.epochs // 6)
    settings = tune.TuneConfig(metric=OBJECTIVE, mode="max", scheduler=scheduler, max_concurrent_trials=1)
    place = tune.RunConfig(storage_path=str(directory / "ray"), verbose=0)
    space = {"number": tune.grid_search(list(range(len(names))))}
    results = tune.Tuner(train, param_space=space, tune_config=settings, run_config=place).fit()
    clock = Stopwatch()
    scores = {}
    for result in results:
        metrics = result.metrics or {}
        clock.seconds += metrics.get("seconds", 0.0)
        clock.steps += metrics.get("steps", 0)
        if "number" in metrics:
            frame = result.metrics_dataframe
            scores[names[metrics["number"]]] = math.nan if frame is None else float(frame[OBJECTIVE].max())
    total = time.monotonic() - start
    ray.shutdown()
    return Outcome(scores, clock, total)


PEERS: dict[str, Callable[[Study, Data, pathlib.Path], Outcome]] = {
    OURS: searching.ours,
    REUSING: lambda study, data, directory: searching.stock(study, data, directory, reuse=True),
    REBUILDING: lambda study, data, directory: searching.stock(study, data, directory, reuse=False),
    PHYSICAL: _physical,
    RAY: _ray,
}

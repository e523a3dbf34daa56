"""The searches of the bars: every oracle over a space, and what the plan says about them afterwards."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import keras_tuner

from benchmarks.tuner import small
from benchmarks.tuner.alone import Alone, History
from benchmarks.tuner.small import STATES, State
from benchmarks.tuner.spaces import EPOCHS, Space
from tf_ext import tuner
from tf_ext.tuner import oracles

OBJECTIVE = "val_loss"
PROJECT = "study"
_LOSS = keras_tuner.Objective(OBJECTIVE, "min")
_HALVING: Any = {"min_epochs": 1, "max_epochs": EPOCHS, "factor": 2}

ORACLES: dict[str, Callable[[], keras_tuner.Oracle]] = {
    "Grid": lambda: oracles.GridSearchOracle(_LOSS, seed=small.SEED),
    "Random": lambda: oracles.RandomSearchOracle(_LOSS, max_trials=4, seed=small.SEED),
    "Bayesian": lambda: oracles.BayesianOptimizationOracle(_LOSS, 3, num_initial_points=2, seed=small.SEED),
    "SHA": lambda: oracles.SuccessiveHalvingOracle(_LOSS, max_trials=4, seed=small.SEED, **_HALVING),
    "ASHA": lambda: oracles.ASHAOracle(_LOSS, max_trials=4, seed=small.SEED, **_HALVING),
    "Hyperband": lambda: oracles.HyperbandOracle(_LOSS, max_epochs=EPOCHS, factor=2, seed=small.SEED),
    "MedianStopping": lambda: oracles.MedianStoppingOracle(
        oracles.RandomSearchOracle(_LOSS, max_trials=4, seed=small.SEED), min_trials=1
    ),
    "PBT": lambda: oracles.PopulationBasedTrainingOracle(
        _LOSS, population=3, interval=2, max_epochs=EPOCHS, quantile=0.34, perturb=["learning_rate"], seed=small.SEED
    ),
    "stock Hyperband": lambda: keras_tuner.oracles.HyperbandOracle(_LOSS, max_epochs=EPOCHS, factor=2, seed=small.SEED),
}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trial as the plan has it.

    Attributes:
        values: Its hyper-parameters, sequences as their texts.
        epochs: The epochs that it asked for.
        history: The metrics of each epoch that was trained.
        status: As Keras Tuner's.
        score: Value of the objective at the best epoch.
    """

    values: dict[str, Any]
    epochs: int
    history: History
    status: str
    score: float | None


def search(oracle: str, space: Space, state: State, directory: pathlib.Path, **settings: Any) -> tuner.Tuner:
    """Runs a search; a second one in the same directory goes on with it.

    Args:
        oracle: Name of one of `ORACLES`.
        space: What is searched.
        state: What the models are made of.
        directory: Where the project lies.
        **settings: Arguments of `tuner.Tuner`.
    """
    train, validation = small.data()
    data: tuple[Any, ...] = train
    if space.data_level:
        data = (tuner.data.dataset_fn(small.augmented),)
    with state.active():
        searching = tuner.Tuner(
            ORACLES[oracle](),
            space.build(state, population=oracle == "PBT"),
            directory=directory,
            project_name=PROJECT,
            seed=small.SEED,
            exact=True,
            **settings,
        )
        searching.search(*data, validation_data=validation, epochs=EPOCHS, callbacks=state.callbacks(), verbose=0)
    return searching


def trained(directory: pathlib.Path) -> dict[str, Trained]:
    """The trials of the plan of a project, by id."""
    with tuner.Plan(directory / PROJECT, create=False) as plan:
        nodes = {number: (parent, start) for number, _, parent, start, _ in plan.all_nodes()}
        runs = {number: plan.runs(number) for number in nodes}
        (study,) = plan.studies()
        found = {}
        for record in plan.trials(study["id"]):
            history: History = []
            node, end = record.leaf, record.epochs
            while node:
                parent, start = nodes[node]
                history = [logs for run in runs[node] for logs in run.history][: end - start] + history
                node, end = parent, start
            found[record.trial] = Trained(record.values, record.epochs, history, record.status, record.score)
    return found


def differences(trials: dict[str, Trained], space: Space, state: State, most: int | None = None) -> list[str]:
    """Trains trials alone and says which have other metrics then, at any epoch, in any bit.

    Args:
        trials: What a search trained.
        space: What it searched.
        state: What its models are made of.
        most: Train only so many of them alone, spread over all.
    """
    names = list(trials)
    chosen = names if most is None else names[:: max(1, len(names) // most)][:most]
    wrong = [f"{name}: {t.status}" for name, t in trials.items() if t.status != "COMPLETED" or not t.history]
    with state.active():
        reference = Alone(space, state)
        for name in chosen:
            trial = trials[name]
            if trial.history != reference.train(trial.values, trial.epochs):
                wrong.append(f"{name}: {trial.values}")
    return wrong


def requested_steps(trials: dict[str, Trained]) -> int:
    """The steps that the trials would take alone; one that continues another counts from there."""
    return sum(
        sum(steps for _, steps in list(_epochs(trial))[int(trial.values.get("tuner/initial_epoch", 0)) :])
        for trial in trials.values()
    )


def distinct_steps(trials: dict[str, Trained]) -> int:
    """The steps of the union of all trials, each epoch with the values that led to it counted once.

    Found from the trials' values alone: neither the plan's nodes nor its runs are looked at.
    """
    return sum(dict(epoch for trial in trials.values() for epoch in _epochs(trial)).values())


def _epochs(trial: Trained) -> Iterator[tuple[tuple[Any, ...], int]]:
    """All values up to each epoch of a trial, and the steps of that epoch."""
    values = {n: v for n, v in trial.values.items() if not n.startswith("tuner/")}
    sequences = {n: tuner.Sequence.parse(v) if tuner.Sequence.is_text(v) else None for n, v in values.items()}
    prefix: tuple[Any, ...] = ()
    for epoch in range(len(trial.history)):
        now = {n: values[n] if s is None else s.at(epoch) for n, s in sequences.items()}
        prefix = (*prefix, tuple(sorted(now.items())))
        batch = int(now.get("batch_size", small.DEFAULTS["batch_size"]))
        yield prefix, -(-(small.COUNT - small.VALIDATION) // batch)


def default_state() -> State:
    """SGD with momentum."""
    return STATES["SGD with momentum"]

"""A search without training: opens trials as the tuner's engine does, and ends them in any order."""

import math
import random
from collections.abc import Callable
from typing import Any

import keras_tuner

# The score of a trial at each epoch: a function of its values alone, so that any order gives the same.
Curve = Callable[[dict[str, Any], int], list[float]]


def space(conditional: bool = False) -> keras_tuner.HyperParameters:
    hp = keras_tuner.HyperParameters()
    hp.Choice("kind", ["a", "b", "c"])
    hp.Float("rate", 1e-4, 1e-1, sampling="log")
    hp.Int("units", 1, 64)
    if conditional:
        with hp.conditional_scope("kind", ["b"]):
            hp.Boolean("norm")
    return hp


def plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not name.startswith("tuner/")}


def curve(values: dict[str, Any], epochs: int) -> list[float]:
    """Falls with the epochs towards a floor; both are drawn from the values, so that curves cross."""
    chance = random.Random(repr(sorted(plain(values).items())))
    floor, speed, bump = chance.random(), 0.05 + chance.random(), chance.random()
    return [floor + math.exp(-speed * epoch) + 0.01 * bump * (epoch % 3) for epoch in range(1, epochs + 1)]


class KilledError(Exception):
    """The process dies here."""


def search(
    oracle: Any,
    epochs: int = 10,
    *,
    order: random.Random | None = None,
    curve: Curve = curve,
    width: int | None = None,
    stop_after: int | None = None,
) -> Any:
    """Runs a search to its end.

    Args:
        oracle: Has a project directory.
        epochs: For trials without `tuner/epochs`.
        order: Picks which open trial ends next; the first without it.
        curve: Raises for trials that fail.
        width: How many trials to open at most, besides the oracle's own lookahead.
        stop_after: Raises `KilledError` after that many trials have ended.
    """
    open_trials, ended, stopped = {}, 0, False
    limit = min(oracle.lookahead or 10**9, width or 10**9)
    while True:
        while not stopped and len(open_trials) < limit:
            tuner_id = next(f"tuner0-{i}" for i in range(10**9) if f"tuner0-{i}" not in open_trials)
            trial = oracle.create_trial(tuner_id)
            if trial.status != "RUNNING":
                stopped = trial.status == "STOPPED"
                break
            open_trials[tuner_id] = trial
        if not open_trials:
            assert stopped, "idle, and nothing to wait for: the search hangs"
            return oracle
        if ended == stop_after:
            raise KilledError
        chosen = order.choice(sorted(open_trials)) if order else next(iter(open_trials))
        end(oracle, open_trials.pop(chosen), epochs, curve)
        ended, stopped = ended + 1, False


def end(oracle: Any, trial: Any, epochs: int, curve: Curve = curve) -> None:
    name, better = oracle.objective.name, min if oracle.objective.direction == "min" else max
    target = oracle.first_target(trial, epochs)
    try:
        while target is not None:
            reached, scores = target, curve(trial.hyperparameters.values, target)
            target = oracle.advance(trial.trial_id, [{name: score} for score in scores])
            assert target is None or target > reached
    except ArithmeticError as error:
        trial.status, trial.message = "INVALID", str(error)
        oracle.end_trial(trial)
        return
    scores = [score for score in scores if not math.isnan(score)] or scores
    top = better(scores)
    oracle.update_trial(trial.trial_id, {name: top}, step=scores.index(top))
    trial.status = "COMPLETED"
    oracle.end_trial(trial)


def outcome(oracle: Any) -> list[Any]:
    """What a search found, whatever numbers its trials have."""

    def told(trial: Any) -> Any:
        values = dict(trial.hyperparameters.values)
        if "tuner/trial_id" in values:
            values["tuner/trial_id"] = told(oracle.trials[values["tuner/trial_id"]])
        return sorted(values.items()), trial.status, trial.score, trial.best_step

    return sorted((told(trial) for trial in oracle.trials.values()), key=repr)


def exact(oracle: Any) -> list[Any]:
    """What a search found, with the numbers of its trials."""
    return [
        (t.trial_id, t.hyperparameters.values, t.status, t.score, t.best_step, t.hyperparameters.get_config()["space"])
        for t in oracle.trials.values()
    ]


def placed(oracle: Any, directory: Any, name: str = "search") -> Any:
    oracle._set_project_dir(str(directory), name)
    oracle.verbose = 0
    return oracle

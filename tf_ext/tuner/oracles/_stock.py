"""What is known of Keras Tuner's own oracles: how far they look ahead, what they forget, how they are read back."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError
from tf_ext.tuner.oracles import _restore
from tf_ext.tuner.oracles._adopt import read_state

__all__ = ["cut_epochs", "default_lookahead", "generator_state", "memory", "read"]

# How many trials of an endless search to open at once.
_ENDLESS = 128

# Settings that Keras Tuner takes from the file, so that the caller's are ignored silently. The trials are made for these.
_FIXED = ("max_epochs", "min_epochs", "factor")
_FREE = ("hyperband_iterations", "num_initial_points", "alpha", "beta")


def default_lookahead(oracle: keras_tuner.Oracle) -> int | None:
    """How many trials of an oracle may be open at once. None: any number, or until it is idle."""
    oracles = keras_tuner.oracles
    if isinstance(oracle, oracles.HyperbandOracle):
        return None if oracle.hyperband_iterations < float("inf") else _ENDLESS
    if isinstance(oracle, oracles.GridSearchOracle):
        return None
    if isinstance(oracle, oracles.RandomSearchOracle):
        return None if oracle.max_trials else _ENDLESS
    return 1


def cut_epochs(oracle: keras_tuner.Oracle) -> set[int]:
    """The epochs at which trials of an oracle end or branch."""
    if not isinstance(oracle, keras_tuner.oracles.HyperbandOracle):
        return set()
    epochs, power = set(), 1
    while power <= oracle.max_epochs:
        epochs.add(-(-oracle.max_epochs // power))
        power *= oracle.factor
    return epochs


def generator_state(generator: Any) -> list[Any]:
    """The state of a `numpy.random.RandomState`, as JSON; `set_state(tuple(...))` takes it back."""
    kind, keys, position, has_gauss, gauss = generator.get_state()
    return [kind, keys.tolist(), position, has_gauss, gauss]


def memory(oracle: keras_tuner.Oracle) -> dict[str, Any]:
    """What `get_state` leaves out, as JSON."""
    generators = {k: v for k, v in vars(oracle).items() if isinstance(v, np.random.RandomState)}
    kept: dict[str, Any] = {"random": {}}
    for name, generator in generators.items():
        kept["random"][name] = generator_state(generator)
    if isinstance(oracle, keras_tuner.oracles.GridSearchOracle):
        order = oracle.start_order[:1]
        while order and (following := oracle._ordered_ids.next(order[-1])) is not None:
            order.append(following)
        kept["grid"] = {"order": order, "next": list(oracle._populate_next)}
    return kept


def read(oracle: keras_tuner.Oracle) -> None:
    """Reads the search of an oracle from its project directory; does nothing if there is none.

    Trials that `oracle.json` does not name are left out: they were written just before a kill, and are suggested again.

    Raises:
        CorruptedPlanError: `oracle.json` is there, but cannot be read.
        PlanMismatchError: It is that of another oracle, or a setting changed that shapes the trials.
    """
    directory = pathlib.Path(oracle._project_dir)
    path = directory / "oracle.json"
    if not path.exists():
        return
    state = read_state(path)
    if not isinstance(state, dict):
        raise CorruptedPlanError(
            f"expected the state of an oracle in {path}, got what a kill cut short while keras_tuner wrote it. "
            f"Begin anew with `overwrite=True` or another `project_name`; {directory}/trial_* keep their results."
        )
    _check(oracle, state, directory)
    free = {name: value for name in _FREE if (value := vars(oracle).get(name)) is not None}
    oracle.trials = {trial_id: _trial(directory, trial_id) for trial_id in state["start_order"]}
    _drop_what_is_over(oracle, state)
    was_open = list(state["ongoing_trials"].values())
    try:
        oracle.set_state(state)
    except KeyError as error:
        raise PlanMismatchError(
            f"expected in {path} the state of {type(oracle).__name__}, got one without {error}. Continue the search with "
            "the oracle that began it, or take another `project_name`."
        ) from error
    vars(oracle).update(free)  # Keras Tuner would go on with the old ones
    _remember(oracle, state.get("tf_ext", {}))
    _restore.requeue(oracle, oracle._retry_queue, was_open)


def _drop_what_is_over(oracle: keras_tuner.Oracle, state: dict[str, Any]) -> None:
    """Leaves no trial open, or waiting for another try, that has ended or whose file is lost."""
    trials = oracle.trials.items()
    lost = {trial_id for trial_id, trial in trials if trial.status == "FAILED" and not trial.metrics.metrics}
    # Keras Tuner saves the end of a trial while it still counts it as open.
    over = lost | set(state["end_order"])
    state["ongoing_trials"] = {k: v for k, v in state["ongoing_trials"].items() if v in oracle.trials and v not in over}
    state["retry_queue"] = [trial_id for trial_id in state["retry_queue"] if trial_id not in lost]


def _check(oracle: keras_tuner.Oracle, state: Mapping[str, Any], directory: pathlib.Path) -> None:
    for name in _FIXED:
        if name in state and name in vars(oracle) and vars(oracle)[name] != state[name]:
            raise PlanMismatchError(
                f"expected `{name}` to be {state[name]!r} as when the search in {directory} began, got "
                f"{vars(oracle)[name]!r}: its trials are made for that. Set it back, or begin another search with "
                "another `project_name` or `overwrite=True`."
            )


def _trial(directory: pathlib.Path, trial_id: str) -> Trial:
    state = read_state(directory / f"trial_{trial_id}" / "trial.json")
    if isinstance(state, dict):
        return Trial.from_state(state)
    # Its values are lost. It keeps its number, which a later trial would get otherwise.
    lost = "a kill cut its file short before tf_ext took the search over"
    return Trial(keras_tuner.HyperParameters(), trial_id=trial_id, status="FAILED", message=lost)


def _remember(oracle: keras_tuner.Oracle, kept: Mapping[str, Any]) -> None:
    for name, state in kept.get("random", {}).items():
        getattr(oracle, name).set_state(tuple(state))
    if "grid" in kept and isinstance(oracle, keras_tuner.oracles.GridSearchOracle):
        oracle._ordered_ids = type(oracle._ordered_ids)()
        before = None
        for trial_id in kept["grid"]["order"]:
            oracle._ordered_ids.insert(trial_id, before)
            before = trial_id
        oracle._populate_next = list(kept["grid"]["next"])

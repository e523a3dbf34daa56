"""A search that Keras Tuner's own oracle began, told as events."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from tf_ext.tuner.errors import PlanMismatchError
from tf_ext.tuner.oracles._journal import Event

__all__ = ["events_of", "read_state"]


def read_state(path: pathlib.Path) -> Any:
    """What lies in one of Keras Tuner's files; None if there is none or if a kill cut it short."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None


def events_of(oracle: Any, directory: pathlib.Path) -> list[Event]:
    """The events of the search in `oracle.json` and `trial_*/trial.json`; none if there is no search.

    Trials that `oracle.json` does not name were written just before a kill. They are left out, and suggested again.

    Raises:
        PlanMismatchError: This kind of oracle cannot continue such a search, or `oracle.json` cannot be read.
    """
    path = directory / "oracle.json"
    if not path.exists():
        return []
    state = read_state(path)
    if state is None or not oracle._continues_keras_tuner or "brackets" in state:
        raise PlanMismatchError(
            f"expected in {directory} a search that {type(oracle).__name__} began, got one of keras_tuner"
            f"{', cut short while it was written' if state is None else ''}. Continue it with the oracle that began it, "
            "or begin another search with another `project_name` or `overwrite=True`."
        )
    begin = {"op": "begin", "version": 1, "oracle": type(oracle).__name__, "seed": state["seed"]}
    events = [begin | {"settings": oracle._settings()}, {"op": "space", "add": state["hyperparameters"]["space"]}]
    trials = {trial_id: read_state(directory / f"trial_{trial_id}" / "trial.json") for trial_id in state["start_order"]}
    ended = set(state["end_order"])
    for trial_id, trial in trials.items():
        values = trial["hyperparameters"]["values"] if trial else {}
        events.append({"op": "create", "id": trial_id, "values": values, "note": None, "memory": None})
        events[-1]["seed_state"] = state["seed_state"]
    for trial_id in [*state["end_order"], *(each for each in trials if each not in ended and not trials[each])]:
        events.append(_end_event(trial_id, trials[trial_id], state["run_times"].get(trial_id, 1)))
    return events


def _end_event(trial_id: str, trial: Any, run_times: int) -> Event:
    event: Event = {"op": "end", "id": trial_id, "run_times": run_times}
    if trial is None:
        # Its values are lost. It keeps its number, which a later trial would get otherwise.
        lost = "a kill cut its file short before tf_ext took the search over"
        event |= {"status": "FAILED", "score": None, "best_step": 0, "message": lost}
        return event | {"values": {}, "metrics": {"metrics": {}}}
    keys = ("status", "score", "best_step", "message", "metrics")
    return event | {key: trial[key] for key in keys} | {"values": trial["hyperparameters"]["values"]}

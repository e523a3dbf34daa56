"""An oracle's events: what is written of a trial, and how a search is built from them again."""

from __future__ import annotations

import contextlib
import copy
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.errors import PlanMismatchError
from tf_ext.tuner.oracles import _adopt
from tf_ext.tuner.oracles._journal import Event, Journal

__all__ = ["begin_event", "end_event", "forget_results", "requeue", "restore", "take_back"]

_VERSION = 1


def begin_event(oracle: Any) -> Event:
    """What an oracle is: its class, its seed, and its settings."""
    return {
        "op": "begin",
        "version": _VERSION,
        "oracle": type(oracle).__name__,
        "seed": oracle.seed,
        "settings": oracle._settings(),
    }


def end_event(oracle: Any, trial: Trial) -> Event:
    """The results of a trial that ended."""
    event = {
        "op": "end",
        "id": trial.trial_id,
        "status": trial.status,
        "score": trial.score,
        "best_step": trial.best_step,
        "message": trial.message,
        "metrics": trial.metrics.get_config(),
        "run_times": oracle._run_times[trial.trial_id],
        # Building the model may have asked for more hyper-parameters.
        "values": trial.hyperparameters.values,
    }
    if not oracle.tune_new_entries:
        # Then the oracle's own space did not take in what the model asked for; that of the trial did.
        event["space"] = trial.hyperparameters.get_config()["space"]
    return event


def forget_results(trial: Trial) -> None:
    """Lets a trial begin anew.

    Keras Tuner keeps the metrics of the first try, and takes the mean with those of the next: one NaN stays for ever.
    """
    trial.status = "RUNNING"
    trial.score, trial.best_step, trial.message = None, 0, None
    trial.metrics = type(trial.metrics)()


def take_back(oracle: Any, trial: Trial) -> None:
    """Leaves a trial open whose end Keras Tuner refused half-way, since too many had failed in a row."""
    if oracle.end_order and oracle.end_order[-1] == trial.trial_id:
        oracle.end_order.pop()
        oracle._run_times[trial.trial_id] -= 1
    trial.status = "RUNNING"


def requeue(oracle: Any, retry: list[str], was_open: Iterable[str]) -> None:
    """Sends what was open to the retry queue. Keras Tuner takes from its end, so that the first comes last.

    Args:
        oracle: Whose trials they are.
        retry: Those that wait for another try, as they are in the queue.
        was_open: Those that were open.
    """
    open_ids = set(was_open)
    oracle._retry_queue = retry + [trial_id for trial_id in reversed(oracle.start_order) if trial_id in open_ids]
    oracle.ongoing_trials = {}
    for trial_id in oracle._retry_queue:
        forget_results(oracle.trials[trial_id])


def restore(oracle: Any) -> None:
    """Builds the state of an oracle from the journal in its project directory, or from Keras Tuner's files there.

    Raises:
        PlanMismatchError: They are those of another oracle, or of other settings.
    """
    if oracle._journal is not None:
        # It holds what this process knows. What was open goes back to the queue, as Keras Tuner has it.
        requeue(oracle, oracle._retry_queue, [trial.trial_id for trial in oracle.ongoing_trials.values()])
        return
    directory = pathlib.Path(oracle._project_dir)
    journal = Journal(directory / "oracle.jsonl")
    events = journal.read() or _adopt.events_of(oracle, directory)
    if not events:
        return  # killed before anything was suggested
    _check(oracle, events)
    given = oracle._given_space
    with _restoring(oracle):
        waiting = _fold(oracle, events)
    requeue(
        oracle,
        [i for i, is_retry in waiting.items() if is_retry],
        [i for i, is_retry in waiting.items() if not is_retry],
    )
    events.append(begin_event(oracle))
    journal.start(events)
    oracle._journal = journal
    oracle._journaled_space = len(oracle.hyperparameters.space)
    _add_given(oracle, given)


@contextlib.contextmanager
def _restoring(oracle: Any) -> Iterator[None]:
    oracle._restoring = True
    try:
        yield
    finally:
        oracle._restoring = False


def _check(oracle: Any, events: list[Event]) -> None:
    begin = [event for event in events if event["op"] == "begin"][-1]
    if begin["version"] != _VERSION:
        raise PlanMismatchError(
            f"expected version {_VERSION} of the journal in {oracle._project_dir}, got {begin['version']}. "
            "Continue with the version of tf_ext that wrote it, or take another `project_name`."
        )
    now = begin_event(oracle)
    old = {"oracle": begin["oracle"], "objective": begin["settings"]["objective"]}
    new = {"oracle": now["oracle"], "objective": now["settings"]["objective"]}
    if oracle._given_seed:
        old["seed"], new["seed"] = begin["seed"], oracle._given_seed
    for name in oracle._fixed:
        old[name], new[name] = begin["settings"].get(name), now["settings"].get(name)
    for name in old:
        if old[name] != new[name]:
            _refuse(oracle, name, old[name], new[name])


def _refuse(oracle: Any, name: str, old: Any, new: Any) -> None:
    raise PlanMismatchError(
        f"expected `{name}` to be {old!r} as when the search in {oracle._project_dir} began, got {new!r}: its trials "
        f"are made for that. Set it back, or begin another search with another `project_name` or `overwrite=True`."
    )


def _fold(oracle: Any, events: list[Event]) -> dict[str, bool]:
    """Applies all events. Returns the trials that have not ended, in order, and whether they wait for a retry."""
    oracle.hyperparameters = keras_tuner.HyperParameters()
    waiting: dict[str, bool] = {}
    for event in events:
        match event["op"]:
            case "begin":
                oracle.seed = event["seed"]
                if not oracle.start_order:
                    oracle._seed_state = oracle.seed
            case "space":
                _extend(oracle, event["add"])
            case "create":
                _create(oracle, event)
                waiting[event["id"]] = False
            case "reopen":
                waiting[event["id"]] = False
            case "retry":
                oracle._run_times[event["id"]] += 1
                waiting[event["id"]] = True
            case "end":
                waiting.pop(event["id"])
                _end(oracle, event)
            case _:
                oracle._event(event)
    return waiting


def _extend(oracle: Any, configs: list[Event]) -> None:
    oracle.hyperparameters.merge(_space_of(configs))


def _space_of(configs: list[Event]) -> keras_tuner.HyperParameters:
    # `from_config` puts objects into what it is given, and the events are still to be written.
    return keras_tuner.HyperParameters.from_config({"space": copy.deepcopy(configs), "values": {}})


def _create(oracle: Any, event: Event) -> None:
    hyperparameters = oracle.hyperparameters.copy()
    hyperparameters.values = dict(event["values"])
    trial = Trial(hyperparameters=hyperparameters, trial_id=event["id"], status="RUNNING")
    oracle.trials[trial.trial_id] = trial
    oracle.start_order.append(trial.trial_id)
    oracle._record_values(trial)
    oracle._seed_state = event["seed_state"]
    if event["memory"] is not None:
        oracle._remember(event["memory"])
    oracle._opened(trial, event["note"])


def _end(oracle: Any, event: Event) -> None:
    trial = oracle.trials[event["id"]]
    trial.hyperparameters = _space_of(event["space"]) if "space" in event else oracle.hyperparameters.copy()
    trial.hyperparameters.values = dict(event["values"])
    trial.status, trial.score, trial.best_step = event["status"], event["score"], event["best_step"]
    trial.message = event["message"]
    trial.metrics = type(trial.metrics).from_config(event["metrics"])
    oracle._record_values(trial)
    oracle._run_times[trial.trial_id] = event["run_times"]
    oracle.end_order.append(trial.trial_id)
    oracle._finished.add(trial.trial_id)
    oracle._closed(trial)


def _add_given(oracle: Any, given: keras_tuner.HyperParameters | None) -> None:
    """Takes in what this process was given of the search space, if it agrees with what the search has."""
    if given is None:
        return
    known = {(hp.name, str(hp.get_config()["conditions"])): hp for hp in oracle.hyperparameters.space}
    for hp in given.space:
        there = known.get((hp.name, str(hp.get_config()["conditions"])))
        if there is not None and (type(there), there.get_config()) != (type(hp), hp.get_config()):
            _refuse(oracle, f"hyperparameters[{hp.name!r}]", there, hp)
    oracle.update_space(given)

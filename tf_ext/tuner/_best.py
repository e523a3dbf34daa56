"""The weights of the best epochs: which are kept, and how a model gets them."""

from __future__ import annotations

from typing import Any

import keras
from absl import logging
from keras_tuner.engine.trial import Trial

from tf_ext.checkpoint.cache import StateCache
from tf_ext.checkpoint.errors import CheckpointError
from tf_ext.checkpoint.store import Store
from tf_ext.tuner._engine import EXECUTION, plain
from tf_ext.tuner._job import Job, StageTask
from tf_ext.tuner._keeper import Keeper
from tf_ext.tuner._ledger import Ledger
from tf_ext.tuner._preparing import path_for
from tf_ext.tuner._stage_runner import StageRunner
from tf_ext.tuner.plan import Plan, TrialRecord
from tf_ext.tuner.segments import Path, Segment

__all__ = ["load", "sweep"]


def sweep(plan: Plan, keeper: Keeper, count: int) -> None:
    """Drops the weights that belong to no trial among the best of any study of the plan."""
    if plan.shared:
        return
    kept = {place for study in plan.studies() for place in _places_of_best(plan, study, count)}
    for node, epoch in plan.checkpoints("best"):
        if (node, epoch) not in kept:
            keeper.drop_best(node, epoch)


def _places_of_best(plan: Plan, study: dict[str, Any], count: int) -> set[tuple[int, int]]:
    ended = [r for r in plan.trials(study["id"]) if r.status == "COMPLETED" and r.score is not None]
    scores = {record.trial: record.score for record in ended}
    best = sorted(scores, key=lambda trial: scores[trial] or 0.0, reverse=study["direction"] == "max")[:count]
    chosen = [r for r in ended if r.trial in best and r.best_epoch is not None]
    return {(plan.node_at(r.leaf, r.best_epoch), r.best_epoch) for r in chosen if r.best_epoch is not None}


def load(job: Job, plan: Plan, trial: Trial, records: list[TrialRecord]) -> keras.Model:
    """A model with the weights of the best epoch of the best execution of a trial."""
    best: tuple[float, Path, tuple[int, int]] | None = None
    for record in records:
        extra = {EXECUTION: record.execution} if record.execution else None
        path = path_for(trial.hyperparameters, record.epochs, extra)
        ledger = Ledger(plan, record.context, job.objective)
        place = ledger.best(path)
        if place is None:
            continue
        value = float(job.objective.get_value(ledger.history(path)[place[1]]))
        if best is None or job.objective.better_than(value, best[0]):
            best = value, path, place
    if best is None:
        raise ValueError(f"expected trial {trial.trial_id} to have ended well, got status {trial.status}.")
    _, path, (node, epoch) = best
    config = next(s.config for s in path if s.start <= epoch < s.end)
    states = StateCache(Store(plan.directory / "states"), memory=0)
    name = plan.checkpoint(node, epoch, "best")
    execution = int(dict(config).get(EXECUTION, 0))
    runner = StageRunner(job, states)
    try:
        if name is not None:
            return runner.model_of(plain(config), execution, states.get(name))
    except CheckpointError as error:
        logging.warning("The weights of trial %s cannot be read: %s", trial.trial_id, error)
    logging.info("The weights of trial %s were not kept; they are trained again.", trial.trial_id)
    return retrain(runner, states, _until(path, epoch + 1))


def retrain(runner: StageRunner, states: StateCache, path: Path) -> keras.Model:
    """Trains a path from beginning to end, without the plan, and returns the model."""
    before = state = None
    model: Any = None
    for position, segment in enumerate(path):
        config = plain(segment.config)
        task = StageTask(
            node=0,
            start=segment.start,
            end=segment.end,
            config=config,
            before=before,
            state=state,
            execution=int(dict(segment.config).get(EXECUTION, 0)),
            keep=f"again-{position}",
        )
        runner.run(task)
        if state is not None:
            states.drop(state)
        before, state = config, task.keep
        if segment is path[-1]:
            assert state is not None
            model = runner.model_of(config, task.execution, states.get(state))
            states.drop(state)
    return model


def _until(path: Path, epochs: int) -> Path:
    return tuple(Segment(s.start, min(s.end, epochs), s.config) for s in path if s.start < epochs)

"""The weights of the best epochs: which are kept, and how a model gets them."""

from __future__ import annotations

from typing import Any

import keras
from absl import logging
from keras_tuner.engine.trial import Trial

from tf_ext.checkpoint.cache import StateCache
from tf_ext.checkpoint.errors import CheckpointError
from tf_ext.checkpoint.store import Store
from tf_ext.tuner._alone import train_alone
from tf_ext.tuner._engine import EXECUTION, plain
from tf_ext.tuner._job import Job
from tf_ext.tuner._keeper import Keeper
from tf_ext.tuner._ledger import Ledger
from tf_ext.tuner._preparing import path_for
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
    try:
        if name is not None:
            return job.model_of(plain(config), execution, states.get(name))
    except CheckpointError as error:
        logging.warning("The weights of trial %s cannot be read: %s", trial.trial_id, error)
    logging.info("The weights of trial %s were not kept; they are trained again.", trial.trial_id)
    # Up to the best epoch of the path, which is then the best of its last segment, too.
    return job.model_of(plain(config), execution, train_alone(job, _until(path, epoch + 1)).best)


def _until(path: Path, epochs: int) -> Path:
    return tuple(Segment(s.start, min(s.end, epochs), s.config) for s in path if s.start < epochs)

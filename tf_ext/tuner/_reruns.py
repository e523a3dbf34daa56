"""Jobs beside the plan, so that any trial can be trained again later, in another process, to the same bits."""

from __future__ import annotations

import os

import cloudpickle
from absl import logging

from tf_ext.tuner._alone import train_alone
from tf_ext.tuner._engine import EXECUTION
from tf_ext.tuner._job import Job
from tf_ext.tuner._ledger import Ledger
from tf_ext.tuner._preparing import path_for
from tf_ext.tuner.errors import PlanMismatchError
from tf_ext.tuner.plan import Plan, TrialRecord

__all__ = ["keep_job", "rerun"]

_FOLDER = "jobs"
_MOST_BYTES = 256 << 20


def keep_job(plan: Plan, context: int, job: Job) -> None:
    """Writes a job beside the plan, whole or not at all; one that is large or cannot be written is left out."""
    path = plan.directory / _FOLDER / f"{context}.pkl"
    if path.exists():
        return
    try:
        content = cloudpickle.dumps(job)
    except Exception as error:
        logging.info("Trials cannot be run again from the plan: what the study trains cannot be pickled (%s).", error)
        return
    if len(content) > _MOST_BYTES:
        logging.info("Trials cannot be run again from the plan: its data have %d MB.", len(content) >> 20)
        return
    path.parent.mkdir(exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def rerun(plan: Plan, trial: str, study: str | None = None) -> list[tuple[TrialRecord, list[dict[str, float]], bool]]:
    """Trains a trial from beginning to end, sharing nothing, and compares the metrics with those in the plan.

    The job beside the plan is a pickle: only for plans of people whom you trust.

    Args:
        plan: The plan.
        trial: Id of the trial.
        study: Name of the study, where there are several with such a trial.

    Returns:
        For each execution its record, the metrics of each epoch, and whether they are those in the plan, bit for bit.

    Raises:
        PlanMismatchError: There is no such trial, or not one alone, or its job was not kept.
    """
    named = [s for s in plan.studies() if study in (None, s["name"])]
    found = [(s["name"], [r for r in plan.trials(s["id"]) if r.trial == trial]) for s in named]
    found = [(name, records) for name, records in found if records]
    if len(found) != 1:
        raise PlanMismatchError(
            f"expected one study with a trial {trial!r} in {plan.directory}, found "
            f"{[name for name, _ in found] or 'none'}. Name the study with --study."
        )
    outcomes = []
    for record in found[0][1]:
        job = _job_of(plan, record.context)
        hp = job.space.copy()
        hp.values = dict(record.values)
        path = path_for(hp, record.epochs, {EXECUTION: record.execution} if record.execution else None)
        known = Ledger(plan, record.context, job.objective).history(path)
        history = train_alone(job, path).history
        outcomes.append((record, history, history == known))
    return outcomes


def _job_of(plan: Plan, context: int) -> Job:
    path = plan.directory / _FOLDER / f"{context}.pkl"
    if not path.exists():
        raise PlanMismatchError(
            f"expected the job of the trial in {path}, found none: its data or its build function could not be kept. Run the "
            "search again in another project, with this trial's hyper-parameters only."
        )
    job: Job = cloudpickle.loads(path.read_bytes())
    return job

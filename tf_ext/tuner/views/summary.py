"""What `tf-ext tuner show` tells: studies, the best trials and totals, without making every stage of a huge plan."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib

from tf_ext.tuner.plan import Plan
from tf_ext.tuner.views import _cutting
from tf_ext.tuner.views.model import Trial, choose, trial_of
from tf_ext.tuner.views.reading import StudyRow, TrialRow, no_collections, read_rows
from tf_ext.tuner.views.totals import Totals, totals_of

__all__ = ["StudySummary", "Summary", "summarize"]


@dataclasses.dataclass(frozen=True)
class StudySummary:
    """A study and its trials.

    Attributes:
        study: Its name and objective.
        count: How many executions of trials it has.
        trials: The first of them: those with a score in the order of their scores, the best first; then the others.
    """

    study: StudyRow
    count: int
    trials: tuple[Trial, ...]


@dataclasses.dataclass(frozen=True)
class Summary:
    """A plan in numbers.

    Attributes:
        directory: Where it lies.
        studies: Its studies with their best trials.
        totals: Sums over all of it.
    """

    directory: pathlib.Path
    studies: tuple[StudySummary, ...]
    totals: Totals


def summarize(plan: Plan | str | os.PathLike[str], study: str | None = None, *, limit: int | None = 20) -> Summary:
    """Sums up a plan.

    Args:
        plan: The plan, or the directory in which it lies.
        study: Look at this one only.
        limit: How many trials to name of each study; None for all.

    Returns:
        The summary.

    Raises:
        PlanMismatchError: There is no plan, or no such study in it.
        PlanVersionError: The plan is of another version.
        CorruptedPlanError: It cannot be read.
    """
    rows = read_rows(plan)
    studies, trials = choose(rows, study)
    whole = study is None
    with no_collections():
        totals = totals_of(rows, _cutting.cut(rows, trials, only_of_trials=not whole), trials, whole=whole)
    by_study: dict[int, list[TrialRow]] = {s.id: [] for s in studies}
    for trial in trials:
        by_study[trial.study].append(trial)
    names = {s.id: s.name for s in studies}
    summaries = []
    for s in studies:
        best = sorted(by_study[s.id], key=lambda trial: _rank(trial, s.direction))[:limit]
        summaries.append(StudySummary(s, len(by_study[s.id]), tuple(trial_of(names, t, None) for t in best)))
    return Summary(rows.directory, tuple(summaries), totals)


def _rank(trial: TrialRow, direction: str) -> tuple[bool, float]:
    if trial.score is None or not math.isfinite(trial.score):
        return True, 0.0
    return False, -trial.score if direction == "max" else trial.score

"""A search plan as something that can be drawn: stages, the trials that go through them, and what they cost."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tf_ext.tuner.errors import PlanMismatchError
from tf_ext.tuner.plan import Plan
from tf_ext.tuner.views import _cutting
from tf_ext.tuner.views.reading import Rows, StudyRow, TrialRow, no_collections, read_rows
from tf_ext.tuner.views.stages import Stage, build
from tf_ext.tuner.views.totals import Totals, totals_of

__all__ = ["Trial", "View", "read"]


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One execution of a trial.

    Attributes:
        study: Name of its study.
        trial: Its id.
        execution: From 0 on.
        values: Its hyper-parameters, sequences as their texts.
        epochs: What it asks for.
        status: As Keras Tuner's.
        score: Value of the objective at its best epoch.
        best_epoch: That epoch, from 0 on.
        message: What went wrong.
        stage: Place of the last stage on its path; None if there is none.
    """

    study: str
    trial: str
    execution: int
    values: dict[str, Any]
    epochs: int
    status: str
    score: float | None
    best_epoch: int | None
    message: str | None
    stage: int | None


@dataclasses.dataclass(frozen=True)
class View:
    """A plan at one moment.

    Attributes:
        directory: Where it lies.
        studies: Those that are looked at.
        stages: Each followed by all that are behind it.
        trials: In the order of the stages at which they end; those that have no stage are last.
        totals: Sums over all of it.
    """

    directory: pathlib.Path
    studies: tuple[StudyRow, ...]
    stages: tuple[Stage, ...]
    trials: tuple[Trial, ...]
    totals: Totals

    @property
    def empty(self) -> bool:
        """Whether nothing was asked for yet."""
        return not self.stages and not self.trials

    def through(self, stage: Stage) -> tuple[Trial, ...]:
        """The trials that go through a stage."""
        return self.trials[slice(*stage.trials)]


def read(plan: Plan | str | os.PathLike[str], study: str | None = None, *, metrics: bool = True) -> View:
    """Reads a plan, without writing to it, while others may be at work on it.

    Args:
        plan: The plan, or the directory in which it lies.
        study: Look at this one only; the steps are those of its trials then.
        metrics: Read the metrics of the stages; what needs none of them is quicker without.

    Returns:
        What there is to draw.

    Raises:
        PlanMismatchError: There is no plan, or no such study in it.
        PlanVersionError: The plan is of another version.
        CorruptedPlanError: It cannot be read.

    Example:
        view = read("studies/digits")
        print(view.totals.merge_rate, [stage.state for stage in view.stages])
    """
    rows = read_rows(plan)
    studies, trials = choose(rows, study)
    whole = study is None
    with no_collections():
        pieces = _cutting.cut(rows, trials, only_of_trials=not whole)
        stages, order = build(pieces, trials, studies, metrics=metrics)
        names = {s.id: s.name for s in studies}
        shown = tuple(trial_of(names, trials[place], stage) for place, stage in order)
    totals = totals_of(rows, pieces, trials, whole=whole)
    return View(rows.directory, tuple(studies), tuple(stages), shown, totals)


def choose(rows: Rows, study: str | None) -> tuple[list[StudyRow], list[TrialRow]]:
    """The studies that are meant, and their trials.

    Raises:
        PlanMismatchError: There is no such study.
    """
    if study is None:
        known = {s.id for s in rows.studies}
        return rows.studies, [trial for trial in rows.trials if trial.study in known]
    studies = [s for s in rows.studies if s.name == study]
    if not studies:
        names = ", ".join(s.name for s in rows.studies) or "none"
        raise PlanMismatchError(f"expected one of the studies of {rows.directory} ({names}), got {study!r}.")
    return studies, [trial for trial in rows.trials if trial.study == studies[0].id]


def trial_of(names: Mapping[int, str], t: TrialRow, stage: int | None) -> Trial:
    """A trial as it is shown."""
    asked = (json.loads(t.values), t.epochs, t.status, t.score, t.best_epoch, t.message)
    return Trial(names[t.study], t.trial, t.execution, *asked, stage)

"""Project directories of Keras Tuner 1.4: read without the program that wrote them, and taken over into a search plan.

Keras Tuner opens a project only through a tuner with the same model-building function, and overwrites or continues it
then. Here it is read as what it is, JSON files, and never written.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from tf_ext.tuner.errors import PlanMismatchError
from tf_ext.tuner.plan import History, Plan, Run, TrialRecord
from tf_ext.tuner.segments import path_of

__all__ = ["Imported", "LegacyProject", "LegacyTrial", "import_project", "read_project"]

_UNFINISHED = frozenset({"RUNNING", "IDLE"})


@dataclasses.dataclass(frozen=True)
class LegacyTrial:
    """A trial of a Keras Tuner project.

    Attributes:
        trial: Its id.
        values: Its hyper-parameters, those of the tuner itself (``tuner/...``) among them.
        status: As it stands in the file.
        score: Value of the objective at its best step; the mean, if it was trained several times.
        best_step: The epoch of that, from 0 on.
        message: What went wrong.
        metrics: By epoch, the value of each metric that was kept; Keras Tuner keeps those of the best epoch.
        directions: For each metric, whether it is to be small (``"min"``) or large.
    """

    trial: str
    values: dict[str, Any]
    status: str
    score: float | None
    best_step: int | None
    message: str | None
    metrics: dict[int, dict[str, float]]
    directions: dict[str, str]

    @property
    def epochs(self) -> int:
        """How many epochs it was trained for, as far as the files tell: at least up to the last that was kept."""
        seen = max(self.metrics, default=-1) + 1
        asked = self.values.get("tuner/epochs")
        return max(seen, asked) if isinstance(asked, int) and not isinstance(asked, bool) else seen


@dataclasses.dataclass(frozen=True)
class LegacyProject:
    """A Keras Tuner project.

    Attributes:
        directory: Where it lies.
        objective: The metric that agrees with the scores, since the files do not name it; ``"score"`` if none does.
        direction: ``"min"`` or ``"max"``.
        trials: In the order in which they were begun.
        skipped: What could not be read, and why.
    """

    directory: pathlib.Path
    objective: str
    direction: str
    trials: tuple[LegacyTrial, ...]
    skipped: tuple[str, ...]

    def best(self) -> LegacyTrial | None:
        """The trial with the best score, or None if none has one."""
        scored = [t for t in self.trials if t.score is not None and math.isfinite(t.score)]
        sign = -1.0 if self.direction == "max" else 1.0
        return min(scored, key=lambda t: sign * (t.score or 0.0), default=None)


@dataclasses.dataclass(frozen=True)
class Imported:
    """What was taken over: the name of the study, how many trials, and what was not read, and why."""

    study: str
    trials: int
    skipped: tuple[str, ...]

    def told(self) -> str:
        """The same in sentences."""
        lines = [f"{self.trials} trials are in the plan as study {self.study!r}; the project was not changed."]
        return "\n".join([*lines, *(f"not read: {reason}" for reason in self.skipped)])


def read_project(directory: str | os.PathLike[str]) -> LegacyProject:
    """Reads a Keras Tuner project, and changes nothing in it.

    Args:
        directory: The project's: ``<directory>/<project_name>`` of the tuner, in which ``oracle.json`` lies.

    Returns:
        Its trials. One that cannot be read, because the tuner was killed while it wrote, is told of and left out.

    Raises:
        PlanMismatchError: It is no such directory.

    Example:
        project = legacy.read_project("untitled_project")
        print(project.best().values)
    """
    root = pathlib.Path(directory)
    files = sorted(root.glob("trial_*/trial.json"))
    if not files and not (root / "oracle.json").is_file():
        below = sorted(path.parent.name for path in root.glob("*/oracle.json"))
        hint = f" There are projects below it: {', '.join(below)}." if below else " Check the path."
        raise PlanMismatchError(
            f"expected the directory of a Keras Tuner project, found no oracle.json in {root}.{hint}"
        )
    skipped = []
    trials = []
    for path in files:
        try:
            trials.append(_trial(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            skipped.append(f"{path.relative_to(root)} ({type(error).__name__}: {error})")
    try:
        order = json.loads((root / "oracle.json").read_text(encoding="utf-8")).get("start_order", [])
    except (OSError, ValueError, AttributeError) as error:
        order = []
        skipped.append(f"oracle.json ({type(error).__name__}: {error}); the order of the trials is that of their names")
    place = {trial: number for number, trial in enumerate(order)}
    trials.sort(key=lambda t: place.get(t.trial, len(place)))
    return LegacyProject(root, *_objective(trials), tuple(trials), tuple(skipped))


def import_project(
    directory: str | os.PathLike[str],
    plan: Plan,
    *,
    study: str | None = None,
    objective: str | None = None,
    direction: str | None = None,
) -> Imported:
    """Takes the trials of a Keras Tuner project into a plan, as a study of their own that can be looked at.

    No trial of a tuner continues from them: Keras Tuner keeps neither the state of the optimizer nor what the model was.
    Their steps are not known and count as none. Doing it again takes what has come since.

    Args:
        directory: The project's; it is not changed.
        plan: Where to.
        study: Name of the study, that of the directory if left out.
        objective: The metric that the scores are of, where `read_project` cannot tell.
        direction: ``"min"`` or ``"max"``, likewise.

    Returns:
        What was taken over.

    Raises:
        PlanMismatchError: There is no such project, or the plan has a study of this name that is not imported.
    """
    project = read_project(directory)
    name = study or project.directory.resolve().name
    if any(s["name"] == name and "imported_from" not in s["settings"] for s in plan.studies()):
        raise PlanMismatchError(
            f"expected a name that no study of the plan has, got {name!r}. Give another with --study."
        )
    settings = {"imported_from": os.fspath(project.directory.resolve()), "format": "keras_tuner 1.4"}
    with plan.transaction():
        number = plan.study(name, objective or project.objective, direction or project.direction, settings)
        # A context of its own: what Keras Tuner trained is never taken for what this suite would train.
        context = plan.context(f"imported/{name}", settings)
        for trial in project.trials:
            plan.put_trial(number, _record(plan, context, trial))
    return Imported(name, len(project.trials), project.skipped)


def _record(plan: Plan, context: int, trial: LegacyTrial) -> TrialRecord:
    leaf = _train(plan, context, trial) if trial.epochs else 0
    status, message = trial.status, trial.message
    if status in _UNFINISHED:  # nobody will go on with it here
        status, message = "STOPPED", f"was {trial.status} when it was imported"
    best = trial.best_step if trial.score is not None else None
    asked = (trial.values, context, leaf, trial.epochs)
    return TrialRecord(trial.trial, 0, *asked, status, trial.score, best, message)


def _train(plan: Plan, context: int, trial: LegacyTrial) -> int:
    """Writes down what was trained, and returns the node; Hyperband's trials go on where others ended."""
    values = {name: value for name, value in trial.values.items() if not name.startswith("tuner/")}
    node = plan.nodes(context, path_of(values, trial.epochs))[-1].node
    begin = max((run.end for run in plan.runs(node)), default=0)
    if begin < trial.epochs:
        history: History = [trial.metrics.get(epoch, {}) for epoch in range(begin, trial.epochs)]
        plan.record(Run(node, begin, trial.epochs, history, steps=0, seconds=0.0))
    return node


def _trial(state: Mapping[str, Any]) -> LegacyTrial:
    metrics: dict[int, dict[str, float]] = collections.defaultdict(dict)
    directions = {}
    for name, tracked in state["metrics"]["metrics"].items():
        directions[name] = str(tracked["direction"])
        for seen in tracked["observations"]:
            values = seen["value"] if isinstance(seen["value"], list) else [seen["value"]]
            metrics[int(seen["step"])][name] = statistics.fmean(values)
    score, best = state["score"], state["best_step"]
    return LegacyTrial(
        trial=str(state["trial_id"]),
        values=dict(state["hyperparameters"]["values"]),
        status=str(state["status"]),
        score=None if score is None else float(score),
        best_step=None if best is None else int(best),
        message=state.get("message"),
        metrics=dict(metrics),
        directions=directions,
    )


def _objective(trials: list[LegacyTrial]) -> tuple[str, str]:
    """The metric whose value at the best step is the score of every trial that has both."""
    agreeing: dict[str, int] = {}
    contradicted = set()
    directions: dict[str, str] = {}
    for trial in trials:
        at_best = trial.metrics.get(-1 if trial.best_step is None else trial.best_step, {})
        if trial.score is None or not math.isfinite(trial.score):
            continue
        directions |= trial.directions
        for name, value in at_best.items():
            if math.isclose(value, trial.score, rel_tol=1e-9, abs_tol=1e-12):
                agreeing[name] = agreeing.get(name, 0) + 1
            else:
                contradicted.add(name)
    left = [name for name in agreeing if name not in contradicted]
    if not left:
        return "score", "min"  # a sum of several objectives, which Keras Tuner makes small
    best = max(left, key=lambda name: (agreeing[name], name.startswith("val_")))
    return best, directions[best]

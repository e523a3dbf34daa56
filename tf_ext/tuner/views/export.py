"""A plan as a file: a page, a picture, or JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import tempfile
from typing import Any

from tf_ext.tuner.plan import Plan
from tf_ext.tuner.views import html, svg, wording
from tf_ext.tuner.views.choosing import Choice, most_shared
from tf_ext.tuner.views.model import Trial, View, read
from tf_ext.tuner.views.stages import Stage

__all__ = ["DEFAULT_LIMITS", "as_dict", "drawable", "kind_of", "render", "write"]

# More bars than that a browser draws, but nobody reads.
DEFAULT_LIMITS: dict[str, int | None] = {"html": 2000, "svg": 2000, "json": None}

_TRIALS_OF_A_STAGE = 50


def kind_of(path: pathlib.Path | None) -> str:
    """The format that a file name asks for; a page if none does."""
    ending = "" if path is None else path.suffix[1:].lower()
    return ending if ending in DEFAULT_LIMITS else "html"


def render(
    plan: Plan | str | os.PathLike[str], kind: str, *, study: str | None = None, limit: int | None = None
) -> str:
    """Writes a plan as text.

    Args:
        plan: The plan, or the directory in which it lies.
        kind: ``"html"``, ``"svg"`` or ``"json"``.
        study: Take this one only.
        limit: How many stages, those that most trials go through first; None for all.

    Returns:
        The text.

    Raises:
        ValueError: There is no such kind.
        PlanMismatchError: There is no plan, or no such study in it.
        CorruptedPlanError: It cannot be read.
    """
    if kind not in DEFAULT_LIMITS:
        raise ValueError(f"expected one of {', '.join(DEFAULT_LIMITS)}, got {kind!r}.")
    view = read(plan, study)
    choice = most_shared(view, limit)
    if kind == "json":
        return json.dumps(as_dict(view, choice), ensure_ascii=False, allow_nan=False, indent=1)
    return html.page(drawable(view, choice)) if kind == "html" else svg.drawing(view, choice)


def write(path: pathlib.Path, text: str) -> None:
    """Writes a file, whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp's file is for its owner alone
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def as_dict(view: View, choice: Choice) -> dict[str, Any]:
    """A plan as plain values.

    Args:
        view: The plan.
        choice: The stages to take.

    Returns:
        ``studies``, ``totals``, ``stages`` and ``trials``. The trials of a stage are those from the first of its two
        numbers up to, not with, the second. Numbers that JSON has no word for are null.
    """
    totals = dataclasses.asdict(view.totals) | {"merge_rate": view.totals.merge_rate}
    return {
        "name": view.directory.resolve().name,
        "studies": [study._asdict() for study in view.studies],
        "totals": totals,
        "left_out": choice.left_out,
        "stages": [_stage(stage) | {"hidden": choice.hidden.get(stage.index, 0)} for stage in choice.stages],
        "trials": [_trial(trial) for trial in view.trials],
    }


def drawable(view: View, choice: Choice) -> dict[str, Any]:
    """A plan for a page: as `as_dict`, with the drawing as ``svg`` and only the best trials of each stage.

    ``trials`` of a stage are places in ``trials`` here, and ``trial_count`` is how many there are.
    """
    directions = {study.name: study.direction for study in view.studies}
    scores = sorted(range(len(view.trials)), key=lambda place: _rank(view.trials[place], directions))
    rank = {place: number for number, place in enumerate(scores)}
    best = [_best_of(stage, rank) for stage in choice.stages]
    needed = sorted({place for places in best for place in places})
    renumbered = {place: number for number, place in enumerate(needed)}
    model = as_dict(dataclasses.replace(view, trials=()), choice)
    for stage, places, drawn in zip(model["stages"], best, choice.stages, strict=True):
        stage["trials"] = [renumbered[place] for place in places]
        stage["trial_count"] = drawn.trials[1] - drawn.trials[0]
        stage["what"] = wording.what(drawn)
    model["trials"] = [_trial(view.trials[place]) for place in needed]
    model["svg"] = svg.drawing(view, choice, interactive=True)
    return model


def _best_of(stage: Stage, rank: dict[int, int]) -> list[int]:
    return sorted(range(*stage.trials), key=rank.__getitem__)[:_TRIALS_OF_A_STAGE]


def _rank(trial: Trial, directions: dict[str, str]) -> tuple[bool, float]:
    if trial.score is None or not math.isfinite(trial.score):
        return True, 0.0
    return False, -trial.score if directions[trial.study] == "max" else trial.score


def _stage(stage: Stage) -> dict[str, Any]:
    fields = {field.name: getattr(stage, field.name) for field in dataclasses.fields(stage)}
    return _clean(fields | {"config": dict(stage.config)})


def _trial(trial: Trial) -> dict[str, Any]:
    return _clean({field.name: getattr(trial, field.name) for field in dataclasses.fields(trial)})


def _clean(value: Any) -> Any:
    """JSON has no word for what is not a number, and browsers refuse Python's."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value

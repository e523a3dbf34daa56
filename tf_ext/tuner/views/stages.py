"""The stages of a plan: what each trains, what became of it, and who needs it."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from tf_ext.tuner.segments import Config, Scalar
from tf_ext.tuner.views._cutting import Piece, Pieces
from tf_ext.tuner.views.reading import StudyRow, TrialRow
from tf_ext.tuner.views.totals import share

__all__ = ["Change", "Stage", "build"]

# Name of a hyper-parameter, its value before and after; None where it did not exist.
Change = tuple[str, Scalar | None, Scalar | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of training that is done once for all trials that go through it.

    Attributes:
        index: Its place in `View.stages`.
        parent: Place of the stage before it, or None.
        last: All stages behind it are ``View.stages[index + 1 : last]``.
        node: Number of the node of the plan that it is a part of.
        context: Number of what is trained: model, data, seed and environment.
        start: Epochs that are done when it begins.
        end: Epochs that are done when it ends.
        config: The hyper-parameters meanwhile.
        changes: What differs from the stage before it.
        state: ``"done"``, ``"running"`` (by a process that lives), ``"pending"`` or ``"failed"``.
        stopped: Whether a callback ended the training with it.
        steps: Optimizer steps that were done; 0 unless it is done.
        seconds: What they took.
        metrics: Those of its last epoch.
        best_epoch: The epoch, from 0 on, of its best value of the objective; None if the metrics do not have it.
        best: The metrics of that epoch.
        trials: The trials that go through it are ``View.trials[trials[0] : trials[1]]``.
        score: The best score of them.
    """

    index: int
    parent: int | None
    last: int
    node: int
    context: int
    start: int
    end: int
    config: Config
    changes: tuple[Change, ...]
    state: str
    stopped: bool
    steps: int
    seconds: float
    metrics: dict[str, float]
    best_epoch: int | None
    best: dict[str, float]
    trials: tuple[int, int]
    score: float | None


def build(
    pieces: Pieces, trials: list[TrialRow], studies: list[StudyRow], *, metrics: bool
) -> tuple[list[Stage], list[tuple[int, int | None]]]:
    """Makes the stages.

    Args:
        pieces: What the plan was cut into.
        trials: The trials of the studies.
        studies: Those that are looked at.
        metrics: Whether to read the metrics of each stage.

    Returns:
        The stages; and the places of the trials in the order of `View.trials`, each with its last stage.
    """
    first, order = _order(pieces, len(trials))
    last = _last(pieces)
    scores = _scores(pieces, trials, studies)
    configs: dict[str, Config] = {}  # the same one stands at many nodes
    for piece in pieces:
        if piece.node.config not in configs:
            configs[piece.node.config] = tuple((name, value) for name, value in json.loads(piece.node.config))
    stages = []
    for number, piece in enumerate(pieces):
        before = configs[pieces[piece.parent].node.config] if piece.parent >= 0 else None
        history = _history(piece) if metrics else []
        fields = {
            **_described(piece, configs[piece.node.config], before),
            **_measured(piece, history, studies[0] if studies else None),
        }
        where: dict[str, Any] = {
            "last": last[number],
            "trials": (first[number], first[last[number]]),
            "score": scores[number],
        }
        stages.append(Stage(index=number, **where, **fields))
    return stages, order


def _described(piece: Piece, config: Config, before: Config | None) -> dict[str, Any]:
    return {
        "parent": None if before is None else piece.parent,
        "node": piece.node.id,
        "context": piece.node.context,
        "start": piece.start,
        "end": piece.end,
        "config": config,
        "changes": () if before is None else _changes(before, config),
        "state": piece.state,
        "stopped": piece.stopped,
    }


def _measured(piece: Piece, history: list[dict[str, float]], objective: StudyRow | None) -> dict[str, Any]:
    steps, seconds = share(piece)
    best = None if objective is None else _best(history, objective)
    return {
        "steps": steps,
        "seconds": seconds,
        "metrics": history[-1] if history else {},
        "best_epoch": None if best is None else piece.start + best,
        "best": {} if best is None else history[best],
    }


def _order(pieces: Pieces, trials: int) -> tuple[list[int], list[tuple[int, int | None]]]:
    """How many trials end before each stage, and all trials with the last stage of each."""
    order: list[tuple[int, int | None]] = []
    first = []
    for number, piece in enumerate(pieces):
        first.append(len(order))
        order.extend((place, number) for place in sorted(piece.ends))
    first.append(len(order))
    placed = {place for place, _ in order}
    order.extend((place, None) for place in range(trials) if place not in placed)
    return first, order


def _last(pieces: Pieces) -> list[int]:
    last = list(range(1, len(pieces) + 1))
    for number in range(len(pieces) - 1, -1, -1):
        parent = pieces[number].parent
        if parent >= 0:
            last[parent] = max(last[parent], last[number])
    return last


def _history(piece: Piece) -> list[dict[str, float]]:
    if piece.run is None:
        return []
    history: list[dict[str, float]] = json.loads(piece.run.history)
    return history[piece.start - piece.run.start : piece.end - piece.run.start]


def _changes(before: Config, after: Config) -> tuple[Change, ...]:
    if before == after:
        return ()
    old, new = dict(before), dict(after)
    names = sorted({*old, *new})
    return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def _best(history: list[dict[str, float]], objective: StudyRow) -> int | None:
    sign = -1.0 if objective.direction == "max" else 1.0
    values = [(sign * epoch[objective.objective], i) for i, epoch in enumerate(history) if objective.objective in epoch]
    finite = [pair for pair in values if math.isfinite(pair[0])]
    return min(finite)[1] if finite else None


def _scores(pieces: Pieces, trials: list[TrialRow], studies: list[StudyRow]) -> list[float | None]:
    """The best score behind each stage, among the studies that look for the same as the first."""
    aim = [(s.objective, s.direction) for s in studies]
    alike = {s.id for s, a in zip(studies, aim, strict=True) if a == aim[0]}
    better = max if studies and studies[0].direction == "max" else min
    best: list[float | None] = [None] * len(pieces)
    for number in range(len(pieces) - 1, -1, -1):
        own = [trials[place].score for place in pieces[number].ends if trials[place].study in alike]
        known = [s for s in (*own, best[number]) if s is not None and math.isfinite(s)]
        best[number] = better(known) if known else None
        parent = pieces[number].parent
        if parent >= 0 and known:
            so_far = best[parent]
            best[parent] = better(known) if so_far is None else better([*known, so_far])
    return best

"""Where the stages of a plan are drawn: to the right as far as steps were done before, each branch on a row of its own."""

from __future__ import annotations

import dataclasses

from tf_ext.tuner.views.choosing import Choice
from tf_ext.tuner.views.stages import Stage

__all__ = ["Box", "Layout", "lay_out"]


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """Where a stage is drawn.

    Attributes:
        stage: The stage.
        x: Steps on its path before it.
        width: Its steps; those of a stage that is not done are guessed from the one before it.
        row: From 0 on; the first child of a stage goes on in its row.
        parent_row: The row of the stage before it, or None.
    """

    stage: Stage
    x: float
    width: float
    row: int
    parent_row: int | None


@dataclasses.dataclass(frozen=True)
class Layout:
    """All boxes, in the order of their stages; `width` in steps, or in epochs where no step was done yet."""

    boxes: tuple[Box, ...]
    width: float
    rows: int
    unit: str


def lay_out(choice: Choice) -> Layout:
    """Lays out the stages that are drawn."""
    done = [stage for stage in choice.stages if stage.steps]
    epochs = sum(stage.end - stage.start for stage in done)
    usual = sum(stage.steps for stage in done) / epochs if epochs else 1.0
    boxes: dict[int, Box] = {}
    pace: dict[int, float] = {}  # steps of an epoch
    begun: set[int] = set()  # stages that have a child in their row
    rows = 0
    for stage in choice.stages:
        before = None if stage.parent is None else boxes[stage.parent]
        length = stage.end - stage.start
        pace[stage.index] = (
            stage.steps / length if stage.steps else pace.get(-1 if stage.parent is None else stage.parent, usual)
        )
        x = 0.0 if before is None else before.x + before.width
        if before is not None and before.stage.index not in begun:
            row = before.row
            begun.add(before.stage.index)
        else:
            row, rows = rows, rows + 1
        width = stage.steps or length * pace[stage.index]
        boxes[stage.index] = Box(stage, x, float(width), row, None if before is None else before.row)
    right = max((box.x + box.width for box in boxes.values()), default=0.0)
    return Layout(tuple(boxes.values()), right, rows, "steps" if done else "epochs")

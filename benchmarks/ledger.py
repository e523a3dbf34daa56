"""Keeps the books of an issue's numbered bars: cells, what they must reach, and what is left to measure."""

import dataclasses
import gc
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from benchmarks import harness
from benchmarks.harness import UnavailableError


@dataclasses.dataclass(frozen=True)
class Cell:
    """One condition of a bar, measured or not.

    Attributes:
        bar: The bar's number in the issue.
        cell: The condition and the case, e.g. `"faster than level/treelstm/25/training"`.
        value: What was measured; None when not run.
        limit: What it is held against.
        unit: Of both.
        runs: How many runs the value is the median of.
        spread: Distance between the quartiles over the median.
        holds: Whether the condition is met; None when not run.
        note: Why it was not run, or what failed.
    """

    bar: int
    cell: str
    value: float | None
    limit: float | None
    unit: str
    runs: int = 1
    spread: float | None = None
    holds: bool | None = None
    note: str | None = None


def at_most(bar: int, cell: str, values: Sequence[float], limit: float, unit: str) -> Cell:
    """Returns a cell that holds if the median of `values` is at most `limit`."""
    value = statistics.median(values)
    spread = harness.spread(values)
    return Cell(bar, cell, value, limit, unit, len(values), spread, value <= limit)


def at_least(bar: int, cell: str, values: Sequence[float], limit: float, unit: str) -> Cell:
    """Returns a cell that holds if the median of `values` is at least `limit`."""
    value = statistics.median(values)
    spread = harness.spread(values)
    return Cell(bar, cell, value, limit, unit, len(values), spread, value >= limit)


@dataclasses.dataclass(frozen=True)
class Task:
    """A measurement that settles some cells of one bar.

    Attributes:
        bar: The bar's number.
        cells: The names of the cells it settles, known before it runs.
        measure: Takes whether this is a smoke run and returns those cells. In a smoke run it uses the smallest size,
            checks results and looks at no time.
    """

    bar: int
    cells: tuple[str, ...]
    measure: Callable[[bool], Iterable[Cell]]


def run(
    tasks: Sequence[Task],
    out: pathlib.Path | None = None,
    smoke: bool = False,
    budget_s: float = 1500.0,
) -> bool:
    """Measures tasks, prints a line for each cell and then one for each bar.

    Args:
        tasks: What to measure.
        out: Where lines are kept; cells that are settled there are not measured again.
        smoke: Run every cell once at the smallest size. Nothing is read from or written to `out`.
        budget_s: No task starts later than this; the cells left over are not run, and a second call goes on with them.

    Returns:
        Whether no cell has failed. Cells not run have not failed.
    """
    start = time.monotonic()
    out = None if smoke else out
    known = _settled(out)
    cells: list[Cell] = []
    for task in tasks:
        old = [known[task.bar, name] for name in task.cells if (task.bar, name) in known]
        if len(old) == len(task.cells):
            cells += old
            continue
        if time.monotonic() - start > budget_s:
            fresh = _not_run(task, "time is up: run again with the same --out")
        else:
            fresh = _measure(task, smoke)
            gc.collect()  # what one task leaves behind must not slow the next
        for cell in fresh:
            harness.emit(dataclasses.asdict(cell), out)
        cells += fresh
    for bar in sorted({task.bar for task in tasks}):
        harness.emit(dataclasses.asdict(_summary(bar, [c for c in cells if c.bar == bar])))
    return all(cell.holds is not False for cell in cells)


def _settled(out: pathlib.Path | None) -> dict[tuple[int, str], Cell]:
    records = harness.read(out) if out is not None else []
    return {(r["bar"], r["cell"]): Cell(**r) for r in records if r.get("holds") is not None}


def _measure(task: Task, smoke: bool) -> list[Cell]:
    try:
        cells = list(task.measure(smoke))
    except UnavailableError as error:
        return _not_run(task, str(error))
    except Exception as error:  # A peer that breaks must not take the other cells with it.
        logging.exception("Bar %d: %s", task.bar, ", ".join(task.cells))
        # TensorFlow puts where it happened first and what happened last.
        last = (str(error).strip().splitlines() or [""])[-1]
        note = f"{type(error).__name__}: {last.strip()}"
        return [dataclasses.replace(cell, holds=False) for cell in _not_run(task, note)]
    missing = [name for name in task.cells if name not in {cell.cell for cell in cells}]
    return cells + _not_run(dataclasses.replace(task, cells=tuple(missing)), "no result")


def _not_run(task: Task, note: str) -> list[Cell]:
    return [Cell(task.bar, name, None, None, "", 0, note=note) for name in task.cells]


def _summary(bar: int, cells: Sequence[Cell]) -> Cell:
    verdicts = [cell.holds for cell in cells]
    holds = False if False in verdicts else None if None in verdicts else True
    good = float(verdicts.count(True))
    return Cell(bar, "all", good, float(len(cells)), "cells that hold", len(cells), None, holds)

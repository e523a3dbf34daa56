"""The numbered bars of `tf_ext.lite`."""

import dataclasses
import functools
from collections.abc import Iterable

from benchmarks.ledger import Cell, Task
from benchmarks.lite import bars_exact, bars_memory, bars_simulated, bars_time


def tasks(bar: int | None = None) -> list[Task]:
    """Returns the tasks of one bar, or of all."""
    everything = [
        *bars_exact.exactness(),
        *bars_time.overhead(),
        *bars_time.frames(),
        *(dataclasses.replace(task, measure=functools.partial(_simulate, task)) for task in bars_simulated.simulated()),
        *bars_simulated.decisions(),
        *bars_time.requests(),
        *bars_memory.memory(),
    ]
    return [task for task in everything if bar in (None, task.bar)]


def _simulate(task: Task, smoke: bool) -> Iterable[Cell]:
    """Averages over a handful of workloads say nothing: a smoke run only looks whether they come about."""
    for cell in task.measure(smoke):
        yield dataclasses.replace(cell, holds=cell.value is not None) if smoke else cell

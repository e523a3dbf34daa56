"""The numbered bars of the tuner; those of the simulator and of the scheduler are in `benchmarks.tuner_simulation`."""

import dataclasses
import itertools
import pathlib
import tempfile
import time
import types
from collections.abc import Iterable, Iterator

import keras_tuner

from benchmarks import tuner_simulation
from benchmarks.ledger import Cell, Task, at_most
from benchmarks.tuner import bars_exact, bars_kill, bars_time
from tf_ext import tuner
from tf_ext.tuner._engine import Engine
from tf_ext.tuner.executors import Executor
from tf_ext.tuner.plan import Plan, Run
from tf_ext.tuner.segments import Segment

_STAGES = 100_000
_OPENS = "plan opens/100,000 stages"
_SCHEDULER = "a request or a choice/worst of all"
_SIMULATED = "simulated makespan over the exact optimum/worst"


def tasks(bar: int | None = None) -> list[Task]:
    """Returns the tasks of one bar, or of all."""
    everything = [
        *bars_exact.exactness(),
        *bars_exact.steps(),
        *bars_time.example(),
        Task(4, (_SIMULATED,), lambda smoke: [Cell(**line) for line in tuner_simulation.bar_4(smoke)]),
        Task(5, (_SCHEDULER,), _scheduler),
        Task(5, (_OPENS,), _opens),
        *bars_kill.kills(),
    ]
    return [task for task in everything if bar in (None, task.bar)]


def _scheduler(smoke: bool) -> Iterable[Cell]:
    cells = [Cell(**line) for line in tuner_simulation.bar_5_scheduler(smoke)]
    worst = at_most(5, _SCHEDULER, [max(cell.value or 0.0 for cell in cells)], 1.0, "ms")
    return [dataclasses.replace(cell, holds=smoke or cell.holds) for cell in (*cells, worst)]


class _Idle(Executor):
    """Trains nothing: a plan is opened, and that is all."""

    def start(self, *_: object) -> None:
        """See `Executor`."""

    def submit(self, *_: object) -> None:
        """See `Executor`."""

    def wait(self, timeout: float) -> list[tuner.executors.Done]:
        """See `Executor`."""
        return []

    def close(self) -> None:
        """See `Executor`."""


def _opens(smoke: bool) -> list[Cell]:
    """Seconds from nothing to an engine that takes requests."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        context = _fill(directory, 500 if smoke else _STAGES)
        job = types.SimpleNamespace(objective=keras_tuner.Objective("val_loss", "min"))
        seconds = []
        for _ in range(1 if smoke else 5):
            start = time.perf_counter()
            with tuner.Plan(directory) as plan:
                Engine(plan, context, job, _Idle())  # type: ignore[arg-type]
                seconds.append(time.perf_counter() - start)
        cell = at_most(5, _OPENS, seconds, 1.0, "s")
        return [dataclasses.replace(cell, holds=smoke or cell.holds)]


def _fill(directory: pathlib.Path, stages: int) -> int:
    """Writes a plan of paths with ten segments each, as a search would."""
    with tuner.Plan(directory) as plan:
        context = plan.context("benchmark", {})
        plan.study("benchmark", "val_loss", "min", {})
        with plan.transaction():
            for node in itertools.islice(_nodes(plan, context), stages):
                plan.record(Run(node[0], node[1], node[1] + 1, [{"val_loss": 0.5}], 10, 0.1))
                plan.add_checkpoint(node[0], node[1] + 1, f"n{node[0]}", 1000)
        return context


def _nodes(plan: Plan, context: int) -> Iterator[tuple[int, int]]:
    """Number and start of nodes that are new, path after path."""
    seen: set[int] = set()
    for number in itertools.count():
        path = tuple(
            Segment(e, e + 1, (("rate", float(number // 4 ** (9 - e))),)) if e else Segment(0, 1, (("rate", -1.0),))
            for e in range(10)
        )
        for span in plan.nodes(context, path):
            if span.node not in seen:
                seen.add(span.node)
                yield span.node, span.start

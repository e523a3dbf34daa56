"""The numbered bars of recursion, and the first of them: exactness."""

import functools
from collections.abc import Iterable

import tensorflow as tf

from benchmarks.ledger import Cell, Task, at_most
from benchmarks.recursion import bars_memory, bars_time, ours, peers_eager, suite
from benchmarks.recursion.suite import CASES, Case

EXECUTIONS = ("invoke", "batched")
ERROR = "max|a-b|/max|b|"


def tasks(bar: int | None = None) -> list[Task]:
    """Returns the tasks of one bar, or of all."""
    everything = [*exactness(), *bars_time.invoke(), *bars_time.batched(), *bars_memory.memory()]
    return [task for task in everything if bar in (None, task.bar)]


def exactness() -> Iterable[Task]:
    """Yields bar 1: both executions of every model against eager recursion."""
    for case in (CASES["treelstm/10"], CASES["ast/25"], suite.chain(1000)):
        for execution in EXECUTIONS:
            where = f"{case.name}/{execution}"
            names = (f"values/{where}", f"gradients/{where}")
            yield Task(1, names, functools.partial(_exact, case, execution, names))
            names = (f"bfloat16 values/{where}", f"bfloat16 gradients/{where}")
            yield Task(1, names, functools.partial(_mixed, case, execution, names))


def _exact(case: Case, execution: str, names: tuple[str, str], smoke: bool) -> list[Cell]:
    ours.require()
    model, forest = case.make(smoke)
    got = suite.errors(ours.prepare(model, forest, execution), peers_eager.prepare(model, forest))
    limits = (1e-6, 1e-5)
    return [at_most(1, name, [v], limit, ERROR) for name, v, limit in zip(names, got, limits, strict=True)]


def _mixed(case: Case, execution: str, names: tuple[str, str], smoke: bool) -> list[Cell]:
    """Holds bfloat16 cells against float64; twice the error of eager recursion in bfloat16 is allowed."""
    ours.require()
    model, forest = case.make(smoke)
    control = peers_eager.prepare(model, forest, tf.float64)
    eager = suite.errors(peers_eager.prepare(model, forest, compute=tf.bfloat16), control)
    got = suite.errors(ours.prepare(model, forest, execution, tf.bfloat16), control)
    return [at_most(1, n, [v], 2 * e, ERROR) for n, v, e in zip(names, got, eager, strict=True)]

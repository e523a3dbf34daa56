"""Bars 2 and 3: what a call costs, and how both executions compare with the peers on the clock."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks import harness
from benchmarks.harness import Timing
from benchmarks.ledger import Cell, Task, at_least, at_most
from benchmarks.recursion import ours, peers_eager, suite
from benchmarks.recursion.suite import CASES, MODES, Case

SLOWER_ON_THE_CLOCK: frozenset[str] = frozenset()
"""Cells, such as `"treelstm/10/training"`, in which `invoke` may take longer on the clock than the loop."""

SHORTENED = {"chain/10000/training": ("while_loop", 1000)}
"""Peers that take minutes for one step of a cell, and the size at which they run in it. What is slower there than the other
one is on the whole is slower on the whole, too."""

ROUNDS = 21
PROBES = "benchmarks.recursion.probes"
_SMOKE_TOLERANCE = 2e-5


class Condition(NamedTuple):
    """A ratio of two implementations that a bar limits.

    Attributes:
        cell: Name of the cell.
        over: The implementation whose time is above the line.
        under: The one whose time is below it.
        limit: Of the ratio.
        test: `at_most` or `at_least`.
        clock: `"wall"` or `"cpu"`.
        note: What else there is to say.
    """

    cell: str
    over: str
    under: str
    limit: float
    test: Callable[..., Cell] = at_most
    clock: str = "wall"
    note: str | None = None


def invoke() -> Iterable[Task]:
    """Yields bar 2."""
    yield Task(2, ("call cost/fib",), _call_cost)
    yield Task(2, ("depth 100,000",), _depth)
    for case in CASES.values():
        for mode in MODES:
            where = f"{case.name}/{mode}"
            wall = float("inf") if where in SLOWER_ON_THE_CLOCK else 1.0
            conditions = [
                Condition(f"processor time over while_loop/{where}", "invoke", "while_loop", 1.0, clock="cpu"),
                Condition(f"wall time over while_loop/{where}", "invoke", "while_loop", wall),
            ]
            yield _task(2, case, mode, conditions)


def batched() -> Iterable[Task]:
    """Yields bar 3."""
    for case in CASES.values():
        for mode in MODES:
            yield _task(3, case, mode, _batched_conditions(case, mode))


def _batched_conditions(case: Case, mode: str) -> list[Condition]:
    where = f"{case.name}/{mode}"
    found = [Condition(f"over level_batched/{where}", "batched", "level_batched", 1.0)]
    if case.kind == "binary" and case.batch >= 10:
        found.append(Condition(f"faster than while_loop/{where}", "while_loop", "batched", 5.0, at_least))
        found.append(Condition(f"faster than eager/{where}", "eager", "batched", 20.0, at_least))
    if case.batch == 25:
        limit = 2.0 if case.kind == "childsum" else 1.6 if mode == "training" else 1.8
        found.append(Condition(f"over bare_products/{where}", "batched", "bare_products", limit))
        # The hand-written version is a peer only if it is a good one.
        found.append(Condition(f"level_batched over bare_products/{where}", "level_batched", "bare_products", 2.2))
    return found


def _task(bar: int, case: Case, mode: str, conditions: Sequence[Condition]) -> Task:
    cells = tuple(condition.cell for condition in conditions)
    return Task(bar, cells, functools.partial(_measure, bar, case, mode, conditions))


def _measure(bar: int, case: Case, mode: str, conditions: Sequence[Condition], smoke: bool) -> list[Cell]:
    ours.require()
    names = list(dict.fromkeys(name for c in conditions for name in (c.over, c.under)))
    if smoke:
        return _compare(bar, case, conditions, names)
    shortened, size = SHORTENED.get(f"{case.name}/{mode}", ("", 0))
    runners = suite.prepare([n for n in names if n != shortened], *case.make())
    if shortened in names:
        runners |= suite.prepare([shortened], *suite.chain(size).make())
        note = f"{shortened} on {size} nodes only, which is to its advantage"
        conditions = [condition._replace(note=note) for condition in conditions]
    timing = harness.alternate({n: suite.call(r, mode) for n, r in runners.items()}, ROUNDS)
    return [_cell(bar, condition, timing) for condition in conditions]


def _cell(bar: int, condition: Condition, timing: dict[str, Timing]) -> Cell:
    over, under = timing[condition.over], timing[condition.under]
    cell = condition.test(bar, condition.cell, harness.ratios(over, under, condition.clock), condition.limit, "x")
    return dataclasses.replace(cell, note=condition.note)


def _compare(bar: int, case: Case, conditions: Sequence[Condition], names: Sequence[str]) -> list[Cell]:
    """Compares the results of each condition's implementations with eager recursion, at the smallest size."""
    model, forest = case.make(smoke=True)
    runners = suite.prepare(names, model, forest)
    control = peers_eager.prepare(model, forest)
    errors = {n: max(suite.errors(r, control)) for n, r in runners.items() if n != "bare_products"}
    cells = []
    for condition in conditions:
        worst = max(errors.get(name, 0.0) for name in (condition.over, condition.under))
        cells.append(at_most(bar, condition.cell, [worst], _SMOKE_TOLERANCE, "max|a-b|/max|b|"))
    return cells


def _call_cost(smoke: bool) -> list[Cell]:
    ours.require()
    result = harness.in_child(PROBES, ["--probe=fib", f"--size={5 if smoke else 24}"])
    return [_right(at_most(2, "call cost/fib", [1e6 * s for s in result["seconds"]], 2.5, "us"), result, smoke)]


def _depth(smoke: bool) -> list[Cell]:
    ours.require()
    result = harness.in_child(PROBES, ["--probe=depth", f"--size={100 if smoke else 100_000}"])
    return [_right(at_most(2, "depth 100,000", [result["seconds"]], float("inf"), "s"), result, smoke)]


def _right(cell: Cell, result: dict[str, Any], smoke: bool) -> Cell:
    """Adds to a cell that the result must be right; in a smoke run that is all that counts."""
    return dataclasses.replace(cell, holds=bool(result["right"] and (smoke or cell.holds)))

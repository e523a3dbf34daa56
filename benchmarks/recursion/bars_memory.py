"""Bar 4: memory."""

import functools
import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks import harness
from benchmarks.ledger import Cell, Task, at_most
from benchmarks.recursion import ours
from benchmarks.recursion.bars_time import PROBES

NODES = 100_000
STEPS = 200
_GIB = 2.0**30


def memory() -> Iterable[Task]:
    """Yields bar 4: a large forest, memory per node, and growth over many steps, in both executions."""
    for execution in ("invoke", "batched"):
        names = (f"peak of {NODES:,} nodes/{execution}", f"per node, whole forest over half/{execution}")
        yield Task(4, names, functools.partial(_forest, execution, names))
        name = f"last of {STEPS} steps over the middle/{execution}"
        yield Task(4, (name,), functools.partial(_growth, execution, name))


def _probe(probe: str, execution: str, size: int, smoke: bool) -> dict[str, Any]:
    hidden = 8 if smoke else 168
    arguments = [f"--probe={probe}", f"--execution={execution}", f"--size={size}", f"--hidden={hidden}"]
    return harness.in_child(PROBES, arguments)


def _forest(execution: str, names: tuple[str, str], smoke: bool) -> list[Cell]:
    ours.require()
    nodes = 700 if smoke else NODES
    whole, half = (_peak(execution, size, smoke) for size in (nodes, nodes // 2))
    peak = at_most(4, names[0], [whole[0] / _GIB], 4.0, "GiB")
    # The memory of 700 narrow nodes is lost among TensorFlow's own.
    limit = float("inf") if smoke else 1.15
    return [peak, at_most(4, names[1], [whole[1] / half[1]], limit, "x")]


def _peak(execution: str, nodes: int, smoke: bool) -> tuple[float, float]:
    """Returns the peak in bytes of training on a forest, and the bytes per node above what was there before."""
    result = _probe("forest", execution, nodes, smoke)
    peak, before, size = (float(result[key]) for key in ("peak", "before", "nodes"))
    return peak, max(peak - before, 1.0) / size


def _growth(execution: str, name: str, smoke: bool) -> list[Cell]:
    """Compares the last tenth of the steps with a tenth in the middle: by then every size has been met often."""
    ours.require()
    steps = 20 if smoke else STEPS
    result = _probe("growth", execution, steps, smoke)
    sizes = [float(size) for size in result["bytes"]]
    tenth = steps // 10
    late, middle = (statistics.median(part) for part in (sizes[-tenth:], sizes[steps // 2 :][:tenth]))
    return [at_most(4, name, [late / middle], float("inf") if smoke else 1.01, "x")]

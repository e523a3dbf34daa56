"""Which runs of units are worth a sub-model of their own (Band, section 3.1: merging unit subgraphs)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from tf_ext.lite.model import Model

Run = tuple[int, int]


class Sizes:
    """How large runs of units are.

    Args:
        model: what was cut into units.
        units: the operators [begin, end) of each.
    """

    def __init__(self, model: Model, units: Sequence[Run]) -> None:
        self.model_bytes = len(model.data)
        self._counts = [sum(begin <= index < end for index in model.ordinary) for begin, end in units]
        self._bytes = [_constants(model, begin, end) for begin, end in units]

    def operators(self, run: Run) -> int:
        """Returns how many operators a run of units has, those of constants alone not counted."""
        return sum(self._counts[run[0] : run[1]])

    def bytes(self, run: Run) -> int:
        """Returns about how many bytes a run of units takes as a model of its own."""
        return sum(self._bytes[run[0] : run[1]])


def _constants(model: Model, begin: int, end: int) -> int:
    """Of the constants as the file holds them, without those that only unpacking makes large."""
    used, open_ = set(), [index for index in model.ordinary if begin <= index < end]
    while open_:
        for tensor in model.operators[open_.pop()].inputs:
            if tensor in model.fixed_tensors and tensor not in used:
                used.add(tensor)
                if tensor in model.producers:
                    open_.append(model.producers[tensor])
    data = (model.schema.buffers[model.graph.tensors[tensor].buffer].data for tensor in used)
    return sum(0 if one is None else len(one) for one in data)


def choose(
    units: Sequence[tuple[str, ...]], sizes: Sizes, minimum: int, most: int, growth: float
) -> list[tuple[int, int, tuple[str, ...]]]:
    """Chooses runs of units.

    Args:
        units: the processors of each unit.
        sizes: of runs.
        minimum: operators that a run should have.
        most: how many runs to choose, if no more are needed.
        growth: the bytes of all runs over those of the model, if no more are needed.

    Returns:
        First unit, last unit + 1 and processors of each run, in order. From each, others lead to both ends of the model.
    """
    count = len(units)
    runs: dict[Run, tuple[str, ...]] = {}
    for begin in range(count):
        common = list(units[begin])
        for end in range(begin + 1, count + 1):
            common = [name for name in common if name in units[end - 1]]
            if not common:
                break
            runs[begin, end] = tuple(common)
    chosen: set[Run] = set()
    total = 0
    for run in sorted(runs, key=lambda run: _rank(run, runs, units)):
        fits = total + sizes.bytes(run) <= growth * sizes.model_bytes or not chosen
        if sizes.operators(run) >= minimum and len(chosen) < most and fits:
            chosen.add(run)
            total += sizes.bytes(run)
    for run in sorted(chosen) or [(0, 0)]:
        chosen |= _way(0, run[0], runs, chosen) | _way(run[1], count, runs, chosen)
    return [(begin, end, runs[begin, end]) for begin, end in sorted(chosen)]


def _rank(run: Run, runs: Iterable[Run], units: Sequence[tuple[str, ...]]) -> tuple[int, int, Run]:
    """The whole model first, then single units, then what no processor could do more of, then the longest."""
    begin, end = run
    if end - begin == len(units):
        return 0, 0, run
    if end - begin == 1:
        return 1, 0, run
    for name in units[begin]:
        common = all(name in units[index] for index in range(begin, end))
        before = begin > 0 and name in units[begin - 1]
        if common and not before and (end == len(units) or name not in units[end]):
            return 2, begin - end, run
    return 3, begin - end, run


def _way(begin: int, end: int, runs: Iterable[Run], chosen: set[Run]) -> set[Run]:
    """The runs that lead from one unit to another: as few new ones as possible, then as few as possible."""
    best: dict[int, tuple[int, int, tuple[Run, ...]]] = {}
    open_: list[tuple[int, int, int, tuple[Run, ...]]] = [(0, 0, begin, ())]
    while open_:
        new, length, place, way = heapq.heappop(open_)
        if place in best:
            continue
        best[place] = (new, length, way)
        for run in runs:
            if run[0] == place and run[1] <= end and run[1] not in best:
                heapq.heappush(open_, (new + (run not in chosen), length + 1, run[1], (*way, run)))
    return set(best[end][2])

"""Bars 1 and 2: trials that share stages have the metrics of trials alone, and each stage is trained once."""

import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Iterable
from typing import Any

from benchmarks.ledger import Cell, Task, at_least, at_most
from benchmarks.tuner import searches
from benchmarks.tuner.searches import ORACLES, Trained
from benchmarks.tuner.small import STATES
from benchmarks.tuner.spaces import SPACES, Space, random_space
from tf_ext import tuner

_ALONE = 4  # trials of a search that are trained alone, too
_RANDOM_TREES = 20
_MERGING = ("Grid", "SHA", "ASHA", "Hyperband")
UNIT = "trials that differ"

Settings = tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class _Found:
    """What a search left: its trials, and the totals of its plan."""

    trials: dict[str, Trained]
    totals: dict[str, float]


@functools.lru_cache(maxsize=16)
def _found(oracle: str, space: str | int, state: str, smoke: bool = False, settings: Settings = ()) -> _Found:
    """Runs a search; kept, since bar 2 asks for some of those of bar 1."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        searches.search(oracle, _space(space, smoke), STATES[state], directory, **dict(settings))
        with tuner.Plan(directory / searches.PROJECT, create=False) as plan:
            totals = plan.totals()
        return _Found(searches.trained(directory), totals)


def _space(name: str | int, smoke: bool) -> Space:
    if isinstance(name, int):
        return random_space(name, 1 if smoke else 3)
    return SPACES[name].smallest() if smoke else SPACES[name]


def exactness() -> Iterable[Task]:
    """Yields bar 1. Over the tasks, each oracle meets each kind of schedule and each state, and each kind each state."""
    for position, space in enumerate(SPACES):
        cell = f"as alone/{space}/all oracles, states in turn"
        yield Task(1, (cell,), functools.partial(_schedule, cell, space, position))
    for cell, count, settings in (
        ("as alone/random stage trees", _RANDOM_TREES, ()),
        ("as alone/in workers", 2, (("workers", 2),)),
    ):
        yield Task(1, (cell,), functools.partial(_random, cell, count, settings))


def _state(position: int, oracle: int) -> str:
    return list(STATES)[(position + oracle) % len(STATES)]


def _schedule(cell: str, space: str, position: int, smoke: bool) -> list[Cell]:
    """In a smoke run one oracle, another one for each kind of schedule."""
    chosen = list(enumerate(ORACLES))
    chosen = [chosen[position % len(chosen)]] if smoke else chosen
    wrong: list[str] = []
    for number, oracle in chosen:
        state = _state(position, number)
        found = _found(oracle, space, state, smoke)
        bad = searches.differences(found.trials, _space(space, smoke), STATES[state], 1 if smoke else _ALONE)
        wrong += [f"{oracle}, {state}, trial {text}" for text in bad]
    return [_none_wrong(1, cell, wrong, len(chosen))]


def _random(cell: str, count: int, settings: Settings, smoke: bool) -> list[Cell]:
    wrong: list[str] = []
    seeds = range(1 if smoke else count)
    for seed in seeds:
        state = _state(seed, 0)
        # A worker takes seconds to import TensorFlow: one of them will do.
        found = _found("Grid", seed, state, smoke, tuple((name, 1) for name, _ in settings) if smoke else settings)
        bad = searches.differences(found.trials, _space(seed, smoke), STATES[state], 1 if smoke else _ALONE)
        wrong += [f"tree {seed}, {state}, trial {text}" for text in bad]
    return [_none_wrong(1, cell, wrong, len(seeds))]


def _none_wrong(bar: int, cell: str, wrong: list[str], runs: int) -> Cell:
    found = at_most(bar, cell, [float(len(wrong))], 0.0, UNIT)
    return dataclasses.replace(found, runs=runs, note="; ".join(wrong[:3]) or None)


def steps() -> Iterable[Task]:
    """Yields bar 2."""
    for oracle in _MERGING:
        cells = (f"steps executed over distinct steps/{oracle}", f"merge rate/{oracle}")
        yield Task(2, cells, functools.partial(_merging, oracle, cells))
    cell = "steps executed over distinct steps/all states from disk"
    yield Task(2, (cell,), functools.partial(_from_disk, cell))


def _merging(oracle: str, cells: tuple[str, str], smoke: bool) -> list[Cell]:
    position = list(ORACLES).index(oracle)
    # In a smoke run that of bar 1, which is at hand; otherwise one in which trials differ in batch size, too.
    space, state = (
        (list(SPACES)[position], _state(position, position)) if smoke else ("batch size", "SGD with momentum")
    )
    found = _found(oracle, space, state, smoke)
    rate = searches.requested_steps(found.trials) / found.totals["steps"]
    merged = at_least(2, cells[1], [rate], 1.0, "x")
    return [_executed(cells[0], found), dataclasses.replace(merged, note=f"{len(found.trials)} trials; reported")]


def _from_disk(cell: str, smoke: bool) -> list[Cell]:
    state = searches.default_state().name
    return [_executed(cell, _found("Grid", "batch size", state, smoke, (("memory", 0),)))]


def _executed(cell: str, found: _Found) -> Cell:
    ratio = (found.totals["steps"] + found.totals["again"]) / searches.distinct_steps(found.trials)
    limited = at_most(2, cell, [ratio], 1.0, "x")
    return dataclasses.replace(limited, holds=ratio == 1.0)

"""Measures the tuner's scheduler and simulator. No model is trained: all times of studies are simulated.

    python -m benchmarks.tuner_simulation [--smoke]

Bar 4 holds the scheduler's makespans against exact optima and lower bounds, and reports what `benchmarks.tuner_studies`
merge. Bar 5 measures, on the clock, what a request and a choice cost with 10,000 trials pending. Prints a line of JSON for
each cell, and ends with 1 if one does not hold.
"""

import dataclasses
import gc
import heapq
import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

from absl import app, flags

from benchmarks import harness, tuner_studies
from benchmarks.ledger import Cell, at_least, at_most
from tf_ext.tuner import _exact
from tf_ext.tuner.scheduler import CriticalPathScheduler
from tf_ext.tuner.segments import Path, Segment
from tf_ext.tuner.simulator import Simulation, StudyDefinition, simulate
from tf_ext.tuner.stage_tree import Stage, StageTree

_SMOKE = flags.DEFINE_bool("smoke", False, "The smallest size.")

_TREES = 200
_MOST_STAGES = 12
_FEW_WORKERS = 3
_TRIALS = 10_000
_SEGMENTS = 10

Line = dict[str, Any]


def bar_4(smoke: bool) -> Iterator[Line]:
    """Yields the cells of bar 4: simulated makespans against optima and bounds, and merge rates."""
    yield from map(dataclasses.asdict, _small_trees(5 if smoke else _TREES))
    studies: list[list[StudyDefinition]] = [[study] for study in tuner_studies.single()]
    studies += [tuner_studies.several(count) for count in (1, 2, 4, 8)]
    for group in [studies[3], studies[4]] if smoke else studies:
        result = simulate(group, tuner_studies.WORKERS, tuner_studies.stage_cost)
        alone = group[0] in tuner_studies.single()
        name = group[0].name if alone else f"{len(group)} studies at once"
        yield from map(dataclasses.asdict, _study(name, alone, result))


def bar_5_scheduler(smoke: bool) -> Iterator[Line]:
    """Yields the cells of bar 5 that concern the scheduler: milliseconds of a request, and of a choice."""
    trials, runs = (200, 1) if smoke else (_TRIALS, 3)
    for shared in (True, False):
        for workers in (1, 40):
            times = [_requests(trials, shared, workers, seed) for seed in range(runs)]
            where = f"{'shared prefixes' if shared else 'nothing shared'}/{workers} workers"
            for what, values in zip(
                ("request", "choice", "choice, start and finish"), zip(*times, strict=True), strict=True
            ):
                yield dataclasses.asdict(at_most(5, f"{what}/{trials} trials/{where}", values, 1.0, "ms"))


# --- few stages ---


def _random_tree(draw: random.Random, most: int) -> tuple[list[float], list[int]]:
    """Costs and parents of a random recursive forest."""
    count = draw.randint(2, most)
    return [draw.uniform(1, 20) for _ in range(count)], [draw.randint(-1, job - 1) for job in range(count)]


def _small_trees(count: int) -> Iterator[Cell]:
    draw, ratios = random.Random(12), []
    for number in range(count):
        costs, parents = _random_tree(draw, _MOST_STAGES)
        best = _exact.plan(_exact.Problem(costs, parents, [0.0] * len(costs), [0.0] * _FEW_WORKERS))
        ratios.append(_makespan(costs, parents, _FEW_WORKERS) / best.makespan)
        yield at_most(4, f"simulated makespan over the exact optimum/tree {number}", ratios[-1:], 1.02, "ratio")
    worst = at_most(4, "simulated makespan over the exact optimum/worst", [max(ratios)], 1.02, "ratio")
    yield dataclasses.replace(worst, runs=count)


def _makespan(costs: list[float], parents: list[int], workers: int) -> float:
    """Runs a tree through `StageTree` and the scheduler on a clock of its own."""
    tree = StageTree(lambda config, epochs: costs[int(dict(config)["job"])])
    for job in range(len(costs)):
        ancestors = [job]
        while parents[ancestors[0]] >= 0:
            ancestors.insert(0, parents[ancestors[0]])
        tree.add(job, tuple(Segment(i, i + 1, (("job", a),)) for i, a in enumerate(ancestors)))
    now, free, last = 0.0, list(range(workers)), dict.fromkeys(range(workers))
    scheduler = CriticalPathScheduler(tree, workers, clock=lambda: now)
    events: list[tuple[float, int, int, Stage]] = []
    memory: dict[int, Stage | None] = dict(last)
    while len(tree):
        for worker in list(free):
            if (stage := scheduler.pick(worker, memory[worker])) is not None:
                tree.start(stage)
                free.remove(worker)
                heapq.heappush(events, (now + stage.cost, stage.serial, worker, stage))
        now, _, worker, stage = heapq.heappop(events)
        tree.finish(stage, checkpoint=True)
        free.append(worker)
        memory[worker] = stage
    return now


# --- studies ---


def _study(name: str, alone: bool, result: Simulation) -> Iterator[Cell]:
    run, workers = result.stage_based, result.workers
    gap, possible = run.makespan / run.lower_bound, run.tighter_bound / run.lower_bound
    where = f"{name}/{workers} workers/{run.stages} stages"
    if run.stages >= 10 * workers:
        cell = at_most(4, f"simulated makespan over max(critical path, work/workers)/{where}", [gap], 1.05, "ratio")
        note = f"no schedule is below {possible:.4g}, the tighter bound" if possible > 1.05 else None
        yield dataclasses.replace(cell, note=note)
    else:
        yield _reported(f"simulated makespan over max(critical path, work/workers)/{where}", gap, "ratio")
    yield _reported(f"simulated makespan over the tighter bound/{where}", run.makespan / run.tighter_bound, "ratio")
    yield _reported(
        f"simulated makespan over the tighter bound/{name}/trial-based",
        result.trial_based.makespan / result.trial_based.tighter_bound,
        "ratio",
    )
    kind = "single" if alone else "several"
    paper = {what: f"paper, up to: {figures[kind]}" for what, figures in tuner_studies.PAPER.items()}
    yield at_least(4, f"simulated merge rate/{name}", [result.merge_rate], 1.0, "ratio")
    yield _reported(f"simulated GPU-hours saved/{name}", result.gpu_hours_saved, "ratio", paper["gpu_hours"])
    yield _reported(f"simulated speedup/{name}", result.speedup, "ratio", paper["time"])


def _reported(cell: str, value: float, unit: str, note: str = "") -> Cell:
    """A cell without a limit."""
    return Cell(4, cell, value, None, unit, holds=True, note=note or "reported")


# --- what a request costs ---


def _paths(trials: int, shared: bool, seed: int) -> Iterator[Path]:
    draw = random.Random(seed)
    for _ in range(trials):
        rates = [draw.choice((0.1, 0.01, 0.001)) if shared else draw.random() for _ in range(_SEGMENTS)]
        pieces = itertools.groupby(enumerate(rates), key=lambda pair: pair[1])
        groups = [(rate, [4 * i for i, _ in group]) for rate, group in pieces]
        yield tuple(Segment(at[0], at[-1] + 4, (("batch", 128), ("lr", rate))) for rate, at in groups)


def _requests(trials: int, shared: bool, workers: int, seed: int) -> tuple[float, float, float]:
    """Mean milliseconds to add a request, to choose a stage, and to choose, start and finish it."""
    paths = list(_paths(trials, shared, seed))
    tree = StageTree(lambda config, epochs: 2.0 * epochs)
    scheduler = CriticalPathScheduler(tree, workers)
    gc.collect()
    start = time.perf_counter()
    for number, path in enumerate(paths):
        tree.add(number, path)
    added = time.perf_counter() - start
    chosen, steps = 0.0, min(trials, len(tree) - 20)
    last: dict[int, Stage | None] = dict.fromkeys(range(workers))
    start = time.perf_counter()
    for step in range(steps):
        worker = step % workers
        before = time.perf_counter()
        stage = scheduler.pick(worker, last[worker])
        chosen += time.perf_counter() - before
        assert stage is not None
        tree.start(stage)
        tree.finish(stage, checkpoint=True)
        last[worker] = stage
    return 1e3 * added / trials, 1e3 * chosen / steps, 1e3 * (time.perf_counter() - start) / steps


def main(argv: list[str]) -> int:
    """Prints every cell."""
    del argv
    held = True
    for line in itertools.chain(bar_4(_SMOKE.value), bar_5_scheduler(_SMOKE.value)):
        harness.emit(line)
        held = held and line["holds"] is not False
    return 0 if held else 1


if __name__ == "__main__":
    app.run(main)

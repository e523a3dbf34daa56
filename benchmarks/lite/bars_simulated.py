"""Bars 4 and 5: scheduling on simulated phones, and what a decision takes.

All times but those of decisions are simulated, on tables built from published figures (`tf_ext/lite/data/phones.json`). The
policies, the queue and the planner are those of the engine. The policy was tuned on seeds 0-999; 1000-1999 are reported.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import statistics
from collections.abc import Iterable, Iterator

import numpy as np

from benchmarks.ledger import Cell, Task, at_least, at_most
from benchmarks.lite import comparison, exact
from tf_ext.lite import _fluid, phones, simulator, workloads
from tf_ext.lite.simulator import Job, Workload

SEEDS = range(1000, 2000)
PAPER_SPEEDUP = "paper, over TFLite, single app with several DNNs, up to: 5.04"
PAPER_SATISFACTION = "paper, over TFLite, several apps, up to: 3.76"

_EXACT = 200
_SATURATED = 40
_SATURATED_JOBS = 400
_QUEUED = 32
_DECISION_US = 20.0
_SLO_US = 2_000_000


def simulated() -> Iterator[Task]:
    """Yields bar 4."""
    cells = tuple(name for measure in comparison.MEASURES for name in _comparison_cells(measure))
    yield Task(4, (*cells, _SPEEDUP, _SATISFACTION), _compare)
    yield Task(4, (_exact("makespan"), _exact("mean latency")), _against_exact)
    yield Task(4, (_THROUGHPUT,), _throughput)


def decisions() -> Iterator[Task]:
    """Yields the part of bar 5 that needs no engine."""
    for policy in simulator.policies():
        yield Task(5, (_decision(policy),), functools.partial(_decide, policy))


# --- against the policies of the paper ---

_SPEEDUP = "simulated mean latency of a model fixed to a processor over ours, mean"
_SATISFACTION = "simulated requests within their SLO, ours over those of models fixed to processors"


def _comparison_cells(measure: str) -> tuple[str, str]:
    return (
        f"simulated {measure}, ours and the best paper policy's, mean",
        f"simulated {measure}, share of workloads worse by > 2 %",
    )


def _compare(smoke: bool) -> Iterator[Cell]:
    table = comparison.rows(SEEDS[:16] if smoke else SEEDS)
    for measure in comparison.MEASURES:
        better, worse = _comparison_cells(measure)
        ours, best = comparison.on_average(table, measure)
        unit = "share of jobs" if measure == "misses" else "ratio"
        note = "; ".join(_by_kind(table, measure))
        cell = at_most(4, better, [ours], best, unit)
        yield dataclasses.replace(cell, holds=ours < best, runs=len(table), note=note)
        share = at_most(4, worse, [comparison.share_worse(table, measure)], 0.05, "share")
        yield dataclasses.replace(share, runs=len(table))
    ratios = [row.measured["fixed"]["mean latency"] / row.measured["adaptive"]["mean latency"] for row in table]
    yield _reported(_SPEEDUP, statistics.mean(ratios), len(table), PAPER_SPEEDUP)
    within = {p: sum(row.jobs - row.measured[p]["misses"] for row in table) for p in ("adaptive", "fixed")}
    yield _reported(_SATISFACTION, within["adaptive"] / within["fixed"], len(table), PAPER_SATISFACTION)


def _by_kind(table: list[comparison.Row], measure: str) -> Iterator[str]:
    for kind in workloads.KINDS:
        rows = [row for row in table if row.workload.startswith(kind)]
        ours, best = comparison.on_average(rows, measure)
        yield f"{kind} {ours:.3f} ({best:.3f}), worse {comparison.share_worse(rows, measure):.3f}"


def _reported(cell: str, value: float, runs: int, note: str) -> Cell:
    """A cell without a limit."""
    return Cell(4, cell, value, None, "ratio", runs, holds=True, note=note)


# --- against what is possible ---

_THROUGHPUT = f"simulated throughput of {_SATURATED_JOBS} requests at once over the fluid bound, mean"


def _exact(measure: str) -> str:
    return f"simulated {measure} over the exact optimum, mean (<= 8 jobs at once, 3 processors)"


def few_at_once(seed: int) -> Workload:
    """Returns up to 8 requests of whole models, or up to 5 of models that can be split, at once on three processors."""
    rng = random.Random(f"few {seed}")
    phone = rng.choice(list(phones.phones().values()))
    chosen = rng.sample(phone.processors[1:], 2)
    part = phones.Phone(phone.name, (phone.processors[0], *sorted(chosen, key=phone.processors.index)))
    split = seed % 2 == 1
    names = [n.name for n in phones.networks().values() if n.macs < 3000 and len(n.units) <= (3 if split else 1)]
    models = tuple(part.model(phones.networks()[name]) for name in rng.sample(names, rng.randint(1, 4)))
    jobs = tuple(Job(rng.randrange(len(models)), 0) for _ in range(rng.randint(2, 5 if split else 8)))
    return Workload(f"few/{phone.name}/{seed}", models, jobs, 3)


def _against_exact(smoke: bool) -> Iterator[Cell]:
    makespans, latencies = [], []
    for seed in range(4 if smoke else _EXACT):
        workload = few_at_once(seed)
        optimum = (exact.of_split if seed % 2 else exact.of_whole)(workload)
        result = simulator.simulate(workload)
        makespans.append(result.makespan_us / optimum.makespan)
        latencies.append(result.mean_latency_us / optimum.mean_latency)
    for measure, ratios in (("makespan", makespans), ("mean latency", latencies)):
        cell = at_most(4, _exact(measure), [statistics.mean(ratios)], 1.05, "ratio")
        yield dataclasses.replace(
            cell, runs=len(ratios), note=f"whole {_mean(ratios[::2])}, split {_mean(ratios[1::2])}"
        )


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f}"


def _throughput(smoke: bool) -> Iterator[Cell]:
    ratios = []
    for seed in SEEDS[: 2 if smoke else _SATURATED]:
        drawn = workloads.draw(seed)
        rng = random.Random(seed)
        jobs = tuple(Job(rng.randrange(len(drawn.models)), 0) for _ in range(_SATURATED_JOBS))
        shares = [sum(job.model == model for job in jobs) / len(jobs) for model in range(len(drawn.models))]
        bound = _fluid.bound_us(drawn.models, shares, drawn.workers) * len(jobs)
        ratios.append(bound / simulator.simulate(dataclasses.replace(drawn, jobs=jobs)).makespan_us)
    cell = at_least(4, _THROUGHPUT, [statistics.mean(ratios)], 0.9, "ratio")
    yield dataclasses.replace(cell, runs=len(ratios), note=f"least {min(ratios):.4f}")


# --- what a decision takes ---


def _decision(policy: str) -> str:
    return f"decision of {policy}, {_QUEUED} jobs queued, 4 processors"


def queued(names: Iterable[str], requests: int, policy: str, slo_us: int | None) -> Workload:
    """Returns requests that come about as fast as the policy gets them done, behind 32 that are there at the start."""
    phone = phones.phones()["pixel_4"]
    models = tuple(phone.model(phones.networks()[name]) for name in names)
    rng = random.Random(1)
    drawn = [rng.randrange(len(models)) for _ in range(requests)]
    arrivals = [0] * requests
    for _ in range(4):
        jobs = tuple(Job(model, time, slo_us) for model, time in zip(drawn, arrivals, strict=True))
        workload = Workload("queued", models, jobs, len(phone.processors))
        ends = sorted(int(end) for end in simulator.simulate(workload, policy).end_us)
        arrivals = [0] * _QUEUED + ends[: requests - _QUEUED]
    return workload


def mean_queue(result: simulator.Result) -> float:
    """Returns how many requests waited or ran, on average over the time until half of them were done."""
    half = float(np.median(result.end_us))
    arrivals = np.minimum([job.arrival_us for job in result.workload.jobs], half)
    return float((np.minimum(result.end_us, half) - arrivals).sum() / half)


def _decide(policy: str, smoke: bool) -> Iterator[Cell]:
    times, depths = [], []
    for names in (
        ("mobilenet_v1", "mobilenet_v2", "squeezenet", "hand_landmark"),
        ("face_detection", "face_landmark", "iris", "hand_landmark", "pose_landmark", "selfie_segmentation"),
        ("nasnet_mobile", "pose_landmark", "selfie_segmentation", "palm_detection", "mobilenet_v2", "iris"),
    ):
        for slo_us in (None, _SLO_US):
            workload = queued(names, 100 if smoke else 1000, policy, slo_us)
            results = [simulator.simulate(workload, policy) for _ in range(1 if smoke else 5)]
            times.append(min(result.decide_us for result in results))
            depths.append(mean_queue(results[0]))
    cell = at_most(5, _decision(policy), [max(times)], _DECISION_US, "us")
    note = (
        "processor time; the slowest of three mixes, each without and with SLOs: "
        + ", ".join(f"{time:.1f}" for time in times)
        + "; requests there, on average: "
        + ", ".join(f"{depth:.0f}" for depth in depths)
    )
    yield dataclasses.replace(cell, runs=len(times), note=note, holds=True if smoke else cell.holds)

"""Simulated workloads: how a policy compares, workload by workload, with the best of the paper's for that workload.

The rule was fixed, as the workloads were, before any policy was tuned:

- makespan and mean latency are those of the workload without service-level objectives, where no job is dropped; misses are
  counted with them;
- for each workload and each of the three measures, the best paper policy is the one that does best in that measure there;
- better on average: the mean over the workloads of ours over the best, for makespan and mean latency, is below 1, and the
  mean share of jobs that miss is below that of the best;
- worse: ours is more than 1.02 times the best. Of misses, one more is worse where the best has fewer than fifty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from tf_ext.lite import simulator, workloads

PAPER = ("fixed", "round_robin", "shortest_expected_latency", "heft", "heft_reserved", "least_slack")
MEASURES = ("makespan", "mean latency", "misses")
WORSE = 1.02

Measured = Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Row:
    """One workload: each policy's measures."""

    workload: str
    jobs: int
    measured: Mapping[str, Measured]

    def best(self, measure: str) -> float:
        """The best paper policy's value."""
        return min(self.measured[policy][measure] for policy in PAPER)


def measure(workload: simulator.Workload, policy: str) -> Measured:
    """Simulates a workload with and without its service-level objectives; microseconds and jobs."""
    plain = simulator.simulate(workload.without_slos(), policy)
    with_slos = simulator.simulate(workload, policy)
    return {"makespan": plain.makespan_us, "mean latency": plain.mean_latency_us, "misses": with_slos.misses}


def rows(seeds: Iterable[int], policy: str = "adaptive") -> list[Row]:
    """Measures the paper's policies and `policy` on the workloads of some seeds."""
    result = []
    for seed in seeds:
        workload = workloads.draw(seed)
        measured = {name: measure(workload, name) for name in (*PAPER, policy)}
        result.append(Row(workload.name, len(workload.jobs), measured))
    return result


def on_average(table: list[Row], measure: str, policy: str = "adaptive") -> tuple[float, float]:
    """Returns what is to be compared of `policy` and of the best paper policy of each workload."""
    if measure == "misses":
        ours = sum(row.measured[policy][measure] / row.jobs for row in table) / len(table)
        return ours, sum(row.best(measure) / row.jobs for row in table) / len(table)
    return sum(row.measured[policy][measure] / row.best(measure) for row in table) / len(table), 1.0


def share_worse(table: list[Row], measure: str, policy: str = "adaptive") -> float:
    """Returns the share of the workloads where `policy` is worse than the best paper policy by more than 2 %."""
    return sum(row.measured[policy][measure] > WORSE * row.best(measure) for row in table) / len(table)

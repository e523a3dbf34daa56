"""Simulates what a study would take, trial by trial and stage by stage, without any training.

    study = StudyDefinition("grid", [({"lr": Sequence.parse(f"0.1@0|{lr}@60")}, 90) for lr in (0.01, 0.02, 0.05)])
    result = simulate(study, workers=2, stage_cost=lambda config, epochs: 30.0 * epochs)
    print(result.explain())

All times are simulated: a clock jumps from the end of one stage to the end of the next, and stages take what `stage_cost`
says. Scores are synthetic. The tree and the scheduler are those that train for real.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from tf_ext.tuner import _bounds, _simulation
from tf_ext.tuner._simulation import Execution
from tf_ext.tuner._study import StudyDefinition, synthetic_score
from tf_ext.tuner.scheduler import CriticalPathScheduler
from tf_ext.tuner.segments import Config

__all__ = ["Execution", "Simulation", "StudyDefinition", "simulate", "synthetic_score"]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The simulated execution of studies, in both ways.

    Attributes:
        workers: How many there were.
        trial_based: Every trial trains alone, from its own checkpoints.
        stage_based: Every common prefix is trained once.
    """

    workers: int
    trial_based: Execution
    stage_based: Execution

    @property
    def merge_rate(self) -> float:
        """Epochs that trial-based execution runs over those that stage-based execution runs."""
        return self.trial_based.epochs / self.stage_based.epochs

    @property
    def gpu_hours_saved(self) -> float:
        """Worker hours of trial-based over those of stage-based execution."""
        return self.trial_based.gpu_hours / self.stage_based.gpu_hours

    @property
    def speedup(self) -> float:
        """Makespan of trial-based over that of stage-based execution."""
        return self.trial_based.makespan / self.stage_based.makespan

    def explain(self) -> str:
        """Says in a few lines what was simulated and what came out."""
        lines = [
            f"simulated on {self.workers} workers: merge rate {self.merge_rate:.2f}, "
            f"{self.gpu_hours_saved:.2f}x fewer GPU-hours, {self.speedup:.2f}x shorter"
        ]
        for name, run in (("trial-based", self.trial_based), ("stage-based", self.stage_based)):
            lines.append(
                f"simulated {name}: {run.makespan / 3600:.2f} h (at least {run.lower_bound / 3600:.2f} h), "
                f"{run.gpu_hours:.1f} GPU-hours, {run.epochs} epochs in {run.stages} stages, {run.switches} switches"
            )
        if self.merge_rate < 1.05:
            lines.append(
                "The trials have next to nothing in common: stage trees do not help with this simulated study."
            )
        return "\n".join(lines)


def simulate(
    study: StudyDefinition | Iterable[StudyDefinition],
    workers: int,
    stage_cost: Callable[[Config, int], float],
    scheduler: _simulation.MakeScheduler = CriticalPathScheduler,
) -> Simulation:
    """Simulates studies that run at the same time on the same workers, trial-based and stage-based.

    Args:
        study: One study, or several of one model, which share stages with each other.
        workers: How many workers there are, all alike.
        stage_cost: Takes a config and a number of epochs; returns the seconds that a stage of them takes.
        scheduler: Makes the scheduler of both executions.

    Returns:
        Makespans, GPU-hours, the merge rate and lower bounds.

    Raises:
        ValueError: There is no study or no worker, or a cost is not above 0.

    Example:
        >>> simulate(StudyDefinition("s", [({"lr": 0.1}, 9)]), 1, lambda config, epochs: 60.0 * epochs).merge_rate
        1.0
    """
    studies = [study] if isinstance(study, StudyDefinition) else list(study)
    if not studies:
        raise ValueError("expected at least one study, got none.")

    def cost(config: Config, epochs: int) -> float:
        seconds = stage_cost(config, epochs)
        if not seconds > 0:
            raise ValueError(f"expected a cost above 0 s for {epochs} epochs of {config}, got {seconds!r}.")
        return seconds

    alone = _simulation.Driver(studies, workers, cost, scheduler, share=False)
    alone.run()
    shared = _simulation.Driver(studies, workers, cost, scheduler, share=True, replay=alone.decisions)
    shared.run()
    return Simulation(workers, _execution(alone), _execution(shared))


def _execution(driver: _simulation.Driver) -> Execution:
    parts = [_bounds.Jobs.of(stages) for stages in driver.phases()]
    simple = sum(_bounds.simple(jobs, driver.workers) for jobs in parts)
    tighter = sum(_bounds.tighter(jobs, driver.workers) for jobs in parts)
    return dataclasses.replace(driver.result(), lower_bound=simple, tighter_bound=tighter)

"""Plans for the tests: what a tuner would have written, made through the plan's own functions."""

import dataclasses
import itertools
import pathlib

from tf_ext.tuner.plan import Plan, Run, TrialRecord
from tf_ext.tuner.segments import Sequence, path_of

STEPS_PER_EPOCH = 10
SECONDS_PER_EPOCH = 0.5


def loss(epoch: int, rate: float) -> float:
    return round(1.0 / (1 + epoch) + rate, 4)


def train(plan: Plan, node: int, start: int, end: int, rate: float, *, stopped: bool = False) -> None:
    history = [{"loss": loss(e, rate) / 2, "val_loss": loss(e, rate)} for e in range(start, end)]
    steps = STEPS_PER_EPOCH * (end - start)
    plan.record(Run(node, start, end, history, steps, SECONDS_PER_EPOCH * (end - start), stopped))


def ask(
    plan: Plan, study: int, context: int, trial: str, values: dict, epochs: int, status: str, **more
) -> TrialRecord:
    sequences = {n: Sequence.parse(v) if Sequence.is_text(v) else v for n, v in values.items()}
    spans = plan.nodes(context, path_of(sequences, epochs))
    record = TrialRecord(trial, 0, values, context, spans[-1].node, epochs, status, **more)
    plan.put_trial(study, record)
    return record


def digits(directory: pathlib.Path) -> pathlib.Path:
    """Four trials of six epochs: three share two or four epochs, one failed, one waits.

    Executed: 0-2 and 2-4 and 4-6 of node 1, 2-6 of node 2: 10 epochs. Requested: 6 + 6 + 4 (of the one that waits).
    """
    with Plan(directory) as plan:
        context = plan.context("digits", {"model": "cnn"})
        study = plan.study("digits", "val_loss", "min", {})
        ask(plan, study, context, "0", {"lr": 0.1, "units": 8}, 6, "COMPLETED", score=0.2667, best_epoch=5)
        ask(plan, study, context, "1", {"lr": "0.1@0|0.01@2", "units": 8}, 6, "COMPLETED", score=0.1767, best_epoch=5)
        ask(plan, study, context, "2", {"lr": "0.1@0|0.02@4", "units": 8}, 6, "RUNNING")
        ask(plan, study, context, "3", {"lr": 0.1, "units": 99}, 6, "FAILED", message="out of <memory>")
        train(plan, 1, 0, 4, 0.1)
        train(plan, 1, 4, 6, 0.1)
        train(plan, 2, 2, 6, 0.01)
        plan.record(Run(1, 0, 2, [{}, {}], 20, 1.0), again=True)
        plan.add_checkpoint(1, 2, "a", 1000)
    return directory


def grid(directory: pathlib.Path, rates: int, changes: int, epochs: int = 20) -> pathlib.Path:
    """A grid of learning rates that fall once, fully trained: each rate is a trunk that the changes leave."""
    with Plan(directory) as plan, plan.transaction():
        context = plan.context("grid", {})
        study = plan.study("grid", "val_loss", "min", {})
        for number, (r, c) in enumerate(itertools.product(range(rates), range(1, changes + 1))):
            rate, at = 0.5 / (r + 1), 1 + c % (epochs - 1)
            values = {"lr": f"{rate}@0|{rate / (10 + c)}@{at}"}
            record = ask(plan, study, context, f"{number:06d}", values, epochs, "COMPLETED", score=rate, best_epoch=at)
            train(plan, record.leaf, at, epochs, rate)
            trunk = plan.nodes(context, path_of({"lr": rate}, 1))[0].node
            if c == 1:
                train(plan, trunk, 0, epochs, rate)
    return directory


def replace_trial(plan: Plan, study: int, record: TrialRecord, **changes) -> None:
    plan.put_trial(study, dataclasses.replace(record, **changes))

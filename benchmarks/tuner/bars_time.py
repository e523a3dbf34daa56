"""Bar 3: what merging saves of the time of the example, against Keras Tuner with one model, too."""

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Iterable

from benchmarks.ledger import Cell, Task, at_least, at_most
from benchmarks.tuner.peers import OURS, PEERS, REBUILDING, REUSING
from examples.digits_schedule import data as datasets
from examples.digits_schedule.searching import Outcome
from examples.digits_schedule.study import Study

_EPOCHS, _ROUNDS = 24, 3
_SMOKE_EPOCHS, _SMOKE_COUNT = 6, 128
_CELLS = (
    "example/trials whose scores differ",
    "example/merge rate",
    "example/training time of the one-model peer over ours, over the merge rate",
    "example/total time of the one-model peer over ours",
    "example/total time of the rebuilding peer over ours",
)


def example() -> Iterable[Task]:
    """Yields bar 3."""
    yield Task(3, _CELLS, _measure)


def _measure(smoke: bool) -> list[Cell]:
    study, data = Study(_SMOKE_EPOCHS if smoke else _EPOCHS), datasets.load()
    if smoke:
        data = dataclasses.replace(data, x=data.x[:_SMOKE_COUNT], y=data.y[:_SMOKE_COUNT])
    rounds = [_round(study, data, (OURS, REUSING)) for _ in range(1 if smoke else _ROUNDS)]
    # The peer that builds each model anew takes minutes, and is reported only.
    rebuilt = None if smoke else _round(study, data, (REBUILDING,))[REBUILDING]
    outcomes = [outcome for found in rounds for outcome in found.values()] + ([rebuilt] if rebuilt else [])
    wrong = sum(outcome.scores != rounds[0][OURS].scores for outcome in outcomes)
    rates = [found[REUSING].clock.steps / found[OURS].clock.steps for found in rounds]
    saved = [
        found[REUSING].clock.seconds / found[OURS].clock.seconds / rate
        for found, rate in zip(rounds, rates, strict=True)
    ]
    total = [found[REUSING].total / found[OURS].total for found in rounds]
    ours = statistics.median(found[OURS].total for found in rounds)
    cells = [
        at_most(3, _CELLS[0], [wrong], 0, "searches"),
        _reported(at_least(3, _CELLS[1], rates, 1.0, "x")),
        at_least(3, _CELLS[2], saved, 0.9, "x"),
        _reported(at_least(3, _CELLS[3], total, 0.0, "x")),
        _reported(at_least(3, _CELLS[4], [rebuilt.total / ours if rebuilt else 0.0], 0.0, "x")),
    ]
    return [dataclasses.replace(cell, holds=True) for cell in cells[1:]] + cells[:1] if smoke else cells


def _reported(cell: Cell) -> Cell:
    return dataclasses.replace(cell, note="reported")


def _round(study: Study, data: datasets.Data, names: tuple[str, ...]) -> dict[str, Outcome]:
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = PEERS[name](study, data, pathlib.Path(directory))
    return found

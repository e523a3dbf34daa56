"""How many epochs fit into a time, told by training one model for a moment."""

from __future__ import annotations

import time

from examples.digits_schedule.data import Data
from examples.digits_schedule.study import PARTS, network
from tf_ext import tuner

# Epochs that the trials of the grid have together, and its stages, over those of one trial.
_REQUESTED, _DISTINCT = 12, 31 / 6
# Calls of `fit`: three or four for each trial, and one for each stage.
_CALLS = 12 * 3 + 29
_MOST = 8 * PARTS
_RESERVE_S = 6.0  # what neither a call nor an epoch costs: building, tracing, the plan, the report, leaving


def epochs_within(seconds: float, data: Data) -> int:
    """The epochs of a trial, a multiple of 6, such that both searches take about `seconds`; 6 if none does."""
    start = time.monotonic()
    batches = tuner.data.epochs(data.x, data.y, batch_size=64)
    model = network(0.1)

    def train(epochs: int) -> float:
        begin = time.monotonic()
        steps = batches.steps()
        model.fit(batches.dataset(0, count=epochs), steps_per_epoch=steps, epochs=epochs, shuffle=False, verbose=0)
        return time.monotonic() - begin

    train(1)  # traces
    one, three = train(1), train(3)
    epoch = max(0.01, (three - one) / 2)
    call = max(0.0, one - epoch)
    left = seconds - (time.monotonic() - start) - _RESERVE_S - _CALLS * call
    parts = int(left / (epoch * (_REQUESTED + _DISTINCT) * PARTS))
    return PARTS * max(1, min(parts, _MOST // PARTS))

"""Trains a path from beginning to end by itself, sharing nothing and leaving nothing behind."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile

from tf_ext.checkpoint.cache import StateCache
from tf_ext.checkpoint.keras import State
from tf_ext.checkpoint.store import Store
from tf_ext.tuner._engine import EXECUTION, plain
from tf_ext.tuner._job import Job, StageTask
from tf_ext.tuner._stage_runner import StageRunner
from tf_ext.tuner.segments import Path

__all__ = ["Alone", "train_alone"]

_BEST = "best"


@dataclasses.dataclass(frozen=True)
class Alone:
    """What came of it.

    Attributes:
        history: The metrics of each epoch.
        best: Weights of the best epoch of the last segment.
    """

    history: list[dict[str, float]]
    best: State


def train_alone(job: Job, path: Path) -> Alone:
    """Trains a path.

    Args:
        job: How.
        path: Its segments, with which execution it is.

    Raises:
        Exception: What the build function, `fit` or a callback raised.
    """
    history: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        states = StateCache(Store(pathlib.Path(directory)))
        runner = StageRunner(job, states)
        before = state = None
        for position, segment in enumerate(path):
            task = StageTask(
                node=0,
                start=segment.start,
                end=segment.end,
                config=plain(segment.config),
                before=before,
                state=state,
                execution=int(dict(segment.config).get(EXECUTION, 0)),
                keep=f"state-{position}",
                keep_best=_BEST,
            )
            result = runner.run(task)
            history += result.history
            if result.stopped:
                break
            before, state = task.config, task.keep
        return Alone(history, states.get(_BEST))

"""What runs a frame of several models: plain LiteRT in three ways.

A frame is one run of each model. `frame` runs one and returns when it has ended; `serve` runs frames as they arrive, and
returns when each ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.lite.models import Array, Loaded, interpreter

Times = npt.NDArray[np.float64]
"""Seconds of `time.perf_counter`, one per frame."""


class Runner(Protocol):
    """An implementation, made ready for some models."""

    def frame(self) -> list[list[Array]]:
        """Runs one frame; returns the outputs of each model."""

    def serve(self, arrivals: Times) -> Times:
        """Runs a frame at each arrival; returns when each ended."""

    def close(self) -> None:
        """Ends threads."""


def wait_until(moment: float) -> None:
    """Sleeps, and spins over the last bit: a timer's grain would count as latency."""
    while (left := moment - time.perf_counter()) > 0:
        if left > 2e-4:
            time.sleep(left - 1e-4)


class _Plain:
    """One model in one interpreter."""

    def __init__(self, model: Loaded, threads: int) -> None:
        self._interpreter = interpreter(model.file, threads)
        for detail, value in zip(self._interpreter.get_input_details(), model.inputs, strict=True):
            self._interpreter.set_tensor(detail["index"], value)
        self._outputs = [detail["index"] for detail in self._interpreter.get_output_details()]

    def run(self) -> None:
        self._interpreter.invoke()

    def outputs(self) -> list[Array]:
        return [self._interpreter.get_tensor(index) for index in self._outputs]


class Sequential:
    """One interpreter after another.

    Args:
        models: What to run.
        threads: Of each interpreter.
    """

    def __init__(self, models: Sequence[Loaded], threads: int = 1) -> None:
        self._models = [_Plain(model, threads) for model in models]

    def frame(self) -> list[list[Array]]:
        """See `Runner`."""
        for model in self._models:
            model.run()
        return [model.outputs() for model in self._models]

    def serve(self, arrivals: Times) -> Times:
        """See `Runner`."""
        ends = np.empty_like(arrivals)
        for i, arrival in enumerate(arrivals):
            wait_until(arrival)
            for model in self._models:
                model.run()
            ends[i] = time.perf_counter()
        return ends

    def close(self) -> None:
        """See `Runner`."""


class Threads:
    """One interpreter a thread, all at once."""

    def __init__(self, models: Sequence[Loaded]) -> None:
        self._models = [_Plain(model, 1) for model in models]
        self._start = threading.Barrier(len(models) + 1)
        self._end = threading.Barrier(len(models) + 1)
        self._job: Callable[[int], None] | None = None
        self._threads = [threading.Thread(target=self._loop, args=(i,), daemon=True) for i in range(len(models))]
        for thread in self._threads:
            thread.start()

    def _loop(self, index: int) -> None:
        while True:
            self._start.wait()
            if self._job is None:
                return
            self._job(index)
            self._end.wait()

    def _all(self, job: Callable[[int], None]) -> None:
        self._job = job
        self._start.wait()
        self._end.wait()

    def frame(self) -> list[list[Array]]:
        """See `Runner`."""
        self._all(lambda i: self._models[i].run())
        return [model.outputs() for model in self._models]

    def serve(self, arrivals: Times) -> Times:
        """See `Runner`."""
        ends = np.empty([len(self._models), len(arrivals)])

        def job(index: int) -> None:
            for i, arrival in enumerate(arrivals):
                wait_until(arrival)
                self._models[index].run()
                ends[index, i] = time.perf_counter()

        self._all(job)
        latest: Times = ends.max(axis=0)
        return latest

    def close(self) -> None:
        """See `Runner`."""
        self._job = None
        self._start.wait()
        for thread in self._threads:
            thread.join()


PEERS: dict[str, Callable[[Sequence[Loaded]], Any]] = {
    "sequential": Sequential,
    "threads": Threads,
    "two_threads": lambda models: Sequential(models, threads=2),
}

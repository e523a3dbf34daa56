"""Ours: the models as bundles in one engine, a worker on each of two cores."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness import UnavailableError
from benchmarks.lite.models import Array, Loaded, bundles
from benchmarks.lite.peers import Times, wait_until


def cores() -> list[int]:
    """Returns two cores that this process may use.

    Raises:
        UnavailableError: There is only one.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise UnavailableError("two cores are needed")
    return allowed[:2]


class Coordinated:
    """All models in one engine."""

    def __init__(self, models: Sequence[Loaded], folder: pathlib.Path, **options: Any) -> None:
        from tf_ext import lite

        first, second = cores()
        options.setdefault("workers", f"cpu@{first},cpu@{second}")
        self.engine = lite.Engine(**options)
        self._models = [self.engine.add(bundle) for bundle in bundles(models, folder)]
        self._inputs = [list(model.inputs) for model in models]
        for model in self._models:
            self.engine.warm_up(model)

    def _submit(self) -> list[Any]:
        pairs = zip(self._models, self._inputs, strict=True)
        return [self.engine.request_async(model, inputs) for model, inputs in pairs]

    def frame(self) -> list[list[Array]]:
        """See `peers.Runner`."""
        return [list(request.result(timeout=60).values()) for request in self._submit()]

    def serve(self, arrivals: Times) -> Times:
        """See `peers.Runner`."""
        ends = np.empty_like(arrivals)
        frames: list[list[Any]] = []
        some = threading.Semaphore(0)

        def collect() -> None:
            # In order: a frame that overtakes another counts as ended when that one has, to our disadvantage.
            for i in range(len(arrivals)):
                some.acquire()
                for request in frames[i]:
                    request.result(timeout=60)
                ends[i] = time.perf_counter()
                frames[i] = []

        collector = threading.Thread(target=collect)
        collector.start()
        for arrival in arrivals:
            wait_until(arrival)
            frames.append(self._submit())
            some.release()
        collector.join()
        return ends

    def close(self) -> None:
        """See `peers.Runner`."""
        self.engine.close()

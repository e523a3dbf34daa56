"""What an app asks for: which models, how often, and within which time; and running it on an engine.

A load is a JSON file:

    {
      "seconds": 10,
      "workers": "cpu@0,cpu@1",
      "policy": "adaptive",
      "models": [
        {"bundle": "face_landmark.tfxlite", "period_ms": 33.3, "slo_ms": 33.3, "priority": 1},
        {"model": "pose_landmark_lite.tflite", "stream": 2, "slo_ms": 100}
      ]
    }

A model with a period is asked for at fixed times, whether the engine keeps up or not; a stream has always so many requests
under way. Of a ``model`` the bundle is made first. Paths are relative to the file.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import pathlib
import tempfile
import threading
import time
from typing import Any

import numpy as np

from tf_ext.lite import _arrays, _runners, errors, simulator
from tf_ext.lite.bundle import Bundle, make_bundle
from tf_ext.lite.engine import Engine, LoadedModel, Request
from tf_ext.lite.plan import Plan, TensorInfo

__all__ = ["Load", "Outcome", "Source", "run"]

_MOST_UNDER_WAY = 64
_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Source:
    """Requests to one model.

    Attributes:
        path: a bundle, or a ``.tflite`` file.
        name: what to call it.
        period: seconds from one request to the next; None: a stream.
        stream: how many requests are always under way, where there is no period.
        slo: service-level objective in seconds from when a request is due, or None.
        priority: the larger, the sooner.
    """

    path: pathlib.Path
    name: str
    period: float | None
    stream: int = 1
    slo: float | None = None
    priority: int = 0

    def times(self, seconds: float) -> list[float]:
        """Returns when requests are due, in seconds from the start.

        Args:
            seconds: how long.

        Raises:
            InvalidArgumentError: it is a stream, whose requests come at no fixed times.
        """
        if self.period is None:
            raise errors.InvalidArgumentError(f"{self.name} is a stream, which has no fixed times; give it a period")
        # 0.4 s of 20 ms are 20 requests, whatever floating point makes of it.
        return [index * self.period for index in range(math.ceil(seconds / self.period - 1e-6))]


@dataclasses.dataclass(frozen=True)
class Load:
    """What an app asks for.

    Attributes:
        sources: the models.
        seconds: how long.
        workers: see `Engine`; None: as it chooses.
        policy: see `Engine`.
    """

    sources: tuple[Source, ...]
    seconds: float = 10.0
    workers: str | None = None
    policy: str = "adaptive"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Load:
        """Reads a file.

        Raises:
            NotFoundError: there is no such file.
            InvalidArgumentError: it cannot be understood.
        """
        file = pathlib.Path(path)
        try:
            raw = json.loads(file.read_text())
        except OSError as error:
            raise errors.NotFoundError(f"{file} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise errors.InvalidArgumentError(f"{file} is no JSON: {error}") from error
        _known(raw, {"seconds", "workers", "policy", "models"}, str(file))
        if not isinstance(raw.get("models"), list) or not raw["models"]:
            raise errors.InvalidArgumentError(f"{file}: expected a list of models under 'models'")
        sources = tuple(_source(one, f"{file}: models[{i}]", file.parent) for i, one in enumerate(raw["models"]))
        seconds = _number(raw, "seconds", str(file)) or cls.seconds
        return cls(sources, seconds, raw.get("workers"), raw.get("policy", cls.policy))

    def bundles(self, folder: pathlib.Path) -> list[Bundle]:
        """Opens the bundles of all sources; those of ``.tflite`` files are made in a folder first."""
        return [_opened(source.path, folder) for source in self.sources]


@dataclasses.dataclass
class Outcome:
    """What became of the requests to one model.

    Attributes:
        source: the requests.
        sent: how many were sent.
        skipped: how many were not, since too many were under way.
        dropped: how many the engine gave up, because of their objectives.
        failed: how many failed otherwise.
        late: how many ended after their objective.
        latencies: seconds from when a request was due to its end, of those that were done.
    """

    source: Source
    sent: int = 0
    skipped: int = 0
    dropped: int = 0
    failed: int = 0
    late: int = 0
    latencies: list[float] = dataclasses.field(default_factory=list)

    @property
    def misses(self) -> int:
        """How many were not done within their objective."""
        return self.late + self.dropped + self.failed + self.skipped

    def percentile_ms(self, share: float) -> float:
        """Returns a percentile (0 to 100) of the latencies; nan where there are none."""
        return float(np.percentile(self.latencies, share)) * 1e3 if self.latencies else float("nan")

    def add(self, request: Request, due: float) -> None:
        """Waits for a request and counts it."""
        try:
            request.result(_TIMEOUT_S)
        except errors.DeadlineExceededError:
            self.dropped += 1
        except errors.LiteError:
            self.failed += 1
        else:
            self.latencies.append(time.monotonic() - due)
            self.late += self.source.slo is not None and self.latencies[-1] > self.source.slo


def run(load: Load, engine: Engine, models: list[LoadedModel]) -> list[Outcome]:
    """Asks an engine for what a load says, each model in a thread of its own, on inputs of any content.

    Args:
        load: what to ask for.
        engine: whom.
        models: those of the load's sources, in the same order.

    Returns:
        What became of it.
    """
    outcomes = [Outcome(source) for source in load.sources]
    begin = time.monotonic() + 0.05
    threads = [
        threading.Thread(target=_ask, args=(engine, model, outcome, begin, begin + load.seconds), daemon=True)
        for model, outcome in zip(models, outcomes, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def random_inputs(model: LoadedModel) -> list[np.ndarray]:
    """Returns arrays of any content that the engine takes without a copy."""
    found = []
    for index, spec in enumerate(model.inputs):
        size = int(np.prod(spec.shape)) * spec.type.itemsize
        array = _arrays.aligned(spec.shape, spec.type)
        array[...] = _runners.random_inputs([TensorInfo(index, spec.name, spec.type.name, spec.shape, size)])[0]
        found.append(array)
    return found


def processors_of(workers: str) -> list[str]:
    """Returns the processor of each worker: ``"cpu@0,gpu"`` are a ``"cpu"`` and a ``"gpu"``."""
    return [one.partition("@")[0].strip() for one in workers.split(",")]


def simulated(load: Load) -> simulator.Workload:
    """Returns a load for the simulator: what its bundles were measured to take, on workers of their processors.

    Raises:
        InvalidArgumentError: a source is a stream, whose requests come at no fixed times; or there are no workers.
    """
    if load.workers is None:
        raise errors.InvalidArgumentError('tell the workers to simulate, such as "cpu,cpu,gpu"')
    processors = processors_of(load.workers)
    with tempfile.TemporaryDirectory() as folder:
        plans = [bundle.plan for bundle in load.bundles(pathlib.Path(folder))]
    jobs: list[simulator.Job] = []
    for index, source in enumerate(load.sources):
        slo = None if source.slo is None else round(source.slo * 1e6)
        jobs += [simulator.Job(index, round(due * 1e6), slo, source.priority) for due in source.times(load.seconds)]
    models = tuple(_simulated(plan, processors) for plan in plans)
    name = ", ".join(source.name for source in load.sources)
    return simulator.Workload(name, models, tuple(sorted(jobs, key=lambda job: job.arrival_us)), len(processors))


def _simulated(plan: Plan, processors: list[str]) -> simulator.Model:
    pieces = [(piece.units, tuple(piece.latency_us.get(name) for name in processors)) for piece in plan.pieces]
    return simulator.Model(plan.name, len(plan.units), tuple(simulator.Piece(*units, times) for units, times in pieces))


def _ask(engine: Engine, model: LoadedModel, outcome: Outcome, begin: float, end: float) -> None:
    source, inputs = outcome.source, random_inputs(model)
    under_way: collections.deque[tuple[Request, float]] = collections.deque()
    time.sleep(max(0.0, begin - time.monotonic()))
    if source.period is not None:
        for after in source.times(end - begin):
            _wait_until(begin + after, under_way, outcome)
            _send(engine, model, inputs, outcome, under_way, begin + after)
    while source.period is None and time.monotonic() < end:
        while len(under_way) >= source.stream:
            outcome.add(*under_way.popleft())
        _send(engine, model, inputs, outcome, under_way, time.monotonic())
    while under_way:
        outcome.add(*under_way.popleft())


def _wait_until(due: float, under_way: collections.deque[tuple[Request, float]], outcome: Outcome) -> None:
    """Waits for requests until the next one is due, so that the end of each is seen when it comes."""
    while (left := due - time.monotonic()) > 0:
        if not under_way:
            time.sleep(left)
        elif under_way[0][0].ended(left):
            outcome.add(*under_way.popleft())


def _send(
    engine: Engine,
    model: LoadedModel,
    inputs: list[np.ndarray],
    outcome: Outcome,
    under_way: collections.deque[tuple[Request, float]],
    due: float,
) -> None:
    source = outcome.source
    if len(under_way) >= max(_MOST_UNDER_WAY, source.stream):
        outcome.skipped += 1
        return
    left = None if source.slo is None else max(1e-6, due + source.slo - time.monotonic())
    try:
        under_way.append((engine.request_async(model, inputs, slo=left, priority=source.priority), due))
        outcome.sent += 1
    except errors.QueueFullError:
        outcome.skipped += 1


def _opened(path: pathlib.Path, folder: pathlib.Path) -> Bundle:
    if path.suffix != ".tflite":
        return Bundle.open(path)
    target = folder / f"{path.stem}.tfxlite"
    return Bundle.open(target) if target.exists() else make_bundle(path, target)


def _source(raw: Any, where: str, folder: pathlib.Path) -> Source:
    _known(raw, {"bundle", "model", "name", "period_ms", "stream", "slo_ms", "priority"}, where)
    paths = [raw[key] for key in ("bundle", "model") if isinstance(raw.get(key), str)]
    if len(paths) != 1:
        raise errors.InvalidArgumentError(f"{where}: expected either a 'bundle' or a 'model', got {raw}")
    period, slo, stream = (_number(raw, key, where) for key in ("period_ms", "slo_ms", "stream"))
    if period is not None and stream is not None:
        raise errors.InvalidArgumentError(f"{where}: expected either a period or a stream, got both")
    priority = raw.get("priority", 0)
    if not isinstance(priority, int) or (stream is not None and stream != int(stream)):
        raise errors.InvalidArgumentError(f"{where}: 'priority' and 'stream' are whole numbers, got {raw}")
    path = folder / paths[0]
    return Source(
        path=path,
        name=str(raw.get("name", path.stem)),
        period=None if period is None else period / 1e3,
        stream=int(stream or 1),
        slo=None if slo is None else slo / 1e3,
        priority=priority,
    )


def _known(raw: Any, names: set[str], where: str) -> None:
    if not isinstance(raw, dict):
        raise errors.InvalidArgumentError(f"{where}: expected an object, got {type(raw).__name__}")
    unknown = sorted(set(raw) - names)
    if unknown:
        raise errors.InvalidArgumentError(f"{where}: expected some of {sorted(names)}, got {unknown}")


def _number(raw: dict[str, Any], key: str, where: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise errors.InvalidArgumentError(f"{where}: expected {key!r} to be a number over 0, got {value!r}")
    return float(value)

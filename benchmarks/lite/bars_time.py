"""Bars 2, 3 and 5: what the delegate costs, and how fast frames of several models are, alone and as they arrive."""

from __future__ import annotations

import collections
import functools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.ledger import Cell, Task, at_least, at_most
from benchmarks.lite import models, ours
from benchmarks.lite.models import WORKLOADS, Loaded
from benchmarks.lite.peers import PEERS, Times

ROUNDS = 10
FRAMES = 2000
LOADS = (0.5, 0.8, 0.95)
_SMOKE_FRAMES = 5
_AT_ONCE = 50


# --- bar 2: the delegate ---------------------------------------------------------------------------------------------------

DELEGATED = ("face_landmark", "iris_landmark", "palm_detection_lite", "mobilenet_v2_float32")
_LONG_MS = 5.0


def overhead() -> Iterable[Task]:
    """Yields bar 2."""
    for name in DELEGATED:
        yield Task(2, (f"delegate over plain/{name}",), functools.partial(_overhead, name))


def _overhead(name: str, smoke: bool) -> list[Cell]:
    from ai_edge_litert.interpreter import Interpreter

    from tf_ext import lite

    model = models.load([models.SMALL[0] if smoke else name])[0]
    with tempfile.TemporaryDirectory() as folder:
        (bundle,) = models.bundles([model], pathlib.Path(folder))
        first = ours.cores()[0]
        options = {"workers": f"cpu@{first}"}
        delegate = lite.load_delegate(bundle, options, library="ai_edge_litert")
        delegated = Interpreter(str(model.file), experimental_delegates=[delegate])
        delegated.allocate_tensors()
        plain = models.interpreter(model.file)
        for interpreter in (delegated, plain):
            for detail, value in zip(interpreter.get_input_details(), model.inputs, strict=True):
                interpreter.set_tensor(detail["index"], value)
        rounds, share = (2, 0.1) if smoke else (301, 20.0)
        timing = harness.alternate({"ours": delegated.invoke, "plain": plain.invoke}, rounds, share)
        same = all(
            np.array_equal(delegated.get_tensor(a["index"]), plain.get_tensor(b["index"]))
            for a, b in zip(delegated.get_output_details(), plain.get_output_details(), strict=True)
        )
        del delegated
    differences = [1e6 * (a - b) for a, b in zip(timing["ours"].wall, timing["plain"].wall, strict=True)]
    cell = f"delegate over plain/{name}"
    if timing["plain"].median() * 1000 > _LONG_MS:
        result = at_most(2, cell, harness.ratios(timing["ours"], timing["plain"]), 1.05, "x")
    else:
        result = at_most(2, cell, differences, 50.0, "us")
    return [_settle(result, same, smoke)]


def _settle(cell: Cell, same: bool, smoke: bool) -> Cell:
    """In a smoke run only the results count; with wrong results no time does."""
    holds = same and (smoke or cell.holds is True)
    note = None if same else "the outputs differ from plain LiteRT's"
    return Cell(cell.bar, cell.cell, cell.value, cell.limit, cell.unit, cell.runs, cell.spread, holds, note)


# --- bar 3: frames ---------------------------------------------------------------------------------------------------------


def frames() -> Iterable[Task]:
    """Yields bar 3."""
    for name in WORKLOADS:
        cells = (f"over sequential/{name}", f"over the best peer/{name}", f"worst run over the best peer/{name}")
        yield Task(3, cells, functools.partial(_throughput, name, cells))
        for load in LOADS:
            where = f"{name}/{load:.0%} load"
            yield Task(3, tuple(_periodic_cells(where, load)), functools.partial(_periodic, name, load, where))


def _periodic_cells(where: str, load: float) -> list[str]:
    latency = [f"99th percentile over {peer}/{where}" for peer in PEERS] if load > LOADS[0] else []
    return [*latency, f"deadlines missed beyond the best peer's/{where}"]


def _prepared(names: Sequence[str], folder: str) -> tuple[list[Loaded], dict[str, Any]]:
    loaded = models.load(names)
    runners: dict[str, Any] = {"ours": ours.Coordinated(loaded, pathlib.Path(folder))}
    runners |= {name: make(loaded) for name, make in PEERS.items()}
    return loaded, runners


def _same(runners: dict[str, Any]) -> bool:
    """Whether all of them give the outputs that one plain interpreter after another gives."""
    expected = runners["sequential"].frame()
    got = runners["ours"].frame()
    return all(np.array_equal(a, b) for xs, ys in zip(got, expected, strict=True) for a, b in zip(xs, ys, strict=True))


def _throughput(name: str, cells: Sequence[str], smoke: bool) -> list[Cell]:
    with tempfile.TemporaryDirectory() as folder:
        _, runners = _prepared(models.SMALL if smoke else WORKLOADS[name], folder)
        same = _same(runners)
        per_run = 1 if smoke else _frames_for(runners["sequential"].frame, 1.0)

        def run(frame: Callable[[], Any]) -> None:
            for _ in range(per_run):
                frame()

        calls = {key: functools.partial(run, runner.frame) for key, runner in runners.items()}
        timing = harness.alternate(calls, 2 if smoke else ROUNDS, share_s=120.0)
        for runner in runners.values():
            runner.close()
    over = harness.ratios(timing["sequential"], timing["ours"])
    best = min(PEERS, key=lambda peer: timing[peer].median())
    against = harness.ratios(timing[best], timing["ours"])
    results = [
        at_least(3, cells[0], over, 1.85, "x"),
        at_least(3, cells[1], against, 1.0, "x"),
        at_least(3, cells[2], [min(against)], 0.97, "x"),
    ]
    return [_settle(cell, same, smoke) for cell in results]


def _frames_for(frame: Callable[[], Any], seconds: float) -> int:
    frame()
    begin = time.perf_counter()
    frame()
    return max(1, round(seconds / (time.perf_counter() - begin)))


def _periodic(name: str, load: float, where: str, smoke: bool) -> list[Cell]:
    with tempfile.TemporaryDirectory() as folder:
        _, runners = _prepared(models.SMALL if smoke else WORKLOADS[name], folder)
        same = _same(runners)
        for _ in range(3):
            runners["ours"].frame()
        walls = [harness.clock(runners["ours"].frame)[0] for _ in range(3 if smoke else 50)]
        period = statistics.median(walls) / load
        count = _SMOKE_FRAMES if smoke else FRAMES
        latencies = {key: _latencies(runner, period, count) for key, runner in runners.items()}
        for runner in runners.values():
            runner.close()
    mine, cells = latencies["ours"], []
    if load > LOADS[0]:
        for peer in PEERS:
            ratio = float(np.percentile(mine, 99) / np.percentile(latencies[peer], 99))
            cells.append(at_most(3, f"99th percentile over {peer}/{where}", [ratio], 1.0, "x"))
    # A frame should be done within two periods: one to wait, one to run.
    missed = {key: float(np.mean(times > 2 * period)) for key, times in latencies.items()}
    fewest = min(missed[peer] for peer in PEERS)
    beyond = missed["ours"] - fewest
    cells.append(at_most(3, f"deadlines missed beyond the best peer's/{where}", [beyond], 0.0, "of frames"))
    return [_settle(cell, same, smoke) for cell in cells]


def _latencies(runner: Any, period: float, count: int) -> Times:
    arrivals = time.perf_counter() + 0.01 + period * np.arange(count)
    latencies: Times = runner.serve(arrivals) - arrivals
    return latencies


# --- bar 5: requests -------------------------------------------------------------------------------------------------------


def requests() -> Iterable[Task]:
    """Yields the part of bar 5 that needs the engine; the cost of a decision is in `bars_simulated`."""
    yield Task(5, ("requests of an empty model",), _requests)


def _requests(smoke: bool) -> list[Cell]:
    from tf_ext import lite

    count = 100 if smoke else 20_000
    with tempfile.TemporaryDirectory() as folder, lite.Engine(workers=f"cpu@{ours.cores()[0]}") as engine:
        file = pathlib.Path(folder) / "empty.tflite"
        file.write_bytes(_empty_model())
        lite.make_bundle(file, file.with_suffix(".tfxlite"))
        model = engine.add(file.with_suffix(".tfxlite"))
        value = np.full([1], 2.0, np.float32)
        engine.warm_up(model)
        rates, same = [], True
        for _ in range(1 if smoke else 5):
            begin = time.perf_counter()
            pending = collections.deque(engine.request_async(model, [value]) for _ in range(_AT_ONCE))
            for _ in range(count - _AT_ONCE):
                pending.append(engine.request_async(model, [value]))
                pending.popleft().result(timeout=60)
            results = [next(iter(request.result(timeout=60).values())) for request in pending]
            rates.append(count / (time.perf_counter() - begin))
            same = same and all(result[0] == 4.0 for result in results)
    return [_settle(at_least(5, "requests of an empty model", rates, 20_000, "1/s"), same, smoke)]


def _empty_model() -> bytes:
    """One addition of two numbers: the least that a model can be."""
    import tensorflow as tf

    double = tf.function(lambda x: x + x, input_signature=[tf.TensorSpec([1], tf.float32)])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([double.get_concrete_function()])
    return bytes(converter.convert())

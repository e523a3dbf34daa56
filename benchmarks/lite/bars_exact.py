"""Bar 1: outputs, compared with plain LiteRT's bit for bit."""

from __future__ import annotations

import functools
import pathlib
import tempfile
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.ledger import Cell, Task, at_most
from benchmarks.lite import models, ours
from benchmarks.lite.models import Array, Loaded

_THREADS = 8
_INVOCATIONS = 10_000
_CONCURRENT = f"{_THREADS} interpreters in {_THREADS} threads/mismatches"


def exactness() -> Iterable[Task]:
    """Yields bar 1."""
    from tf_ext import lite

    for name in lite.model_zoo.ENTRIES:
        cells = (f"engine/{name}", f"engine, cut in pieces/{name}")
        yield Task(1, cells, functools.partial(_outputs, name, cells))
    yield Task(1, (_CONCURRENT,), _concurrent)


def _plain(model: Loaded) -> list[Array]:
    interpreter = models.interpreter(model.file)
    for detail, value in zip(interpreter.get_input_details(), model.inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def _outputs(name: str, cells: tuple[str, str], smoke: bool) -> list[Cell]:
    from tf_ext import lite

    if smoke and name not in models.SMALL:
        return [Cell(1, cell, None, 0.0, "values that differ", note="not in a smoke run") for cell in cells]
    model = models.load([name])[0]
    expected = _plain(model)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for cell, parts in zip(cells, (1, 3), strict=True):
            bundle = pathlib.Path(folder) / f"{parts}.tfxlite"
            lite.make_bundle(model.file, bundle, parts=parts)
            with lite.Engine(_shortest, workers="cpu,cpu") as engine:
                got = engine.request(engine.add(bundle), list(model.inputs))
            wrong = sum(_differing(a, b) for a, b in zip(got.values(), expected, strict=True))
            results.append(at_most(1, cell, [wrong], 0.0, "values that differ"))
    return results


def _shortest(snapshot: Any) -> list[tuple[int, int, int]]:
    """A policy that takes the shortest piece, on one worker and then the other."""
    decisions = []
    for index in range(snapshot.num_jobs):
        job = snapshot.jobs[index]
        model = snapshot.models[job.model]
        pieces = [i for i in range(model.num_pieces) if model.pieces[i].begin == job.unit]
        piece = min(pieces, key=lambda i: model.pieces[i].end)
        decisions.append((index, job.unit % snapshot.num_workers, piece))
    return decisions


def _differing(a: Array, b: Array) -> int:
    if a.shape != b.shape or a.dtype != b.dtype:
        return max(a.size, b.size)
    return int(np.sum(a.reshape(-1).view(np.uint8) != b.reshape(-1).view(np.uint8)))


def _concurrent(smoke: bool) -> list[Cell]:
    from ai_edge_litert.interpreter import Interpreter

    from tf_ext import lite

    loaded = models.load(models.SMALL)
    expected = [_plain(model) for model in loaded]
    wrong = [0] * _THREADS
    each = 20 if smoke else _INVOCATIONS // _THREADS
    first, second = ours.cores()

    def work(index: int, model: Loaded, outputs: list[Array], bundle: pathlib.Path) -> None:
        delegate = lite.load_delegate(bundle, {"workers": f"cpu@{first},cpu@{second}"}, library="ai_edge_litert")
        interpreter = Interpreter(str(model.file), experimental_delegates=[delegate])
        interpreter.allocate_tensors()
        for detail, value in zip(interpreter.get_input_details(), model.inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        for _ in range(each):
            interpreter.invoke()
            got = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
            wrong[index] += any(_differing(a, b) for a, b in zip(got, outputs, strict=True))

    with tempfile.TemporaryDirectory() as folder:
        files = models.bundles(loaded, pathlib.Path(folder))
        threads = [
            threading.Thread(target=work, args=(i, loaded[i % 3], expected[i % 3], files[i % 3]))
            for i in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [at_most(1, _CONCURRENT, [sum(wrong)], 0.0, f"of {each * _THREADS}")]

"""The process in which `tf_ext.lite._accelerators` tries models: it reads questions from its input, one after the other."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_ext.lite import _accelerators, _builder, _container, cutter, errors, profiler
from tf_ext.lite.engine import Engine, LoadedModel
from tf_ext.lite.model import Model


def bundle_of(data: bytes, processor: str) -> bytes:
    """Returns a bundle, in one file, of a model that runs as a whole on one processor."""
    model = Model(data)
    part = cutter.cut(model, 0, len(model.operators))
    # What it takes is not known yet. An expectation of a minute keeps a slow first run from counting as hung.
    piece = _builder.piece_of((0, 1), part, {processor: 60e6})
    plan = _builder.plan_of(model, [(0, len(model.operators), (processor,))], [processor], (piece,))
    file = io.BytesIO()
    _container.dump(file, plan, [part.data])
    return file.getvalue()


class Bench:
    """Models on one worker of the engine."""

    def __init__(self, processor: str) -> None:
        self._processor = processor
        self._models: dict[str, LoadedModel] = {}

    @functools.cached_property
    def _engine(self) -> Engine:
        return Engine("fixed", [self._processor], cache_dir=os.environ.get("TF_EXT_LITE_CACHE_DIR"))

    def run(self, data: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs a model."""
        return list(self._engine.request(self._model(data), inputs).values())

    def measure(self, data: bytes, inputs: Sequence[np.ndarray], warmup: int, runs: int, seconds: float) -> Any:
        """Measures a model."""
        run = functools.partial(self._engine.request, self._model(data), inputs)
        return profiler.measure(self._processor, run, warmup=warmup, runs=runs, seconds=seconds)

    def _model(self, data: bytes) -> LoadedModel:
        key = hashlib.sha256(data).hexdigest()
        if key not in self._models:
            self._models[key] = self._engine.add(bundle_of(data, self._processor))
        return self._models[key]


def main() -> None:
    """Answers until its input ends."""
    # Libraries print to standard output; the pipe is for answers alone.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    bench = Bench(sys.argv[1])
    while True:
        try:
            name, *arguments = _accelerators.receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = True, getattr(bench, name)(*arguments)
        except errors.LiteError as error:
            answer = False, str(error)
        _accelerators.send(answers, answer)


if __name__ == "__main__":
    main()

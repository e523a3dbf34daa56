"""Ways to run the networks of the app: plain TensorFlow Lite, and `tf_ext.lite` as an engine and as a delegate."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from tf_ext import lite


class Runner(Protocol):
    """Runs networks.

    Attributes:
        name: what to call it.
        threads: how many branches may ask at a time.
    """

    name: str
    threads: int

    def run(self, model: str, value: np.ndarray) -> list[np.ndarray]:
        """Runs a model on its one input."""

    def close(self) -> None:
        """Frees everything."""


class Interpreters:
    """An interpreter with one thread for each model.

    Args:
        name: what to call it.
        files: the models by name.
        threads: how many branches may ask at a time.
        delegates: by name, for each model.
    """

    def __init__(
        self, name: str, files: Mapping[str, pathlib.Path], threads: int, delegates: Mapping[str, Any] | None = None
    ) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.name, self.threads = name, threads
        self._made: dict[str, Any] = {}
        for model, file in files.items():
            mine = [delegates[model]] if delegates else None
            self._made[model] = Interpreter(str(file), num_threads=1, experimental_delegates=mine)
            self._made[model].allocate_tensors()
        self._locks = {model: threading.Lock() for model in files}

    def run(self, model: str, value: np.ndarray) -> list[np.ndarray]:
        """See `Runner`."""
        interpreter = self._made[model]
        with self._locks[model]:  # an interpreter is for one thread at a time
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
            interpreter.invoke()
            return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]

    def close(self) -> None:
        """See `Runner`."""
        self._made.clear()


class Coordinated:
    """One engine for all models.

    Args:
        bundles: of the models by name.
        workers: see `tf_ext.lite.Engine`.
        threads: how many branches may ask at a time.
    """

    name = "tf_ext.lite, engine"

    def __init__(self, bundles: Mapping[str, pathlib.Path], workers: str, threads: int) -> None:
        self.threads = threads
        self.engine = lite.Engine(workers=workers)
        self._models = {name: self.engine.add(bundle, warm_up=True) for name, bundle in bundles.items()}

    def run(self, model: str, value: np.ndarray) -> list[np.ndarray]:
        """See `Runner`."""
        return list(self.engine.request(self._models[model], value).values())

    def close(self) -> None:
        """See `Runner`."""
        self.engine.close()


def delegated(
    files: Mapping[str, pathlib.Path], bundles: Mapping[str, pathlib.Path], workers: str, threads: int
) -> Interpreters:
    """Returns interpreters that share one engine by way of the delegate."""
    options = {"workers": workers}
    made = {name: lite.load_delegate(bundle, options, library="ai_edge_litert") for name, bundle in bundles.items()}
    return Interpreters("tf_ext.lite, delegate", files, threads, made)


def bundles_of(files: Mapping[str, pathlib.Path], folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Makes a bundle of each model, and returns their paths."""
    made = {}
    for name, file in files.items():
        made[name] = folder / f"{name}.tfxlite"
        lite.make_bundle(file, made[name], runs=5)
    return made


def same(one: Iterable[np.ndarray], other: Iterable[np.ndarray]) -> bool:
    """Whether arrays are equal bit for bit."""
    pairs = list(zip(one, other, strict=True))
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)

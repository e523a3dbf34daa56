"""Runs a TFLite model by itself, on one thread of the CPU: what everything else is compared with."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tf_ext.lite import errors

SEED = 20


class Runner(Protocol):
    """A model that is ready to run."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs the model and returns copies of its outputs."""

    def again(self) -> None:
        """Runs the model on the same inputs; what it computes is not looked at."""


class Typed(Protocol):
    """What tells of a tensor what to fill it with."""

    @property
    def type(self) -> str:
        """Numpy's name of its type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""


def runtime_version() -> str:
    """Returns the version of LiteRT.

    Raises:
        UnavailableError: it is not installed.
    """
    try:
        return importlib.metadata.version("ai-edge-litert")
    except importlib.metadata.PackageNotFoundError as error:
        raise errors.UnavailableError(
            "LiteRT, which runs TFLite models, is not installed: pip install 'tf_ext[lite]'"
        ) from error


def cpu(data: bytes, threads: int = 1) -> Runner:
    """Returns a model that is ready to run on the CPU.

    Args:
        data: a ``.tflite`` file that `tf_ext.lite.Model` has read.
        threads: how many may compute at a time.

    Raises:
        UnavailableError: LiteRT is not installed, or cannot run the model.
    """
    runtime_version()
    from ai_edge_litert.interpreter import Interpreter

    try:
        return _Interpreter(Interpreter(model_content=data, num_threads=threads))
    except (RuntimeError, ValueError) as error:
        # LiteRT's own way to run models knows some custom operators that its interpreter does not.
        if "custom op" not in str(error).lower():
            raise errors.UnavailableError(f"LiteRT cannot run the model: {error}") from error
        return _compiled(data, threads)


class _Interpreter:
    def __init__(self, interpreter: Any) -> None:
        interpreter.allocate_tensors()
        self._interpreter = interpreter
        self._inputs = [entry["index"] for entry in interpreter.get_input_details()]
        self._outputs = [entry["index"] for entry in interpreter.get_output_details()]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for index, array in zip(self._inputs, inputs, strict=True):
            self._interpreter.set_tensor(index, array)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]

    def again(self) -> None:
        self._interpreter.invoke()


def _compiled(data: bytes, threads: int) -> Runner:
    from ai_edge_litert import compiled_model

    options = compiled_model.Options(
        hardware_accelerators=compiled_model.HardwareAccelerator.CPU,
        cpu_options=compiled_model.CpuOptions(num_threads=threads),
    )
    try:
        return _Compiled(compiled_model.CompiledModel.from_buffer(data, options=options))
    except (RuntimeError, ValueError) as error:
        raise errors.UnavailableError(f"LiteRT cannot run the model: {error}") from error


class _Compiled:
    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        key = next(iter(compiled.get_signature_list()))
        details, names = compiled.get_output_tensor_details(key), compiled.get_signature_list()[key]["outputs"]
        self._outputs = [(tuple(details[name]["shape"]), np.dtype(details[name]["dtype"])) for name in names]
        self._buffers = compiled.create_input_buffers(0), compiled.create_output_buffers(0)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for buffer, array in zip(self._buffers[0], inputs, strict=True):
            buffer.write(array)
        self.again()
        shapes = zip(self._buffers[1], self._outputs, strict=True)
        return [buffer.read(int(np.prod(shape)), kind.type).reshape(shape) for buffer, (shape, kind) in shapes]

    def again(self) -> None:
        self._compiled.run_by_index(0, *self._buffers)


def random_inputs(tensors: Sequence[Typed], seed: int = SEED) -> list[np.ndarray]:
    """Returns arrays to try a model with: from 0 to 1, all values of small integers, and 0 or 1 of large ones.

    Large integers are mostly indices.
    """
    generator = np.random.default_rng(seed)
    return [_random(tensor, generator) for tensor in tensors]


def _random(tensor: Typed, generator: np.random.Generator) -> np.ndarray:
    kind = np.dtype(tensor.type)
    if kind.kind in "fc":
        return generator.random(tensor.shape).astype(kind)
    if kind.itemsize == 1 and kind.kind in "iu":
        limits = np.iinfo(kind)
        return generator.integers(limits.min, limits.max, tensor.shape, kind, endpoint=True)
    return generator.integers(0, 2, tensor.shape).astype(kind)


@contextlib.contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Keeps this thread, and those that it starts meanwhile, on a core; None: on any."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    if core not in before:
        raise errors.InvalidArgumentError(f"expected one of the cores {sorted(before)}, got {core}")
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

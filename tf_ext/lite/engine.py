"""The engine that runs several models on all processors: Python's face of `custom_ops/lite_delegate/tf_ext_lite.h`."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_ext.lite import _arrays, _library, _policies, errors
from tf_ext.lite._arrays import TensorSpec
from tf_ext.lite._gate import Gate
from tf_ext.lite._requests import TIMEOUT, Buffers, Request, Running
from tf_ext.lite.bundle import Bundle

__all__ = ["Engine", "LoadedModel", "Request", "TensorSpec", "runtime_library"]

RUNTIME_VARIABLE = "TF_EXT_LITERT"


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model that an engine knows.

    Attributes:
        index: its number in the engine.
        name: as its bundle calls it; else its number.
        inputs, outputs: what it takes and gives.
    """

    index: int
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Engine:
    """Runs requests to several models on all processors.

    It is made for many threads: any of them may send requests, and waits without keeping others from running Python.
    Close it, or use it in a ``with`` statement.

    Args:
        policy: what decides which piece of which request runs where: one of `tf_ext.lite.simulator.policies`, or a
            function, see `tf_ext.lite.simulator.Policy`. Of a function that raises, the next call of the engine raises
            that, and ``"adaptive"`` decides from then on.
        workers: a processor of the bundles and the cores that its thread is pinned to, such as ``["cpu@0", "cpu@1",
            "gpu"]``; ``"cpu@0+1"`` has two threads on two cores. Else one ``"cpu"`` for each core of the process.
        runtime: path of ``libLiteRt.so``; else ``$TF_EXT_LITERT``, else that of the package ``ai-edge-litert``.
        queue_limit: how many requests may wait; more are refused.
        hang_ms: how long a piece may take beyond ten times what is expected before its worker counts as lost.
        cache_dir: where compiled programs of GPU and NPU are kept; else they are not.
        trace: whether to record a trace from the start.

    Raises:
        LibraryError: the library of `tf_ext.lite` is absent.
        NotFoundError: there is no such policy.
        UnavailableError: the runtime is absent.
        InvalidArgumentError: a worker cannot be understood.

    Source: Band (MobiSys 2022), section 3.3.

    Example:
        >>> with tf_ext.lite.Engine(workers=["cpu@0", "cpu@1"]) as engine:
        ...     face = engine.add("face_landmark.tfxlite")
        ...     points = engine.request(face, {"input_1": picture}, slo=0.033)["conv2d_20"]
    """

    def __init__(
        self,
        policy: str | _policies.Policy = "adaptive",
        workers: str | Sequence[str] | None = None,
        *,
        runtime: str | os.PathLike[str] | None = None,
        queue_limit: int | None = None,
        hang_ms: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        trace: bool = False,
    ) -> None:
        self._library = _library.load()
        self._models: list[LoadedModel] = []
        self._memory: list[Any] = []  # bundles that were given as bytes, and policies: what the engine refers to
        self._running = Running()
        self._raised: list[BaseException] = []
        named = workers if isinstance(workers, str) or workers is None else ",".join(workers)
        options = {
            "runtime": runtime or runtime_library(),
            "workers": named,
            "policy": policy if isinstance(policy, str) else None,
            "queue_limit": queue_limit,
            "hang_ms": hang_ms,
            "cache_dir": cache_dir,
            "trace": "1" if trace else None,
        }
        self._gate = Gate(
            self._create({name: str(value) for name, value in options.items() if value is not None}), "the engine"
        )
        if not isinstance(policy, str):
            self.set_policy(policy)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_gate"):
            self.close()

    def close(self) -> None:
        """Cancels what waits, lets what runs end, and frees everything. May be called again."""
        handle = self._gate.close()
        if handle is not None:
            self._library.TfExtLiteEngineDelete(handle)

    @property
    def models(self) -> tuple[LoadedModel, ...]:
        """The models, in the order in which they were added."""
        return tuple(self._models)

    def add(self, bundle: str | os.PathLike[str] | Bundle | bytes, *, warm_up: bool = False) -> LoadedModel:
        """Adds a model. Its pieces are loaded on first use.

        Args:
            bundle: a path, a `Bundle`, or the bytes of a bundle in one file.
            warm_up: whether to load, on each worker, the pieces that requests take first, and to run them once.

        Raises:
            NotFoundError: there is no such bundle.
            DataLossError: it is damaged, or of another version.
        """
        index = ctypes.c_int32()
        with self._entered() as handle:
            if isinstance(bundle, bytes):
                data = _arrays.aligned((len(bundle),), np.uint8)
                data[:] = np.frombuffer(bundle, np.uint8)
                made = self._library.TfExtLiteAddModelFromMemory(handle, data.ctypes.data, data.size, index)
                self._memory.append(data)
            else:
                path = bundle.path if isinstance(bundle, Bundle) else pathlib.Path(bundle)
                made = self._library.TfExtLiteAddModel(handle, os.fsencode(path), index)
            _library.check(made)
            name = f"model {index.value}" if isinstance(bundle, bytes) else path.stem
            model = LoadedModel(index.value, name, *self._specs(handle, index.value))
        self._models.append(model)
        if warm_up:
            self.warm_up(model)
        return model

    def warm_up(self, model: LoadedModel) -> None:
        """Loads, on each worker, the pieces that requests take first, and runs them once."""
        with self._entered() as handle:
            _library.check(self._library.TfExtLiteWarmUp(handle, model.index))

    def request(
        self,
        model: LoadedModel,
        inputs: _arrays.Arrays | np.ndarray,
        *,
        slo: float | None = None,
        priority: int = 0,
        worker: int | None = None,
        out: _arrays.Arrays | np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs a model and waits for it.

        Args:
            model: as `add` returned it.
            inputs: arrays by name, or in the order of the model's inputs; a single one may come without a list. Those that
                begin at a multiple of 64 bytes, see `tf_ext.lite.aligned`, are used in place, others are copied.
            slo: service-level objective: seconds from now within which it should be done. A request that cannot be is
                dropped by policies that know of objectives.
            priority: the larger, the sooner.
            worker: run it on this worker only; None: on any.
            out: arrays to write the outputs to, by name or in order.

        Returns:
            The outputs by name, in the order of the model.

        Raises:
            InvalidArgumentError: arrays of other names, types or shapes than the model's.
            DeadlineExceededError: it was dropped, since it could not be done in time any more.
            QueueFullError: too many requests wait.
            UnavailableError: no worker can run it.
        """
        buffers = self._buffers(model, inputs, out)
        options = _options(slo, priority, worker)
        with self._entered() as handle:
            _library.check(self._library.TfExtLiteRequest(*_arguments(handle, model, buffers, options)))
        return _named(model, buffers.outputs)

    def request_async(
        self,
        model: LoadedModel,
        inputs: _arrays.Arrays | np.ndarray,
        *,
        slo: float | None = None,
        priority: int = 0,
        worker: int | None = None,
        out: _arrays.Arrays | np.ndarray | None = None,
    ) -> Request:
        """Starts a run of a model; see `request` for the arguments.

        Inputs must not be changed before it has ended.

        Returns:
            What to wait for.

        Raises:
            InvalidArgumentError: arrays of other names, types or shapes than the model's.
            QueueFullError: too many requests wait.
        """
        self._running.sweep(self._wait)
        buffers = self._buffers(model, inputs, out)
        options, job = _options(slo, priority, worker), ctypes.c_int64()
        none = _library.JobCallback()
        with self._entered() as handle:
            arguments = _arguments(handle, model, buffers, options)
            _library.check(self._library.TfExtLiteRequestAsync(*arguments, none, None, ctypes.byref(job)))
            made = functools.partial(_named, model, buffers.outputs)
            self._running.add(job.value, buffers)
        return Request(self._wait, self._cancel, job.value, made, self._running.left)

    def set_policy(self, policy: str | _policies.Policy) -> None:
        """Lets another policy decide from now on; see the class."""
        with self._entered() as handle:
            if isinstance(policy, str):
                _library.check(self._library.TfExtLiteSetPolicy(handle, policy.encode()))
                return
            # The engine may be in the old function while the new one is set: both are kept as long as the engine.
            callback = _policies.callback(policy, self._raised)
            self._memory.append(callback)
            _library.check(self._library.TfExtLiteSetPolicyCallback(handle, callback, None))

    def statistics(self) -> dict[str, Any]:
        """Returns what workers, models and the queue did: runs, times, threads, precision, accelerators, latencies."""
        with self._entered() as handle:
            made: dict[str, Any] = json.loads(self._text(self._library.TfExtLiteStatistics(handle)))
        return made

    def set_tracing(self, enabled: bool) -> None:
        """Starts or stops recording."""
        with self._entered() as handle:
            self._library.TfExtLiteSetTracing(handle, int(enabled))

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes what was recorded in Chrome's trace format, which https://ui.perfetto.dev shows."""
        with self._entered() as handle:
            text = self._text(self._library.TfExtLiteTrace(handle))
        pathlib.Path(path).write_text(text)

    def _create(self, options: Mapping[str, str]) -> ctypes.c_void_p:
        strings = ctypes.c_char_p * len(options)
        keys, values = strings(*map(str.encode, options)), strings(*map(str.encode, options.values()))
        handle = ctypes.c_void_p()
        made = self._library.TfExtLiteEngineCreate(keys, values, len(options), ctypes.byref(handle))
        _library.check(made)
        return handle

    def _entered(self) -> Gate[ctypes.c_void_p]:
        """Keeps the engine open during a call."""
        if self._raised:
            error = self._raised.pop()
            self.set_policy("adaptive")
            raise error
        return self._gate

    def _wait(self, job: int, timeout: float | None) -> int:
        micros = -1 if timeout is None else max(0, round(timeout * 1e6))
        with self._entered() as handle:
            status: int = self._library.TfExtLiteWait(handle, job, micros)
        if status != TIMEOUT:
            self._running.ended(job)
        return status

    def _cancel(self, job: int) -> int:
        with self._entered() as handle:
            status: int = self._library.TfExtLiteCancel(handle, job)
        return status

    def _buffers(self, model: LoadedModel, inputs: Any, out: Any) -> Buffers:
        given = _arrays.taken(inputs, model.inputs, "input")
        if out is None:
            return Buffers(given, [spec.empty() for spec in model.outputs])
        return Buffers(given, _arrays.taken(out, model.outputs, "output"))

    def _specs(self, handle: ctypes.c_void_p, model: int) -> Iterable[tuple[TensorSpec, ...]]:
        library = self._library
        for count, describe in (
            (library.TfExtLiteInputCount, library.TfExtLiteInput),
            (library.TfExtLiteOutputCount, library.TfExtLiteOutput),
        ):
            yield _arrays.specs_of(count(handle, model), functools.partial(describe, handle, model))

    def _text(self, address: int | None) -> str:
        if not address:
            raise errors.InternalError("the engine had no memory left for its report")
        try:
            return (ctypes.cast(address, ctypes.c_char_p).value or b"").decode()
        finally:
            self._library.TfExtLiteFree(address)


def runtime_library() -> pathlib.Path | None:
    """Returns where ``libLiteRt.so`` of the package ``ai-edge-litert`` lies; None if ``$TF_EXT_LITERT`` tells, or nothing.

    Nothing is imported.
    """
    if os.environ.get(RUNTIME_VARIABLE):
        return None
    found = importlib.util.find_spec("ai_edge_litert")
    for folder in (found and found.submodule_search_locations) or ():
        path = pathlib.Path(folder) / "libLiteRt.so"
        if path.is_file():
            return path
    return None


def _options(slo: float | None, priority: int, worker: int | None) -> Any:
    if slo is None and priority == 0 and worker is None:
        return None  # the usual ones
    if slo is not None and not slo > 0:
        raise errors.InvalidArgumentError(f"expected a service-level objective of more than 0 seconds, got {slo}")
    micros = 0 if slo is None else max(1, round(slo * 1e6))
    size = ctypes.sizeof(_library.RequestOptions)
    return ctypes.byref(_library.RequestOptions(size, micros, priority, -1 if worker is None else worker))


def _arguments(handle: Any, model: LoadedModel, buffers: Buffers, options: Any) -> tuple[Any, ...]:
    inputs, outputs = _arrays.buffers(buffers.inputs), _arrays.buffers(buffers.outputs)
    return handle, model.index, inputs, len(inputs), outputs, len(outputs), options


def _named(model: LoadedModel, outputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    return {spec.name: array for spec, array in zip(model.outputs, outputs, strict=True)}

"""Tries models on a GPU or an NPU: in a process of its own, since drivers crash and hang."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from tf_ext.lite import _runners, errors
from tf_ext.lite.model import Tensor
from tf_ext.lite.profiler import Profile

_LENGTH = struct.Struct("<Q")
TIMEOUT_S = 180.0
"""Compiling for a GPU that the CPU imitates takes its time."""


class Accelerator:
    """A GPU or NPU to try models on, as a context manager.

    The engine itself runs them, on one worker, in a child process. That is started when it is needed, and anew after a crash.

    Args:
        processor: ``"gpu"`` or ``"npu"``.
        timeout: how many seconds a call may take.
    """

    def __init__(self, processor: str, timeout: float = TIMEOUT_S) -> None:
        self.processor, self._timeout = processor, timeout
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Accelerator:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def run(self, data: bytes, inputs: Sequence[np.ndarray], outputs: Sequence[Tensor]) -> list[np.ndarray]:
        """Runs a model.

        Args:
            data: a ``.tflite`` file.
            inputs: in its order.
            outputs: what it gives, in its order.

        Returns:
            Its outputs.

        Raises:
            UnavailableError: the processor is absent, or does not run it, or crashed or hung over it.
        """
        made: list[np.ndarray] = self._ask("run", data, list(inputs))
        return [array.reshape(tensor.shape) for array, tensor in zip(made, outputs, strict=True)]

    def measure(self, data: bytes, inputs: Sequence[Tensor], *, warmup: int, runs: int, seconds: float) -> Profile:
        """Measures a model on inputs of any content; see `tf_ext.lite.profiler.measure`."""
        made: Profile = self._ask("measure", data, _runners.random_inputs(inputs), warmup, runs, seconds)
        return made

    def _ask(self, *question: Any) -> Any:
        child = self._started()
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None
        hung = threading.Event()

        def end() -> None:
            hung.set()
            child.kill()

        watch = threading.Timer(self._timeout, end)
        watch.start()
        try:
            send(stdin, question)
            ok, answer = receive(stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise errors.UnavailableError(self._how_it_ended(child, hung.is_set())) from None
        finally:
            watch.cancel()
        if not ok:
            raise errors.UnavailableError(answer)
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            command = [sys.executable, "-m", "tf_ext.lite._accelerator_child", self.processor]
            # The child must find this very package, and tells of models and drivers at length.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
            )
        return self._child

    def _how_it_ended(self, child: subprocess.Popen[bytes], hung: bool) -> str:
        self._end()
        if hung:
            return f"{self.processor} did not answer within {self._timeout:g} s"
        code = child.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        return f"{self.processor} crashed: the process that tried it ended with {how}"

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def send(file: IO[bytes], message: Any) -> None:
    """Writes a message to a pipe between parent and child."""
    data = pickle.dumps(message)
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def receive(file: IO[bytes]) -> Any:
    """Reads a message that the other side has sent.

    Raises:
        EOFError: there is none any more.
    """
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    length = _LENGTH.unpack(head)[0]
    data = file.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)

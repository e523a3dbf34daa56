"""Where stages are trained: in this process, or in workers of this machine. Others implement `Executor`."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import multiprocessing.connection
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import Any

from tf_ext.checkpoint.cache import StateCache
from tf_ext.checkpoint.store import Store
from tf_ext.tuner._job import Job, StageResult, StageTask
from tf_ext.tuner._stage_runner import StageRunner
from tf_ext.tuner.errors import WorkerLostError

__all__ = ["Done", "Executor", "InProcessExecutor", "LocalExecutor"]

_START_SECONDS = 120.0
_STOP_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Done:
    """The end of a stage.

    Attributes:
        worker: Which worker it was.
        task: What it was to do.
        result: What came of it, if it went well.
        error: The traceback of what was raised, if not; None where the worker was lost: then the stage may run again.
        exception: What was raised, where it could be sent.
    """

    worker: int
    task: StageTask
    result: StageResult | None = None
    error: str | None = None
    exception: BaseException | None = None

    @property
    def lost(self) -> bool:
        """Whether the worker died."""
        return self.result is None and self.error is None


class Executor(abc.ABC):
    """Workers that train stages. One stage at a time for each; the tuner decides which.

    A worker reads the states from which stages go on from the store in `directory`, and writes those that are kept to it
    before it says that a stage is done.

    Attributes:
        workers: How many; they are numbered from 0 on.
    """

    workers: int = 1

    @abc.abstractmethod
    def start(self, job: Job, directory: pathlib.Path, memory: int) -> None:
        """Gets ready to train stages of a study.

        Args:
            job: How.
            directory: That of the store of states; all workers can reach it.
            memory: Bytes of states that each worker may keep in memory.
        """

    @abc.abstractmethod
    def submit(self, worker: int, task: StageTask) -> None:
        """Hands a stage to a worker that has none."""

    @abc.abstractmethod
    def wait(self, timeout: float) -> list[Done]:
        """Waits until a stage ends, at most `timeout` seconds, and returns all that have."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stops the workers. What they were training is lost."""


class InProcessExecutor(Executor):
    """Trains in this process; `wait` does the work."""

    def __init__(self) -> None:
        self.runner: StageRunner | None = None
        self._task: StageTask | None = None

    def start(self, job: Job, directory: pathlib.Path, memory: int) -> None:
        """See `Executor`."""
        self.runner = StageRunner(job, StateCache(Store(directory), memory))

    def submit(self, worker: int, task: StageTask) -> None:
        """See `Executor`."""
        self._task = task

    def wait(self, timeout: float) -> list[Done]:
        """Trains what was submitted; `timeout` does not cut it short."""
        task, self._task = self._task, None
        if task is None:
            time.sleep(min(timeout, 0.05))
            return []
        assert self.runner is not None
        return [run_task(self.runner, 0, task)]

    def close(self) -> None:
        """See `Executor`."""
        self.runner = self._task = None


class LocalExecutor(Executor):
    """Trains in workers on this machine: processes of their own, started anew and not forked.

    A worker that dies is replaced, and its stage is given back. Workers end when this process does, however it ends.

    Args:
        workers: How many.
        restarts: How often a worker may die in a row, with no stage done in between, before it is given up.

    Raises:
        WorkerLostError: From `wait`, when a worker is given up.
    """

    def __init__(self, workers: int, restarts: int = 3) -> None:
        if workers < 1:
            raise ValueError(f"expected at least one worker, got workers={workers}.")
        self.workers, self._restarts = workers, restarts
        self._handles: list[_Worker] = []

    def start(self, job: Job, directory: pathlib.Path, memory: int) -> None:
        """See `Executor`."""
        import cloudpickle  # only here: trials in one process do without

        message = cloudpickle.dumps((job, str(directory), memory))
        self._handles = [_Worker(number, message) for number in range(self.workers)]

    def submit(self, worker: int, task: StageTask) -> None:
        """See `Executor`."""
        self._handles[worker].submit(task)

    def wait(self, timeout: float) -> list[Done]:
        """See `Executor`."""
        busy = {handle.connection: handle for handle in self._handles if handle.task is not None}
        done = []
        for connection in multiprocessing.connection.wait(list(busy), timeout):
            handle = busy[connection]  # type: ignore[index]
            task = handle.task
            assert task is not None
            outcome = handle.receive()
            if outcome is None:
                handle.lost += 1
                if handle.lost > self._restarts:
                    raise WorkerLostError(
                        f"expected worker {handle.number} to train epochs {task.start} to {task.end} of {dict(task.config)}, "
                        f"but it died {handle.lost} times in a row ({handle.how_it_ended()}). Look for a crash or a lack of "
                        "memory; what was trained is in the plan, and the search goes on from there when it is run again."
                    )
                handle.restart()
                done.append(Done(handle.number, task))
            else:
                handle.lost = 0
                done.append(dataclasses.replace(outcome, worker=handle.number))
        return done

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers."""
        return [handle.process.pid for handle in self._handles]

    def close(self) -> None:
        """See `Executor`."""
        for handle in self._handles:
            handle.connection.close()
        for handle in self._handles:
            handle.stop()
        self._handles = []


class _Worker:
    """A worker as seen from here: its process, and a socket to it."""

    def __init__(self, number: int, message: bytes) -> None:
        self.number, self._message = number, message
        self.lost = 0
        self.task: StageTask | None = None
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tf_ext.tuner._worker", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.connection = multiprocessing.connection.Connection(ours.detach())
        self.task = None
        with contextlib.suppress(OSError):  # it has died; `receive` finds that out
            self.connection.send_bytes(self._message)

    def submit(self, task: StageTask) -> None:
        self.task = task
        with contextlib.suppress(OSError):
            self.connection.send(task)

    def receive(self) -> Done | None:
        """What it says, or None if it has died."""
        try:
            outcome: Done = self.connection.recv()
        except (EOFError, OSError):
            return None
        self.task = None
        return outcome

    def restart(self) -> None:
        self.connection.close()
        self.stop()
        self._start()

    def stop(self) -> None:
        try:
            self.process.wait(_STOP_SECONDS if self.task is None else 0.1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def how_it_ended(self) -> str:
        code = self.process.poll()
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit status {code}"


def run_task(runner: StageRunner, worker: int, task: StageTask) -> Done:
    """Trains a stage and tells how it ended; raises only what is to end the process."""
    try:
        return Done(worker, task, result=runner.run(task))
    except Exception as error:
        return Done(worker, task, error=traceback.format_exc(), exception=error)


def sendable(done: Done) -> Any:
    """A `Done` that can be sent to another process: exceptions that cannot are told by their traceback alone."""
    import pickle

    try:
        pickle.loads(pickle.dumps(done))
    except Exception:
        return dataclasses.replace(done, exception=None)
    return done

"""The program of a local worker: gets a job, trains the stages that it is handed, and ends with its parent."""

from __future__ import annotations

import multiprocessing.connection
import os
import pathlib
import signal
import sys
import threading
import time


def _end_with(parent: int) -> None:
    """A training does not look at the socket, so that a thread looks at the parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(descriptor: int, parent: int) -> None:
    """Serves the parent until it closes the socket."""
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    connection = multiprocessing.connection.Connection(descriptor)
    try:
        message = connection.recv_bytes()
        import cloudpickle

        from tf_ext.checkpoint.cache import StateCache
        from tf_ext.checkpoint.store import Store
        from tf_ext.tuner._stage_runner import StageRunner
        from tf_ext.tuner.executors import run_task, sendable

        job, directory, memory = cloudpickle.loads(message)
        runner = StageRunner(job, StateCache(Store(pathlib.Path(directory)), memory))
        while True:
            connection.send(sendable(run_task(runner, 0, connection.recv())))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is done


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""A request that runs: what a caller of `Engine.request_async` holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from tf_ext.lite import _library, errors

TIMEOUT = 8
"""`kTfExtLiteTimeout`."""


class Buffers:
    """The arrays of a request, which belong to the engine until its job has ended."""

    def __init__(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self.inputs, self.outputs = inputs, outputs


class Request:
    """A request on its way.

    Example:
        >>> request = engine.request_async(model, inputs)
        >>> outputs = request.result(timeout=0.1)
    """

    def __init__(
        self,
        wait: Callable[[int, float | None], int],
        cancel: Callable[[int], int],
        job: int,
        made: Callable[[], dict[str, np.ndarray]],
        left: list[int],
    ) -> None:
        self.job, self._left = job, left
        self._wait, self._cancel, self._made = wait, cancel, made
        self._lock = threading.Lock()
        self._status: int | None = None
        self._told = ""

    def __del__(self) -> None:
        if self._status is None:
            self._left.append(self.job)

    def __repr__(self) -> str:
        return f"Request({self.job}, {'done' if self._status is not None else 'running'})"

    def result(self, timeout: float | None = None) -> dict[str, np.ndarray]:
        """Waits for the request and returns its outputs, as `Engine.request` would.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.

        Raises:
            WaitTimeoutError: it has not ended by then; it goes on.
            CancelledError: it was cancelled.
            DeadlineExceededError: it was dropped, since it could not be done in time any more.
            LiteError: it failed otherwise.
        """
        status = self._ended(timeout)
        if status is None:
            raise errors.WaitTimeoutError(f"the request has not ended after {timeout} s; it goes on")
        if status:
            raise errors.from_status(status, self._told)
        return self._made()

    def ended(self, timeout: float = 0.0) -> bool:
        """Waits for at most so many seconds, and tells whether it has ended, in whichever way."""
        return self._ended(timeout) is not None

    def cancel(self) -> bool:
        """Asks the engine to give the request up.

        Returns:
            False where it had ended before. True means that it was asked; a piece that runs is run to its end, and
            `result` tells how the request ended.
        """
        return not self.ended() and self._cancel(self.job) == 0

    def _ended(self, timeout: float | None) -> int | None:
        """The status, or None if it has not ended; one thread waits, the others wait for that one."""
        if self._status is None and self._lock.acquire(timeout=-1 if timeout is None else timeout):
            try:
                if self._status is None:
                    status = self._wait(self.job, timeout)
                    if status != TIMEOUT:
                        if status:
                            self._told = _library.load().TfExtLiteLastError().decode("utf-8", "replace")
                        self._status = status
            finally:
                self._lock.release()
        return self._status


class Running:
    """Keeps the buffers of requests until their jobs have ended, also of requests that nobody waits for.

    Attributes:
        left: jobs whose requests nobody holds any more.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Buffers] = {}
        self.left: list[int] = []

    def __len__(self) -> int:
        return len(self._buffers)

    def add(self, job: int, buffers: Buffers) -> None:
        """Keeps buffers as long as the engine may write to them."""
        self._buffers[job] = buffers

    def ended(self, job: int) -> None:
        """Lets go of buffers."""
        self._buffers.pop(job, None)

    def sweep(self, wait: Callable[[int, float | None], int]) -> None:
        """Asks after the requests that nobody holds any more."""
        for _ in range(len(self.left)):
            try:
                job = self.left.pop(0)
            except IndexError:  # another thread was faster
                return
            if job in self._buffers and wait(job, 0.0) == TIMEOUT:
                self.left.append(job)

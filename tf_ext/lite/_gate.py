"""Keeps something open while calls are in it, for many threads."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from tf_ext.lite import errors

T = TypeVar("T")


class Gate(Generic[T]):
    """A context manager for each call: gives the thing, and keeps it from being closed meanwhile.

    Args:
        thing: what is to be kept open.
        name: what an error calls it.
    """

    def __init__(self, thing: T, name: str) -> None:
        self._thing: T | None = thing
        self._name = name
        self._calls = 0
        self._idle = threading.Condition(threading.Lock())

    def __enter__(self) -> T:
        with self._idle:
            if self._thing is None:
                raise errors.InvalidArgumentError(f"{self._name} is closed")
            self._calls += 1
            return self._thing

    def __exit__(self, *error: object) -> None:
        with self._idle:
            self._calls -= 1
            if self._thing is None:
                self._idle.notify_all()

    def close(self) -> T | None:
        """Lets nobody in any more, waits for those that are, and returns the thing; None if it was closed before."""
        with self._idle:
            thing, self._thing = self._thing, None
            self._idle.wait_for(lambda: self._calls == 0)
        return thing

"""Calling what Keras Tuner synchronizes without leaving its lock behind.

`keras_tuner.synchronized` gives an oracle's lock back only if the call returns. An exception keeps it, and the next thread
waits for ever. Here the lock is taken around the call, and the exception is carried out of it as a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import keras_tuner

__all__ = ["exclusively"]

T = TypeVar("T")


@keras_tuner.synchronized
def _attempt(oracle: keras_tuner.Oracle, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    del oracle  # whose lock the decorator takes
    try:
        return call(), None
    except BaseException as error:
        return None, error


def exclusively(oracle: keras_tuner.Oracle, call: Callable[[], T]) -> T:
    """Calls `call` under the lock of `oracle`, which its thread may hold already, and gives the lock back in any case.

    Args:
        oracle: Whose lock it is.
        call: What may call synchronized methods of the oracle.

    Returns:
        What `call` returned.

    Raises:
        BaseException: What `call` raised.
    """
    result, error = _attempt(oracle, call)
    if error is not None:
        raise error
    answer: T = result
    return answer

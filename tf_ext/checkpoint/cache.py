"""States in memory within a budget, over a store that has all of them: what is forked often is not read anew."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Mapping
from typing import Any

from tf_ext.checkpoint import keras as _keras
from tf_ext.checkpoint.errors import CheckpointNotFoundError
from tf_ext.checkpoint.store import Store

__all__ = ["StateCache"]


class StateCache:
    """States by name: each written to the store at once, and kept in memory while there is room.

    What is in memory is lost with the process and nothing else is, so that the least recently used states leave it without
    being written: they spill into what was written already.

    Args:
        store: Where the states are durable.
        memory: Bytes of arrays that may stay in memory. A state larger than that is read from the store.

    Example:
        cache = StateCache(Store("/data/states"), memory=1 << 30)
        cache.put("epoch-3", checkpoint.keras.capture(model))
        checkpoint.keras.restore(model, cache.get("epoch-3"))
    """

    def __init__(self, store: Store, memory: int = 256 << 20) -> None:
        if memory < 0:
            raise ValueError(f"expected a number of bytes from 0 on, got memory={memory}.")
        self.store, self.memory = store, memory
        self.hits = self.misses = 0
        self._states: collections.OrderedDict[str, tuple[_keras.State, dict[str, Any]]] = collections.OrderedDict()
        self._bytes = 0

    def put(self, name: str, state: _keras.State, metadata: Mapping[str, Any] | None = None) -> int:
        """Writes a state, in the place of an older one of that name, and keeps it in memory. Returns its bytes."""
        _keras.save(self.store, name, state, metadata)
        self._keep(name, state, dict(metadata or {}))
        return state.nbytes

    def get(self, name: str) -> _keras.State:
        """The state of that name.

        Raises:
            CheckpointNotFoundError: There is none.
            CorruptedCheckpointError: It is not what was written.
        """
        return self.get_with_metadata(name)[0]

    def get_with_metadata(self, name: str) -> tuple[_keras.State, dict[str, Any]]:
        """The state of that name, and what `put` was given with it."""
        if name in self._states:
            self.hits += 1
            self._states.move_to_end(name)
            return self._states[name]
        self.misses += 1
        state = _keras.load(self.store, name)
        self._keep(name, state, self.store.metadata(name))
        return state, self.store.metadata(name)

    def drop(self, name: str) -> None:
        """Deletes a state, in memory and in the store; one that is not there is none."""
        self._forget(name)
        with contextlib.suppress(CheckpointNotFoundError):
            self.store.delete(name)

    def _keep(self, name: str, state: _keras.State, metadata: dict[str, Any]) -> None:
        self._forget(name)
        if state.nbytes > self.memory:
            return
        self._states[name] = state, metadata
        self._bytes += state.nbytes
        while self._bytes > self.memory:
            self._forget(next(iter(self._states)))

    def _forget(self, name: str) -> None:
        entry = self._states.pop(name, None)
        if entry is not None:
            self._bytes -= entry[0].nbytes

"""A priority queue whose priorities change: entries that are out of date are thrown away when they come up."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

__all__ = ["Heap"]


class _Numbered(Protocol):
    serial: int


T = TypeVar("T", bound=_Numbered)

_Entry = tuple[float, int, int, T]


class Heap(Generic[T]):
    """Items with priorities. Among equals the one with the smallest `serial` comes first, from either end.

    Setting a priority and looking at an end cost O(log n), amortized.
    """

    __slots__ = ("_count", "_falling", "_live", "_rising")

    def __init__(self) -> None:
        self._live: dict[T, float] = {}
        self._falling: list[_Entry[T]] = []
        self._rising: list[_Entry[T]] | None = None  # most heaps are never asked for their smallest
        self._count = 0

    def set(self, item: T, priority: float) -> None:
        """Adds an item, or changes its priority."""
        if self._live.get(item) == priority:
            return
        self._live[item] = priority
        self._count += 1  # keeps items from being compared
        heapq.heappush(self._falling, (-priority, item.serial, self._count, item))
        if self._rising is not None:
            heapq.heappush(self._rising, (priority, item.serial, self._count, item))
        if len(self._falling) > 64 + 4 * len(self._live):
            self._rebuild()

    def discard(self, item: T) -> None:
        """Removes an item if it is there."""
        self._live.pop(item, None)

    def largest(self) -> T | None:
        """The item with the highest priority; None if there is none."""
        heap = self._falling
        while heap and self._live.get(heap[0][3]) != -heap[0][0]:
            heapq.heappop(heap)
        return heap[0][3] if heap else None

    def smallest(self) -> T | None:
        """The item with the lowest priority; None if there is none."""
        if self._rising is None:
            self._rising = []
            self._rebuild()
        heap = self._rising
        while heap and self._live.get(heap[0][3]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][3] if heap else None

    def __getitem__(self, item: T) -> float:
        return self._live[item]

    def __contains__(self, item: object) -> bool:
        return item in self._live

    def __iter__(self) -> Iterator[T]:
        return iter(self._live)

    def __len__(self) -> int:
        return len(self._live)

    def _rebuild(self) -> None:
        self._count = len(self._live)
        entries = [(p, item.serial, n, item) for n, (item, p) in enumerate(self._live.items())]
        self._falling = [(-p, serial, n, item) for p, serial, n, item in entries]
        heapq.heapify(self._falling)
        if self._rising is not None:
            self._rising = entries
            heapq.heapify(self._rising)

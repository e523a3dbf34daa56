"""Reads rows straight from the pages of a SQLite file, for where the tree that leads to them is damaged.

SQLite gives up a table at the first page that it cannot read; all other pages hold whole rows still. See "Database file
format" of SQLite's documentation, sections 1.6, 2.1 and 4, whose letters P, U, X, M and K are used below.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["Row", "rows_of"]

# "table" or "index" (as tables without rowid are stored), the rowid or None, and the columns.
Row = tuple[str, int | None, tuple[Any, ...]]

_MAGIC = b"SQLite format 3\0"
_USUAL_PAGE = 4096
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR, _TABLE_INTERIOR = 0x0D, 0x0A, 0x02, 0x05
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by serial type


class _Pages:
    """The pages as they were after the last transaction, those in the WAL among them."""

    def __init__(self, path: pathlib.Path) -> None:
        data = path.read_bytes()
        size = int.from_bytes(data[16:18], "big") if data[:16] == _MAGIC else 0
        size = 65536 if size == 1 else size
        self.size = size if size >= 512 and size & (size - 1) == 0 else _USUAL_PAGE
        self._pages = {n // self.size + 1: data[n : n + self.size] for n in range(0, len(data), self.size)}
        self._read_wal(path.with_name(path.name + "-wal"))
        self.free = self._free()
        told = int.from_bytes(data[28:32], "big") if data[:16] == _MAGIC else 0
        self.missing = max(0, told - len(self._pages))

    def __len__(self) -> int:
        return len(self._pages)

    def __getitem__(self, number: int) -> bytes:
        page = self._pages[number]
        if len(page) < self.size:
            raise ValueError(f"page {number} is cut off")
        return page

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._pages))

    def _read_wal(self, path: pathlib.Path) -> None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        if len(data) < 32 or int.from_bytes(data[8:12], "big") != self.size:
            return
        salts = data[16:24]  # frames with others are left from before the WAL was begun anew
        pending: dict[int, bytes] = {}
        for at in range(32, len(data) - 24 - self.size + 1, 24 + self.size):
            number, commit = struct.unpack(">II", data[at : at + 8])
            if data[at + 8 : at + 16] != salts:
                break
            pending[number] = data[at + 24 : at + 24 + self.size]
            if commit:
                self._pages.update(pending)
                pending = {}

    def _free(self) -> set[int]:
        """The pages that hold what was deleted."""
        free: set[int] = set()
        try:
            head = self[1]
            trunk = int.from_bytes(head[32:36], "big") if head[:16] == _MAGIC else 0
            while trunk and trunk not in free:
                page = self[trunk]
                following, count = struct.unpack(">II", page[:8])
                free |= {trunk, *struct.unpack(f">{count}I", page[8 : 8 + 4 * count])}
                trunk = following
        except (KeyError, ValueError, struct.error):
            pass  # what can be told of it has been
        return free


def rows_of(path: pathlib.Path) -> tuple[list[Row], int]:
    """All rows that can be read.

    Args:
        path: The file.

    Returns:
        The rows, and the number of pages and cells that were to hold some and could not be read.
    """
    pages = _Pages(path)
    rows: list[Row] = []
    unreadable = pages.missing
    for number in pages:
        if number in pages.free:
            continue
        try:
            kind, cells = _cells(pages, number)
        except (ValueError, IndexError, struct.error):
            unreadable += 1
            continue
        for cell in cells:
            try:
                rows.append(_row(pages, number, kind, cell))
            except (ValueError, IndexError, KeyError, struct.error):
                unreadable += 1
    return rows, unreadable


def _cells(pages: _Pages, number: int) -> tuple[int, tuple[int, ...]]:
    """The kind of a page, and where its rows are; none, if it is of a kind that holds none."""
    page = pages[number]
    head = 100 if number == 1 else 0
    kind = page[head]
    if kind in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
        count = int.from_bytes(page[head + 3 : head + 5], "big")
        first = head + (12 if kind == _INDEX_INTERIOR else 8)
        return kind, struct.unpack(f">{count}H", page[first : first + 2 * count])
    if kind in (_TABLE_INTERIOR, 0) and any(page):
        return (
            kind,
            (),
        )  # the way to other pages; or the rest of a long row, of which the first four bytes are an address
    raise ValueError(f"page {number} is of no kind")


def _row(pages: _Pages, number: int, kind: int, at: int) -> Row:
    page = pages[number]
    if kind == _INDEX_INTERIOR:
        at += 4
    length, at = _varint(page, at)
    rowid = None
    if kind == _TABLE_LEAF:
        rowid, at = _varint(page, at)
    payload = _payload(pages, page, at, length, table=kind == _TABLE_LEAF)
    return ("table" if kind == _TABLE_LEAF else "index", rowid, _record(payload))


def _payload(pages: _Pages, page: bytes, at: int, p: int, *, table: bool) -> bytes:
    u = pages.size
    if p > u * len(pages):
        raise ValueError(f"expected a row that the file has room for, got {p} bytes")
    x = u - 35 if table else (u - 12) * 64 // 255 - 23
    if p <= x:
        return _exactly(page[at : at + p], p)
    m = (u - 12) * 32 // 255 - 23
    k = m + (p - m) % (u - 4)
    local = k if k <= x else m
    parts = [page[at : at + local]]
    left = p - local
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    while left > 0:
        rest = pages[following]
        parts.append(rest[4 : 4 + min(left, u - 4)])
        left -= u - 4
        following = int.from_bytes(rest[:4], "big")
    return _exactly(b"".join(parts), p)


def _record(payload: bytes) -> tuple[Any, ...]:
    size, at = _varint(payload, 0)
    kinds = []
    while at < size:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Any] = []
    at = size
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), at
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(_exactly(payload[at:end], end - at), "big", signed=True), end
    if kind == 7:
        return struct.unpack(">d", payload[at : at + 8])[0], at + 8
    if kind < 12:
        raise ValueError(f"there is no value of kind {kind}")
    end = at + (kind - 12) // 2
    data = _exactly(payload[at:end], end - at)
    return (data if kind % 2 == 0 else data.decode("utf-8")), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(9):
        byte = data[at + place]
        if place == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    raise AssertionError  # the ninth byte ends it


def _exactly(data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise ValueError(f"expected {length} bytes, got {len(data)}")
    return data

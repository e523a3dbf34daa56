"""What a row of each table of a plan must be, for telling whole rows from damaged ones."""

from __future__ import annotations

import json
from typing import Any

from tf_ext.tuner._pages import Row

__all__ = ["COLUMNS", "KEYS", "from_page", "whole"]

# In the order in which a row may refer to others. What processes had claimed is not among them: they have gone.
COLUMNS = {
    "context": ("id", "key", "description"),
    "node": ("id", "context", "parent", "start", "config"),
    "run": ("node", "start", "end", "history", "steps", "seconds", "stopped", "owner", "finished"),
    "checkpoint": ("node", "epoch", "name", "kind", "bytes", "used"),
    "study": ("id", "name", "objective", "direction", "settings", "created"),
    "trial": (
        "study", "trial", "execution", "values", "context", "leaf", "epochs", "status", "score", "best_epoch", "message",
    ),
    "event": ("id", "time", "study", "kind", "data"),
}  # fmt: skip
KEYS = {
    "context": (0,), "node": (0,), "run": (0, 1), "checkpoint": (0, 1, 3), "study": (0,), "trial": (0, 1, 2), "event": (0,),
}  # fmt: skip

# A letter for each column: a whole number, a real one, a text, JSON; lower case where NULL may stand.
_TYPES = {
    "context": "ITO", "node": "IIIIL", "run": "IIILIRITR", "checkpoint": "IITTIR", "study": "ITTTOR",
    "trial": "ITIOIIITrit", "event": "IRiTO",
}  # fmt: skip
_JSON = {"O": dict, "L": list}


def whole(table: str, row: tuple[Any, ...]) -> bool:
    """Whether all columns of a row are what they must be."""
    types = _TYPES[table]
    if len(row) != len(types) or not all(_fits(value, kind) for value, kind in zip(row, types, strict=True)):
        return False
    if table == "node":
        pairs = json.loads(row[4])
        return row[3] >= 0 and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if table == "run":
        history = json.loads(row[3])
        return 0 <= row[1] < row[2] and len(history) == row[2] - row[1] and all(isinstance(e, dict) for e in history)
    return True


def from_page(row: Row) -> tuple[str, tuple[Any, ...]] | None:
    """The table that a row of a page is of, which nothing but its columns tells, and the row; None if it is of none."""
    kind, rowid, values = row
    if kind == "table":
        for table in ("context", "node", "study", "event"):
            candidate = _real(table, (rowid, *values[1:]))
            if values[:1] == (None,) and whole(table, candidate):  # in place of its number, which is the rowid
                return table, candidate
        return None
    if len(values) == 6:  # the columns of the key are stored first
        values = (*values[:2], values[3], values[2], *values[4:])
    if len(values) == 5 and whole("node", (values[4], *values[:4])):
        return "node", (values[4], *values[:4])  # of the index that finds a node
    for table in ("run", "checkpoint", "trial"):
        candidate = _real(table, values)
        if whole(table, candidate):
            return table, candidate
    return None


def _real(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLite stores a real number that is whole as an integer."""
    if len(row) != len(_TYPES[table]):
        return row
    return tuple(
        float(value) if kind in "Rr" and isinstance(value, int) else value
        for value, kind in zip(row, _TYPES[table], strict=True)
    )


def _fits(value: Any, kind: str) -> bool:
    if value is None:
        return kind.islower()
    if kind in "Ii":
        return isinstance(value, int)
    if kind in "Rr":
        return isinstance(value, float)
    if not isinstance(value, str):
        return False
    if kind in _JSON:
        try:
            return isinstance(json.loads(value), _JSON[kind])
        except ValueError:
            return False
    return True

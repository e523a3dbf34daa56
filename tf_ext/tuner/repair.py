"""Saves what can be read of a damaged plan into a fresh file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tf_ext.tuner import _owners, _pages, _schema, _tables
from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError, PlanVersionError

__all__ = ["Repaired", "repair"]

Found = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]


@dataclasses.dataclass(frozen=True)
class Repaired:
    """What became of a plan.

    Attributes:
        directory: Where it lies.
        damaged: Where the damaged file is now; None if nothing was wrong, and nothing was done.
        kept: Rows of each table that are in the plan now.
        dropped: Rows that were read, but do not parse or refer to what is gone.
        unreadable: Pages and rows of the file that could not be read at all.
    """

    directory: pathlib.Path
    damaged: pathlib.Path | None
    kept: dict[str, int]
    dropped: dict[str, int]
    unreadable: int

    def told(self) -> str:
        """The same in sentences."""
        if self.damaged is None:
            return f"Nothing is wrong with the plan in {self.directory}; nothing was done."
        lines = [f"The plan in {self.directory} was made anew. The damaged file is kept: {self.damaged}"]
        for table, count in self.kept.items():
            dropped = self.dropped[table]
            lost = f", {dropped} dropped: damaged, or what they refer to is gone" if dropped else ""
            lines.append(f"  {table}: {count} kept{lost}")
        if self.unreadable:
            lines.append(f"  {self.unreadable} pages or rows could not be read; how many rows they held is not known.")
        lines.append("What is missing is trained again when a study asks for it.")
        return "\n".join(lines)


def repair(directory: str | os.PathLike[str]) -> Repaired:
    """Makes a plan anew from every row that can still be read.

    Args:
        directory: Of the plan. The damaged file stays in it under another name.

    Returns:
        What was kept and what was lost.

    Raises:
        PlanMismatchError: There is no plan, or a process is at work on it.
        PlanVersionError: The plan is of another version, which is no damage.
        CorruptedPlanError: Nothing can be read. The file is left as it is.
    """
    root = pathlib.Path(directory)
    path = root / _schema.FILE
    if not path.is_file():
        raise PlanMismatchError(f"expected a search plan in {root}, found no {_schema.FILE}. Check the path.")
    folder = root / "owners"
    at_work = [p.name for p in folder.iterdir() if _owners.alive(root, p.name)] if folder.is_dir() else []
    if at_work:
        raise PlanMismatchError(f"expected nobody at work on {root}, found {', '.join(at_work)}. Stop it, then repair.")
    found, unreadable, sound = _salvage(path)
    kept, dropped = _check_references(found)
    lost = {table: dropped[table] + damaged for table, damaged in _damaged(found).items()}
    counts = {table: len(rows) for table, rows in kept.items()}
    if sound and not any(lost.values()):
        return Repaired(root, None, counts, lost, 0)
    if not any(counts.values()):
        raise CorruptedPlanError(
            f"expected something that can be read in {path}, found nothing. It was left as it is; to begin anew, move it "
            "away."
        )
    return Repaired(root, _replace(root, path, kept), counts, lost, unreadable)


def _salvage(path: pathlib.Path) -> tuple[Found, int, bool]:
    """The rows, damaged ones among them; how much could not be read; and whether SQLite finds the file sound."""
    found: Found = {table: {} for table in _tables.COLUMNS}
    unread = set(_tables.COLUMNS)
    sound = False
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
        db.text_factory = _text
        with contextlib.suppress(sqlite3.DatabaseError):
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _schema.VERSION) and not _damaged_schema(db):
                raise PlanVersionError(
                    f"expected a plan of version {_schema.VERSION}, got version {version} in {path}."
                )
        for table, rows in found.items():
            if _select(db, table, rows):
                unread.discard(table)
        with contextlib.suppress(sqlite3.DatabaseError):
            sound = [row[0] for row in db.execute("PRAGMA quick_check(1)")] == ["ok"]
    unreadable = 0
    if unread or not sound:
        rows_of_pages, unreadable = _pages.rows_of(path)
        for table, row in filter(None, map(_tables.from_page, rows_of_pages)):
            # Where SQLite read a table to its end, a row that it did not see was deleted.
            if table in unread:
                found[table].setdefault(_key(table, row), row)
    return found, unreadable, sound and not unread


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None  # where a text must stand, the row is damaged then


def _damaged_schema(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT COUNT(*) FROM sqlite_master WHERE name IN ('node', 'run', 'trial')").fetchone()[0] != 3


def _select(db: sqlite3.Connection, table: str, rows: dict[tuple[Any, ...], tuple[Any, ...]]) -> bool:
    """Reads a table from its beginning, and where that fails, from its end; whether all of it was read."""
    columns = ", ".join(f'"{name}"' for name in _tables.COLUMNS[table])
    order = ", ".join(f'"{_tables.COLUMNS[table][place]}" DESC' for place in _tables.KEYS[table])
    for query in (f"SELECT {columns} FROM {table}", f"SELECT {columns} FROM {table} ORDER BY {order}"):
        try:
            for row in db.execute(query):
                rows.setdefault(_key(table, row), row)
        except sqlite3.DatabaseError:
            continue
        return not query.endswith("DESC")
    return False


def _key(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(row[place] for place in _tables.KEYS[table])


def _damaged(found: Found) -> dict[str, int]:
    return {table: sum(not _tables.whole(table, row) for row in rows.values()) for table, rows in found.items()}


def _check_references(found: Found) -> tuple[dict[str, list[tuple[Any, ...]]], dict[str, int]]:
    """The whole rows of which all that they refer to is there, and how many others there are."""
    whole = {table: [row for row in rows.values() if _tables.whole(table, row)] for table, rows in found.items()}
    contexts = {row[0] for row in whole["context"]}
    studies = {row[0] for row in whole["study"]}
    nodes = {0}
    for row in sorted(whole["node"]):  # a node is written after its parent
        if row[1] in contexts and row[2] in nodes:
            nodes.add(row[0])
    refers: dict[str, Callable[[tuple[Any, ...]], bool]] = {
        "context": lambda row: True,
        "node": lambda row: row[0] in nodes,
        "run": lambda row: row[0] in nodes,
        "checkpoint": lambda row: row[0] in nodes,
        "study": lambda row: True,
        "trial": lambda row: row[0] in studies and row[5] in nodes and (row[4] in contexts or row[5] == 0),
        "event": lambda row: row[2] is None or row[2] in studies,
    }
    kept = {table: [row for row in rows if refers[table](row)] for table, rows in whole.items()}
    return kept, {table: len(whole[table]) - len(kept[table]) for table in whole}


def _replace(root: pathlib.Path, path: pathlib.Path, kept: dict[str, list[tuple[Any, ...]]]) -> pathlib.Path:
    """Puts a fresh file in the place of the damaged one, and returns where that is."""
    stem = f"{_schema.FILE}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    damaged = next(p for n in range(1, 1000) if not (p := root / (stem if n == 1 else f"{stem}-{n}")).exists())
    with tempfile.TemporaryDirectory(dir=root, prefix=".repair-") as scratch:
        _write(pathlib.Path(scratch), kept)
        fresh = pathlib.Path(scratch) / _schema.FILE
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        shutil.copy2(path, damaged)
        wal = path.with_name(path.name + "-wal")
        if wal.exists():
            shutil.copy2(wal, f"{damaged}-wal")
        # The WAL goes first: with it, SQLite would write pages of the damaged file into the fresh one.
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        os.replace(fresh, path)
    return damaged


def _write(directory: pathlib.Path, kept: dict[str, list[tuple[Any, ...]]]) -> None:
    with contextlib.closing(_schema.connect(directory, create=True)) as db:
        db.execute("BEGIN")
        for table, rows in kept.items():
            marks = ", ".join("?" * len(_tables.COLUMNS[table]))
            columns = ", ".join(f'"{name}"' for name in _tables.COLUMNS[table])
            db.executemany(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", rows)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

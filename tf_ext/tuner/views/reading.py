"""What a search plan holds, as rows, read without ever writing to it.

`Plan` would switch the file to WAL mode and make a file for its process; someone who only looks must not need the right
to write, and must not be taken for a worker.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import gc
import json
import os
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from tf_ext.tuner import _schema
from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError, PlanVersionError
from tf_ext.tuner.plan import Plan

__all__ = ["NodeRow", "Rows", "RunRow", "StudyRow", "TrialRow", "no_collections", "read_rows"]

_OWNERS = "owners"


class NodeRow(NamedTuple):
    """A node of the plan; `parent` is 0 for those that begin with a fresh model. `config` is the text in the file."""

    id: int
    context: int
    parent: int
    start: int
    config: str


class RunRow(NamedTuple):
    """What was trained of a node. `history` is the text in the file."""

    start: int
    end: int
    history: str
    steps: int
    seconds: float
    stopped: int


class StudyRow(NamedTuple):
    """A study: its name, and what it looks for; `direction` is ``"min"`` or ``"max"``."""

    id: int
    name: str
    objective: str
    direction: str


class TrialRow(NamedTuple):
    """One execution of a trial, as `TrialRecord`, and the number of its study. `values` is the text in the file."""

    study: int
    trial: str
    execution: int
    values: str
    leaf: int
    epochs: int
    status: str
    score: float | None
    best_epoch: int | None
    message: str | None


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a plan at one moment. JSON in them is left unread: most of a hundred thousand are not looked at.

    Attributes:
        directory: Where the plan lies.
        nodes: By number.
        runs: By node, in the order of epochs.
        claims: Node, start and end of what a process that lives is training.
        studies: All, in the order in which they were made.
        trials: All executions.
        repeated: Node, steps and seconds of what was trained again for the sake of a checkpoint.
        checkpoints: How many there are, and their bytes.
    """

    directory: pathlib.Path
    nodes: dict[int, NodeRow]
    runs: dict[int, list[RunRow]]
    claims: list[tuple[int, int, int]]
    studies: list[StudyRow]
    trials: list[TrialRow]
    repeated: list[tuple[int, int, float]]
    checkpoints: tuple[int, int]


def read_rows(plan: Plan | str | os.PathLike[str]) -> Rows:
    """Reads a plan.

    Args:
        plan: The plan, or the directory in which it lies.

    Returns:
        Its rows, all of the same moment.

    Raises:
        PlanMismatchError: There is none.
        PlanVersionError: It is of another version.
        CorruptedPlanError: It cannot be read.
    """
    directory = plan.directory if isinstance(plan, Plan) else pathlib.Path(plan)
    with _opened(directory) as db, no_collections():
        try:
            return _read(db, directory)
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, sqlite3.OperationalError) and "no such table" not in str(error):
                raise  # locked, or the disk: nothing is wrong with the file
            raise _corrupted(directory, error) from error


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Keeps the garbage collector from looking at a growing heap again and again; half of the time goes there else."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _opened(directory: pathlib.Path) -> Iterator[sqlite3.Connection]:
    path = directory / _schema.FILE
    if not path.is_file():
        raise PlanMismatchError(
            f"expected the directory of a search plan, found no {_schema.FILE} in {directory}. Check the path; "
            "a tuner writes its plan below <directory>/<project_name>."
        )
    db = _connect(path)
    try:
        try:
            version = db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise _corrupted(directory, error) from error
        if version not in (0, _schema.VERSION):
            raise PlanVersionError(
                f"expected a search plan of schema version {_schema.VERSION}, got version {version} in {path}. Look at it "
                "with the tf_ext that wrote it."
            )
        yield db
    finally:
        db.close()


def _connect(path: pathlib.Path) -> sqlite3.Connection:
    uri = path.resolve().as_uri()
    wal = path.with_name(path.name + "-wal")
    # SQLite reads a file in WAL mode only where it may make its index of the WAL; nobody can be writing where that is
    # forbidden, unless there is a WAL already.
    frozen = not os.access(path.parent, os.W_OK) and not wal.exists()
    mode = "immutable=1" if frozen else "mode=ro"
    return sqlite3.connect(f"{uri}?{mode}", uri=True, timeout=10.0, isolation_level=None)


def _corrupted(directory: pathlib.Path, error: Exception) -> CorruptedPlanError:
    return CorruptedPlanError(
        f"expected a whole plan in {directory}, got one that cannot be read ({error}). Save what can be saved: "
        f"tf-ext tuner repair {directory}"
    )


def _read(db: sqlite3.Connection, directory: pathlib.Path) -> Rows:
    if not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        return Rows(directory, {}, {}, [], [], [], [], (0, 0))  # a process is just making it
    db.execute("BEGIN")  # all of one moment
    studies = db.execute("SELECT id, name, objective, direction FROM study ORDER BY id")
    trials = db.execute(
        'SELECT study, trial, execution, "values", leaf, epochs, status, score, best_epoch, message FROM trial '
        "ORDER BY study, trial, execution"
    )
    nodes = db.execute("SELECT id, context, parent, start, config FROM node ORDER BY id")
    again = (json.loads(row[0]) for row in db.execute("SELECT data FROM event WHERE kind = 'again' ORDER BY id"))
    return Rows(
        directory=directory,
        nodes={row[0]: NodeRow._make(row) for row in nodes},
        runs=_runs(db),
        claims=_claims(db, directory),
        studies=[StudyRow._make(row) for row in studies],
        trials=[TrialRow._make(row) for row in trials],
        repeated=[(int(e["node"]), int(e["steps"]), float(e.get("seconds", 0.0))) for e in again],
        checkpoints=db.execute("SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM checkpoint").fetchone(),
    )


def _runs(db: sqlite3.Connection) -> dict[int, list[RunRow]]:
    runs: dict[int, list[RunRow]] = collections.defaultdict(list)
    query = "SELECT node, start, end, history, steps, seconds, stopped FROM run ORDER BY node, start"
    for node, *run in db.execute(query):
        runs[node].append(RunRow._make(run))
    return dict(runs)


def _claims(db: sqlite3.Connection, directory: pathlib.Path) -> list[tuple[int, int, int]]:
    rows: list[Any] = db.execute("SELECT node, start, end, owner FROM claim").fetchall()
    living = {owner for owner in {row[3] for row in rows} if _lives(directory / _OWNERS / owner)}
    return [(node, start, end) for node, start, end, owner in rows if owner in living]


def _lives(path: pathlib.Path) -> bool:
    """Whether a process holds the lock of its file. Unlike a worker that looks, this leaves the file where it is."""
    try:
        file = path.open("rb")
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False

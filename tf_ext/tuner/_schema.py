"""The tables of a search plan, and how its file is opened.

One SQLite file in WAL mode: several processes and several studies read and write it at the same time.
"""

from __future__ import annotations

import os
import pathlib
import sqlite3

from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError, PlanVersionError

__all__ = ["FILE", "VERSION", "connect"]

FILE = "plan.sqlite"
VERSION = 1
_BUSY_SECONDS = 60.0

# A node is one training with unchanged hyper-parameters from the end of its parent's part, of no given length: a child
# leaves it at any epoch. `run` tells which epochs of it were trained, so that a stage, the unit of execution, is a part
# of a node and is found anew for each set of requests (Hippo, section 4.1: search plan and stage tree).
_TABLES = """
CREATE TABLE context (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  description TEXT NOT NULL
);
CREATE TABLE node (
  id INTEGER PRIMARY KEY,
  context INTEGER NOT NULL REFERENCES context (id),
  parent INTEGER NOT NULL,
  start INTEGER NOT NULL,
  config TEXT NOT NULL,
  UNIQUE (context, parent, start, config)
);
CREATE TABLE run (
  node INTEGER NOT NULL REFERENCES node (id),
  start INTEGER NOT NULL,
  end INTEGER NOT NULL,
  history TEXT NOT NULL,
  steps INTEGER NOT NULL,
  seconds REAL NOT NULL,
  stopped INTEGER NOT NULL,
  owner TEXT NOT NULL,
  finished REAL NOT NULL,
  PRIMARY KEY (node, start)
) WITHOUT ROWID;
CREATE TABLE checkpoint (
  node INTEGER NOT NULL REFERENCES node (id),
  epoch INTEGER NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  used REAL NOT NULL,
  PRIMARY KEY (node, epoch, kind)
) WITHOUT ROWID;
CREATE TABLE claim (
  node INTEGER NOT NULL REFERENCES node (id),
  start INTEGER NOT NULL,
  end INTEGER NOT NULL,
  owner TEXT NOT NULL,
  PRIMARY KEY (node, start)
) WITHOUT ROWID;
CREATE TABLE study (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  objective TEXT NOT NULL,
  direction TEXT NOT NULL,
  settings TEXT NOT NULL,
  created REAL NOT NULL
);
CREATE TABLE trial (
  study INTEGER NOT NULL REFERENCES study (id),
  trial TEXT NOT NULL,
  execution INTEGER NOT NULL,
  "values" TEXT NOT NULL,
  context INTEGER NOT NULL REFERENCES context (id),
  leaf INTEGER NOT NULL,
  epochs INTEGER NOT NULL,
  status TEXT NOT NULL,
  score REAL,
  best_epoch INTEGER,
  message TEXT,
  PRIMARY KEY (study, trial, execution)
) WITHOUT ROWID;
CREATE TABLE event (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time REAL NOT NULL,
  study INTEGER,
  kind TEXT NOT NULL,
  data TEXT NOT NULL
);
"""


def connect(directory: str | os.PathLike[str], *, create: bool) -> sqlite3.Connection:
    """Opens the plan of a directory, and makes it where there is none.

    Raises:
        PlanMismatchError: There is none, and `create` is false.
        PlanVersionError: It is of another version of the schema.
        CorruptedPlanError: It cannot be read.
    """
    path = pathlib.Path(directory) / FILE
    if not create and not path.exists():
        raise PlanMismatchError(f"expected a search plan in {directory}, found no {FILE}. Check the path.")
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # A killed process loses nothing with it; a power cut may take the last transactions, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            _make_tables(connection)
        elif version != VERSION:
            raise PlanVersionError(
                f"expected a search plan of schema version {VERSION}, got version {version} in {path}. Open it with the "
                "tf_ext that wrote it, or use another directory."
            )
    except sqlite3.DatabaseError as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError):  # locked, read-only, no space: nothing is wrong with the file
            raise
        raise CorruptedPlanError(
            f"expected a search plan in {path}, got a file that cannot be read ({error}). Save what can be saved: "
            f"tf-ext tuner repair {directory}"
        ) from error
    except PlanVersionError:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # another process may have been first
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")

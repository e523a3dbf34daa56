"""The search plan: what was asked for, what was trained, and where the checkpoints are. Durable, and shared by studies."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tf_ext.tuner import _owners, _schema
from tf_ext.tuner.errors import CorruptedPlanError
from tf_ext.tuner.segments import Config, Path

__all__ = ["NodeSpan", "Plan", "Run", "TrialRecord"]

History = list[dict[str, float]]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSpan:
    """The part of a node that a path goes through.

    Attributes:
        node: Number of the node.
        start: Epochs that are done when the node begins.
        end: Epochs that are done where the path leaves it.
        config: Its hyper-parameters.
    """

    node: int
    start: int
    end: int
    config: Config


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A stretch of a node that was trained.

    Attributes:
        node: Number of the node.
        start: Epochs that were done before it.
        end: Epochs that were done after it.
        history: The metrics of each of its epochs.
        steps: Optimizer steps.
        seconds: From its first step to its last.
        stopped: Whether a callback ended the training, so that nothing follows.
        owner: The process that trained it.
        finished: When, in seconds since 1970.
    """

    node: int
    start: int
    end: int
    history: History
    steps: int
    seconds: float
    stopped: bool = False
    owner: str = ""
    finished: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class TrialRecord:
    """One execution of a trial of a study.

    Attributes:
        trial: Id of the trial.
        execution: From 0 on; see `executions_per_trial`.
        values: Its hyper-parameters, sequences as their texts.
        context: What it is trained with; see `Plan.context`.
        leaf: The node at which its path ends.
        epochs: The epochs it asks for.
        status: As Keras Tuner's.
        score: Value of the objective at the best epoch.
        best_epoch: That epoch, from 0 on.
        message: What went wrong.
    """

    trial: str
    execution: int
    values: dict[str, Any]
    context: int
    leaf: int
    epochs: int
    status: str
    score: float | None = None
    best_epoch: int | None = None
    message: str | None = None


class Plan:
    """The search plan of a directory. Several processes may hold it open.

    Args:
        directory: Where it lies.
        create: Make it if there is none.

    Raises:
        PlanMismatchError: There is none, and `create` is false.
        PlanVersionError: It is of another version.
        CorruptedPlanError: It cannot be read.

    Example:
        with Plan("studies/digits") as plan:
            print(plan.totals())

    Source: Hippo, section 4.1.
    """

    def __init__(self, directory: str | os.PathLike[str], *, create: bool = True) -> None:
        self.directory = pathlib.Path(directory)
        self._db = _schema.connect(self.directory, create=create)
        self._owner: _owners.Owner | None = None

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. What this process had claimed is free."""
        if self._owner is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("DELETE FROM claim WHERE owner = ?", (self._owner.id,))
            self._owner.close()
            self._owner = None
        self._db.close()

    @property
    def owner(self) -> str:
        """The name of this process at the plan. Asking for it makes the process known to the others."""
        if self._owner is None:
            self._owner = _owners.Owner(self.directory)
        return self._owner.id

    @property
    def shared(self) -> bool:
        """Whether other processes are at work on the plan now."""
        return self._owner is not None and bool(_owners.others(self.directory, self._owner))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what is written meanwhile."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # --- what is trained ---------------------------------------------------------------------------------------------

    def context(self, key: str, description: Mapping[str, Any]) -> int:
        """The number of what trials must have in common to share: model, data, seed and environment."""
        self._db.execute(
            "INSERT OR IGNORE INTO context (key, description) VALUES (?, ?)", (key, json.dumps(description))
        )
        return self._one("SELECT id FROM context WHERE key = ?", key)

    def description(self, context: int) -> dict[str, Any]:
        """What a context was described with."""
        row = self._db.execute("SELECT description FROM context WHERE id = ?", (context,)).fetchone()
        return dict(json.loads(row[0]))

    def nodes(self, context: int, path: Path) -> list[NodeSpan]:
        """The nodes that a path goes through; those that are new are written down. Equal neighbours are one node."""
        spans: list[NodeSpan] = []
        parent = 0
        for segment in path:
            if spans and spans[-1].config == segment.config:
                spans[-1] = dataclasses.replace(spans[-1], end=segment.end)
                continue
            parent = self._node(context, parent, segment.start, segment.config)
            spans.append(NodeSpan(parent, segment.start, segment.end, segment.config))
        return spans

    def _node(self, context: int, parent: int, start: int, config: Config) -> int:
        row = (context, parent, start, json.dumps(config))
        query = "SELECT id FROM node WHERE context = ? AND parent = ? AND start = ? AND config = ?"
        found = self._db.execute(query, row).fetchone()
        if found is None:
            self._db.execute("INSERT OR IGNORE INTO node (context, parent, start, config) VALUES (?, ?, ?, ?)", row)
            found = self._db.execute(query, row).fetchone()
        return int(found[0])

    def node_at(self, leaf: int, epoch: int) -> int:
        """The node of the path to a leaf in which an epoch lies."""
        node = leaf
        while True:
            row = self._db.execute("SELECT parent, start FROM node WHERE id = ?", (node,)).fetchone()
            if row is None or row[1] <= epoch:
                return node
            node = int(row[0])

    def runs(self, node: int) -> list[Run]:
        """What was trained of a node, in the order of epochs."""
        rows = self._db.execute("SELECT * FROM run WHERE node = ? ORDER BY start", (node,))
        return [
            Run(node, start, end, json.loads(history), steps, seconds, bool(stopped), owner, finished)
            for node, start, end, history, steps, seconds, stopped, owner, finished in rows
        ]

    def record(self, run: Run, *, again: bool = False) -> None:
        """Writes down that a stretch was trained, and gives up the claim on it.

        Args:
            run: What was trained.
            again: Its metrics are known, and it was trained for the sake of its checkpoint.
        """
        row = (run.node, run.start, run.end, json.dumps(run.history), run.steps, run.seconds, int(run.stopped))
        if not again:
            self._db.execute(
                "INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, self.owner, time.time())
            )
        data = {"node": run.node, "start": run.start, "end": run.end, "steps": run.steps, "seconds": run.seconds}
        self.log("again" if again else "run", {**data, "owner": self.owner})
        self._db.execute("DELETE FROM claim WHERE node = ? AND start = ?", (run.node, run.start))

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoints(self, kind: str = "state") -> dict[tuple[int, int], tuple[str, int]]:
        """Name and bytes of all checkpoints of a kind, by node and epoch."""
        rows = self._db.execute("SELECT node, epoch, name, bytes FROM checkpoint WHERE kind = ? ORDER BY used", (kind,))
        return {(node, epoch): (name, size) for node, epoch, name, size in rows}

    def checkpoint(self, node: int, epoch: int, kind: str = "state") -> str | None:
        """Name of the checkpoint that was taken of a node when so many epochs were done."""
        row = self._db.execute(
            "SELECT name FROM checkpoint WHERE node = ? AND epoch = ? AND kind = ?", (node, epoch, kind)
        ).fetchone()
        return None if row is None else str(row[0])

    def add_checkpoint(self, node: int, epoch: int, name: str, size: int, kind: str = "state") -> None:
        """Writes down that a checkpoint is there."""
        row = (node, epoch, name, kind, size, time.time())
        self._db.execute("INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?, ?)", row)

    def drop_checkpoint(self, node: int, epoch: int, kind: str = "state") -> None:
        """Writes down that a checkpoint goes; before its data do, so that none is named that is not there."""
        self._db.execute("DELETE FROM checkpoint WHERE node = ? AND epoch = ? AND kind = ?", (node, epoch, kind))

    # --- claims ------------------------------------------------------------------------------------------------------

    def claim(self, node: int, start: int, end: int) -> bool:
        """Takes a stretch for this process, unless another one that lives has it."""
        while True:
            row = (node, start, end, self.owner)
            if self._db.execute("INSERT OR IGNORE INTO claim VALUES (?, ?, ?, ?)", row).rowcount == 1:
                return True
            holder = self._db.execute("SELECT owner FROM claim WHERE node = ? AND start = ?", (node, start)).fetchone()
            if holder is None:
                continue  # given up in between
            if holder[0] == self.owner:
                return True
            if _owners.alive(self.directory, holder[0]):
                return False
            self._db.execute("DELETE FROM claim WHERE owner = ?", holder)

    def release(self, node: int, start: int) -> None:
        """Gives up a claim."""
        self._db.execute("DELETE FROM claim WHERE node = ? AND start = ? AND owner = ?", (node, start, self.owner))

    # --- studies and trials ------------------------------------------------------------------------------------------

    def study(self, name: str, objective: str, direction: str, settings: Mapping[str, Any]) -> int:
        """The number of a study; its settings are those of the last call."""
        self._db.execute(
            "INSERT INTO study (name, objective, direction, settings, created) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET objective = excluded.objective, direction = excluded.direction, "
            "settings = excluded.settings",
            (name, objective, direction, json.dumps(settings), time.time()),
        )
        return self._one("SELECT id FROM study WHERE name = ?", name)

    def studies(self) -> list[dict[str, Any]]:
        """Id, name, objective, direction and settings of all studies."""
        rows = self._db.execute("SELECT id, name, objective, direction, settings FROM study ORDER BY id")
        names = ("id", "name", "objective", "direction", "settings")
        return [{**dict(zip(names, row, strict=True)), "settings": json.loads(row[4])} for row in rows]

    def put_trial(self, study: int, record: TrialRecord) -> None:
        """Writes down a trial as it is now."""
        row = (record.trial, record.execution, json.dumps(record.values), record.context, record.leaf, record.epochs)
        state = (record.status, record.score, record.best_epoch, record.message)
        self._db.execute(f"INSERT OR REPLACE INTO trial VALUES ({', '.join('?' * 11)})", (study, *row, *state))

    def trials(self, study: int) -> list[TrialRecord]:
        """The trials of a study, by id."""
        rows = self._db.execute("SELECT * FROM trial WHERE study = ? ORDER BY trial, execution", (study,))
        return [TrialRecord(row[1], row[2], json.loads(row[3]), *row[4:]) for row in rows]

    def log(self, kind: str, data: Mapping[str, Any], study: int | None = None) -> None:
        """Appends to the event log."""
        self._db.execute(
            "INSERT INTO event (time, study, kind, data) VALUES (?, ?, ?, ?)",
            (time.time(), study, kind, json.dumps(data)),
        )

    def events(self, study: int | None = None, kinds: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The event log in order: ``time``, ``study``, ``kind`` and ``data``."""
        wanted = None if kinds is None else set(kinds)
        rows = self._db.execute("SELECT time, study, kind, data FROM event ORDER BY id")
        return [
            {"time": at, "study": of, "kind": kind, "data": json.loads(data)}
            for at, of, kind, data in rows
            if (study is None or of == study) and (wanted is None or kind in wanted)
        ]

    # --- for those who look at it ------------------------------------------------------------------------------------

    def totals(self) -> dict[str, float]:
        """Numbers of nodes, runs, trials and checkpoints, and steps and seconds that were trained."""
        counts = {name: self._one(f"SELECT COUNT(*) FROM {name}") for name in ("node", "run", "trial", "checkpoint")}
        steps, seconds = self._db.execute(
            "SELECT COALESCE(SUM(steps), 0), COALESCE(SUM(seconds), 0) FROM run"
        ).fetchone()
        again = sum(e["data"]["steps"] for e in self.events(kinds=["again"]))
        return {**counts, "steps": steps, "again": again, "seconds": seconds}

    def all_nodes(self) -> list[tuple[int, int, int, int, Config]]:
        """Number, context, parent, start and configuration of all nodes, parents first."""
        rows = self._db.execute("SELECT id, context, parent, start, config FROM node ORDER BY id")
        return [(i, c, p, s, tuple((n, v) for n, v in json.loads(config))) for i, c, p, s, config in rows]

    def all_runs(self) -> list[Run]:
        """All that was trained, in the order in which it was."""
        nodes = self._db.execute("SELECT DISTINCT node FROM run").fetchall()
        return sorted((run for (node,) in nodes for run in self.runs(node)), key=lambda run: run.finished)

    def check(self) -> None:
        """Looks at the whole file.

        Raises:
            CorruptedPlanError: Something in it is damaged.
        """
        found = [row[0] for row in self._db.execute("PRAGMA quick_check(3)")]
        if found != ["ok"]:
            raise CorruptedPlanError(
                f"expected a whole plan in {self.directory}, found: {'; '.join(found)}. Save what can be saved: "
                f"tf-ext tuner repair {self.directory}"
            )

    def _one(self, query: str, *arguments: Any) -> int:
        return int(self._db.execute(query, arguments).fetchone()[0])

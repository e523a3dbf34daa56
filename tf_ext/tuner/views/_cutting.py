"""Cuts the nodes of a plan into stages: where children leave, trials end, and what was trained begins or ends."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Sequence

from tf_ext.tuner.views.reading import NodeRow, Rows, RunRow, TrialRow

__all__ = ["Piece", "Pieces", "cut"]

_RESUMED = "tuner/initial_epoch"
_WAITING = frozenset({"RUNNING", "IDLE"})
_FAILED = frozenset({"FAILED", "INVALID"})

Children = dict[int, dict[int, list[NodeRow]]]


@dataclasses.dataclass(slots=True)
class Piece:
    """A stage before it is known whether anyone wants it.

    Attributes:
        node: The node that it is a part of.
        start: Epochs that are done when it begins.
        end: Epochs that are done when it ends.
        parent: Place of the stage before it, -1 if there is none.
        run: What was trained of the node and has this part in it.
        claimed: Whether a process that lives is training it.
        ends: The trials that end with it, as places in the list of trials.
        waiting: How many trials that go through it are not over.
        failed: How many of them failed.
        through: How many there are.
        resumed: How many of them took it over from the trial that they go on with, as Hyperband's do in any tuner.
        trained: Whether it or something behind it was trained.
    """

    node: NodeRow
    start: int
    end: int
    parent: int
    run: RunRow | None = None
    claimed: bool = False
    ends: list[int] = dataclasses.field(default_factory=list)
    waiting: int = 0
    failed: int = 0
    through: int = 0
    resumed: int = 0
    trained: bool = False

    @property
    def stopped(self) -> bool:
        """Whether a callback ended the training with it."""
        return self.run is not None and bool(self.run.stopped) and self.run.end == self.end

    @property
    def state(self) -> str:
        """``"done"``, ``"running"``, ``"pending"`` or ``"failed"``."""
        if self.run is not None:
            return "done"
        if self.claimed:
            return "running"
        return "failed" if self.failed and not self.waiting else "pending"

    @property
    def wanted(self) -> bool:
        """Whether it is there or somebody waits for it; not, if all trials that asked for it were ended before."""
        return self.trained or self.claimed or bool(self.waiting or self.failed) or not self.through


Pieces = list[Piece]


def cut(rows: Rows, trials: list[TrialRow], *, only_of_trials: bool) -> Pieces:
    """The stages of a plan, a stage always followed by all that are behind it.

    Args:
        rows: The plan.
        trials: The trials to look at.
        only_of_trials: Leave out what none of them goes through.

    Returns:
        The stages; `Piece.parent` is a place in the list.
    """
    nodes = _on_paths(rows, trials) if only_of_trials else rows.nodes
    children: Children = {}  # by parent and by the epoch at which they leave it
    for node in nodes.values():
        of_parent = children.setdefault(node.parent if node.parent in nodes else 0, {})
        of_parent.setdefault(node.start, []).append(node)
    ends = _ends(nodes, trials)
    pieces = _walk(rows, children, ends, limit=only_of_trials)
    for number, start, end in rows.claims:
        if number in nodes:
            for place in pieces.of(number, start, end):
                pieces.found[place].claimed = True
    _count(pieces.found, trials)
    return _kept(pieces.found)


def _on_paths(rows: Rows, trials: list[TrialRow]) -> dict[int, NodeRow]:
    kept: dict[int, NodeRow] = {}
    for trial in trials:
        number = trial.leaf
        while number in rows.nodes and number not in kept:
            kept[number] = rows.nodes[number]
            number = rows.nodes[number].parent
    return kept


def _ends(nodes: dict[int, NodeRow], trials: list[TrialRow]) -> dict[int, dict[int, list[int]]]:
    """The places of the trials that end at a node, by epoch."""
    ends: dict[int, dict[int, list[int]]] = collections.defaultdict(dict)
    for place, trial in enumerate(trials):
        node = nodes.get(trial.leaf)
        if node is not None and trial.epochs > node.start:
            ends[node.id].setdefault(trial.epochs, []).append(place)
    return ends


class _Found:
    """The stages in order, and where those of a node are."""

    def __init__(self) -> None:
        self.found: Pieces = []
        self.places: dict[int, list[int]] = collections.defaultdict(list)

    def add(self, piece: Piece) -> int:
        self.places[piece.node.id].append(len(self.found))
        self.found.append(piece)
        return len(self.found) - 1

    def of(self, node: int, start: int, end: int) -> list[int]:
        return [p for p in self.places[node] if start <= self.found[p].start and self.found[p].end <= end]


def _walk(
    rows: Rows,
    children: Children,
    ends: dict[int, dict[int, list[int]]],
    *,
    limit: bool,
) -> _Found:
    found = _Found()
    claims: dict[int, set[int]] = collections.defaultdict(set)
    for number, start, end in rows.claims:
        claims[number] |= {start, end}

    def points(node: NodeRow) -> list[int]:
        asked = {node.start, *children.get(node.id, ()), *ends.get(node.id, ())}
        seen = {epoch for run in rows.runs.get(node.id, ()) for epoch in (run.start, run.end)}
        seen |= claims.get(node.id, set())
        if limit:  # what others trained behind the last of these trials is not theirs
            seen = {epoch for epoch in seen if epoch <= max(asked)}
        return sorted(epoch for epoch in asked | seen if epoch >= node.start)

    # Each entry: a node, its points, which part of it comes next, and the stage before.
    roots = [node for nodes in children.get(0, {}).values() for node in nodes]
    todo = [(node, points(node), 0, -1) for node in reversed(roots)]
    while todo:
        node, cuts, part, before = todo.pop()
        leaving = children.get(node.id, {})
        if part == 0:  # no path has such a child, but a file that was repaired may
            early = [child for start, some in leaving.items() if start <= node.start for child in some]
            todo.extend((child, points(child), 0, before) for child in early)
        if part + 1 == len(cuts):
            continue
        start, end = cuts[part : part + 2]
        at = found.add(Piece(node, start, end, before, _covering(rows.runs.get(node.id, ()), start, end)))
        found.found[at].ends = ends.get(node.id, {}).get(end, [])
        todo.extend((child, points(child), 0, at) for child in reversed(leaving.get(end, [])))
        if part + 2 < len(cuts):
            todo.append((node, cuts, part + 1, at))  # last in, first out: the node goes on before others branch off
    return found


def _covering(runs: Sequence[RunRow], start: int, end: int) -> RunRow | None:
    return next((run for run in runs if run.start <= start and end <= run.end), None)


def _count(pieces: Pieces, trials: list[TrialRow]) -> None:
    for piece in reversed(pieces):  # what is behind a stage comes before it here
        statuses = [trials[place].status for place in piece.ends]
        piece.through += len(statuses)
        piece.waiting += sum(status in _WAITING for status in statuses)
        piece.failed += sum(status in _FAILED for status in statuses)
        piece.trained |= piece.run is not None
        if piece.parent >= 0:
            parent = pieces[piece.parent]
            parent.through += piece.through
            parent.waiting += piece.waiting
            parent.failed += piece.failed
            parent.trained |= piece.trained
        for begin in filter(None, (_initial_epoch(trials[place]) for place in piece.ends)):
            at = piece
            while True:
                at.resumed += at.end <= begin
                if at.parent < 0:
                    break
                at = pieces[at.parent]


def _initial_epoch(trial: TrialRow) -> int:
    """Where a trial goes on that Keras Tuner, too, would not train from its beginning."""
    if _RESUMED not in trial.values:
        return 0
    begin = json.loads(trial.values).get(_RESUMED)
    return begin if isinstance(begin, int) else 0


def _kept(pieces: Pieces) -> Pieces:
    kept: Pieces = []
    place: dict[int, int] = {-1: -1}  # where each stage, or the last one before it that is kept, is in the end
    dropped: set[int] = set()
    for number, piece in enumerate(pieces):
        before = piece.parent
        gone = before in dropped or (before >= 0 and pieces[before].stopped)
        if not piece.trained and not piece.claimed and (gone or not piece.wanted):
            dropped.add(number)
            place[number] = place[before]
            if place[before] >= 0:  # its trials went as far as that
                kept[place[before]].ends = [*kept[place[before]].ends, *piece.ends]
            continue
        place[number] = len(kept)
        kept.append(piece)
    for piece in kept:
        piece.parent = place[piece.parent]
    return kept

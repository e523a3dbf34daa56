"""What the trials of a plan asked for, and what was done for them."""

from __future__ import annotations

import collections
import dataclasses

from tf_ext.tuner.views._cutting import Piece, Pieces
from tf_ext.tuner.views.reading import Rows, TrialRow

__all__ = ["STATES", "Totals", "share", "totals_of"]

STATES = ("done", "running", "pending", "failed")


@dataclasses.dataclass(frozen=True, slots=True)
class Totals:
    """What the trials asked for, and what was done for them.

    Attributes:
        stages: Number of stages in each state.
        statuses: Number of executions of trials in each status.
        requested: Steps that the trials would have taken alone, as far as they have come; a trial that goes on with
            another one (``tuner/initial_epoch``) takes those that follow.
        executed: Steps that were done, each stage once.
        repeated: Steps that were done again for the sake of a checkpoint.
        seconds: What the executed steps took.
        repeated_seconds: What the repeated ones took.
        checkpoints: How many there are now.
        checkpoint_bytes: Their size.
    """

    stages: dict[str, int]
    statuses: dict[str, int]
    requested: int
    executed: int
    repeated: int
    seconds: float
    repeated_seconds: float
    checkpoints: int
    checkpoint_bytes: int

    @property
    def merge_rate(self) -> float | None:
        """Steps requested for each step that was done, repeated ones among them; None before the first.

        Source: Hippo, section 2.2.
        """
        done = self.executed + self.repeated
        return self.requested / done if done else None


def totals_of(rows: Rows, pieces: Pieces, trials: list[TrialRow], *, whole: bool) -> Totals:
    """Sums up a plan, or what some of its trials go through where it is not `whole`."""
    nodes = {piece.node.id for piece in pieces}
    repeated = [(steps, seconds) for node, steps, seconds in rows.repeated if whole or node in nodes]
    shares = [share(piece) for piece in pieces]
    states = collections.Counter(piece.state for piece in pieces)
    if whole:  # as it stands in the plan
        executed = [(run.steps, run.seconds) for runs in rows.runs.values() for run in runs]
    else:
        executed = shares
    return Totals(
        stages={state: states[state] for state in STATES},
        statuses=dict(sorted(collections.Counter(trial.status for trial in trials).items())),
        requested=sum(
            steps * (piece.through - piece.resumed) for piece, (steps, _) in zip(pieces, shares, strict=True)
        ),
        executed=sum(steps for steps, _ in executed),
        repeated=sum(steps for steps, _ in repeated),
        seconds=sum(seconds for _, seconds in executed),
        repeated_seconds=sum(seconds for _, seconds in repeated),
        checkpoints=rows.checkpoints[0],
        checkpoint_bytes=rows.checkpoints[1],
    )


def share(piece: Piece) -> tuple[int, float]:
    """Steps and seconds of a part of a run. Rounded so that the parts of a run sum up to it."""
    run = piece.run
    if run is None:
        return 0, 0.0
    length = run.end - run.start
    a, b = piece.start - run.start, piece.end - run.start
    return run.steps * b // length - run.steps * a // length, run.seconds * (b - a) / length

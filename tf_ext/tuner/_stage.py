"""The nodes of a stage tree, and the executions that finish them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Literal

from tf_ext.tuner._heap import Heap
from tf_ext.tuner.segments import Config

__all__ = ["Run", "Stage", "State"]

State = Literal["pending", "running", "done", "gone"]


class Stage:
    """A stretch of training that is done once for all requests whose paths begin with it (Hippo, section 3.2).

    A stage is known by its *end*: when one is cut in two, the new object is the first half, and the old one keeps the
    end with its requests, checkpoint and children. Only a `StageTree` changes the attributes.

    Attributes:
        parent: The stage before it; None where training begins.
        start: Epochs that were done when it begins.
        end: Epochs that are done when it ends.
        config: What the hyper-parameters are meanwhile.
        requests: Those that end exactly here, in the order in which they came, and the seconds that may follow each.
        state: `"pending"`, `"running"`, `"done"`; `"gone"` when it left the tree.
        checkpoint: Whether the state of training at its end can be forked from.
        again: It was done before and has to be run once more, for its state at the end only: its requests are answered.
        stopped: Training ended by itself here (early stopping). Whatever would come after it counts as done.
        run: The execution that it is part of while it is running.
        cost: Seconds that it is estimated to take.
        remaining: Seconds of the longest chain from here down that is not done, itself included, and what may follow it.
        serial: Rises from stage to stage as they are made.
    """

    __slots__ = (
        "_children",
        "_pending",
        "_running",
        "_tails",
        "again",
        "checkpoint",
        "config",
        "cost",
        "end",
        "parent",
        "remaining",
        "requests",
        "run",
        "serial",
        "start",
        "state",
        "stopped",
    )

    def __init__(self, parent: Stage | None, start: int, end: int, config: Config, cost: float, serial: int) -> None:
        self.parent = parent
        self.start = start
        self.end = end
        self.config = config
        self.cost = cost
        self.serial = serial
        self.requests: dict[Hashable, float] = {}
        self.state: State = "pending"
        self.checkpoint = False
        self.again = False
        self.stopped = False
        self.run: Run | None = None
        self.remaining = 0.0
        # Children begin at one epoch and differ in their configs: equal ones would be one stage.
        self._children: dict[Config, Stage] = {}
        self._tails: Heap[Stage] | None = None  # children by what remains from them on, where they are many
        self._pending = 0
        self._running = 0

    @property
    def children(self) -> list[Stage]:
        """The stages that begin where it ends, in the order in which they came."""
        return list(self._children.values())

    @property
    def epochs(self) -> int:
        """How many epochs it trains."""
        return self.end - self.start

    @property
    def ahead(self) -> float:
        """Seconds that may follow its end for the sake of its own requests, while they wait."""
        return 0.0 if self.answered or not self.requests else max(self.requests.values())

    @property
    def answered(self) -> bool:
        """Whether what its requests ask for is known: it is done, or was done before and is run again."""
        return self.state == "done" or self.again

    def __repr__(self) -> str:
        again = " again" if self.again else ""
        now = ", ".join(f"{name}={value}" for name, value in self.config)
        return f"<Stage {self.serial} [{self.start}, {self.end}) {now}: {self.state}{again}>"


@dataclasses.dataclass(eq=False, slots=True)
class Run:
    """One execution, which finishes one or more stages.

    It begins with one. A stage that is cut while it is running cannot be interrupted: both halves stay in its run.

    Attributes:
        stages: What is not finished of it, from the first to the last; each the child of the one before.
    """

    stages: list[Stage]

"""What of the plan concerns one study: nodes of paths, the metrics of their epochs, and the best of these."""

from __future__ import annotations

from collections.abc import Iterator

import keras_tuner

from tf_ext.tuner.plan import NodeSpan, Plan, Run
from tf_ext.tuner.segments import Path, Segment
from tf_ext.tuner.stage_tree import Stage

__all__ = ["Ledger"]


class Ledger:
    """Remembers what it has read of the plan; `refresh` and `add` keep it true.

    Args:
        plan: The plan.
        context: Number of the context whose nodes are meant.
        objective: What the best epoch is told by.
    """

    def __init__(self, plan: Plan, context: int, objective: keras_tuner.Objective) -> None:
        self._plan, self._context, self._objective = plan, context, objective
        self._spans: dict[Path, list[NodeSpan]] = {}
        self._nodes: dict[Stage, int] = {}
        self._runs: dict[int, list[Run]] = {}
        self._told: set[tuple[int, int]] = set()

    def spans(self, path: Path) -> list[NodeSpan]:
        """The nodes that a path goes through."""
        if path not in self._spans:
            with self._plan.transaction():
                self._spans[path] = self._plan.nodes(self._context, path)
        return self._spans[path]

    def node_of(self, stage: Stage) -> int:
        """Number of the node that a stage is a part of."""
        if stage not in self._nodes:
            chain = [stage]
            while chain[-1].parent is not None:
                chain.append(chain[-1].parent)
            path = tuple(Segment(s.start, s.end, s.config) for s in reversed(chain))
            self._nodes[stage] = self.spans(path)[-1].node
        return self._nodes[stage]

    def add(self, run: Run) -> None:
        """Takes note of what was trained here."""
        if run.node in self._runs:  # otherwise it is read when it is asked for
            self._runs[run.node].append(run)
        self._told.add((run.node, run.start))

    def refresh(self, node: int, start: int) -> bool:
        """Reads the plan anew; whether the node was trained from an epoch on."""
        self._runs[node] = self._plan.runs(node)
        return any(run.start == start for run in self._runs[node])

    def run_at(self, node: int, start: int) -> Run:
        """What was trained of a node from an epoch on."""
        return next(run for run in self._of(node) if run.start == start)

    def unseen(self, path: Path) -> Iterator[tuple[Path, Run]]:
        """What was trained of a path and has not been told yet: the path up to the end of each run, and the run."""
        prefix: tuple[Segment, ...] = ()
        for span in self.spans(path):
            for run in self._of(span.node):
                if run.start >= span.end:
                    break
                if (run.node, run.start) not in self._told:
                    self._told.add((run.node, run.start))
                    yield (*prefix, Segment(span.start, run.end, span.config)), run
                if run.stopped:
                    return
            prefix = (*prefix, Segment(span.start, span.end, span.config))

    def history(self, path: Path) -> list[dict[str, float]]:
        """The metrics of each epoch of a path, as far as it was trained."""
        return [logs for _, _, logs in self._epochs(path)]

    def steps(self, path: Path, start: int) -> float:
        """Optimizer steps that a path takes from an epoch on, as far as it was trained."""
        total = 0.0
        for span in self.spans(path):
            for run in self._of(span.node):
                epochs = min(run.start + len(run.history), span.end) - max(run.start, start)
                total += max(0, epochs) * run.steps / max(1, len(run.history))
                if run.stopped:
                    return total
        return total

    def best(self, path: Path) -> tuple[int, int] | None:
        """Node and epoch of the best epoch of a path: the first of equals."""
        best: tuple[int, int] | None = None
        value = 0.0
        for node, epoch, logs in self._epochs(path):
            if not self._objective.has_value(logs):
                continue  # with `validation_freq`, some epochs have none
            now = float(self._objective.get_value(logs))
            if best is None or self._objective.better_than(now, value):
                best, value = (node, epoch), now
        return best

    def best_before(self, stage: Stage) -> float | None:
        """Value of the objective at the best epoch before a stage."""
        chain: list[Segment] = []
        parent = stage.parent
        while parent is not None:
            chain.append(Segment(parent.start, parent.end, parent.config))
            parent = parent.parent
        path = tuple(reversed(chain))
        best = self.best(path) if path else None
        if best is None:
            return None
        logs = next(logs for node, epoch, logs in self._epochs(path) if (node, epoch) == best)
        return float(self._objective.get_value(logs))

    def _epochs(self, path: Path) -> Iterator[tuple[int, int, dict[str, float]]]:
        for span in self.spans(path):
            for run in self._of(span.node):
                for offset, logs in enumerate(run.history):
                    if run.start + offset < span.end:
                        yield span.node, run.start + offset, logs
                if run.stopped:
                    return

    def _of(self, node: int) -> list[Run]:
        if node not in self._runs:
            self._runs[node] = self._plan.runs(node)
        return self._runs[node]

"""What a search shows while it runs: a line of progress that stays, and a line for each trial that ends."""

from __future__ import annotations

import time
from typing import Any

import rich.console
import rich.progress

from tf_ext.tuner._engine import Engine

__all__ = ["Display"]


class Display:
    """Trials, stages, merge rate, the best score and the time that is left.

    Args:
        oracle: Whose trials they are.
        verbose: 0 shows nothing.
    """

    def __init__(self, oracle: Any, verbose: int) -> None:
        self._oracle, self._verbose = oracle, verbose
        self._engine: Engine | None = None
        self._began = time.monotonic()
        self._console = rich.console.Console()
        live = bool(verbose) and self._console.is_terminal
        self._progress = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[text]}"),
            console=self._console,
            disable=not live,
            transient=True,
        )
        self._task = self._progress.add_task("Stages", total=1, text="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.refresh()
        self._progress.stop()
        if self._verbose and self._engine is not None:
            self._console.print(f"Search ended: {self._text()}", highlight=False)

    def watch(self, engine: Engine) -> None:
        """Shows this engine."""
        self._engine = engine

    def refresh(self) -> None:
        """Shows how things are now."""
        engine = self._engine
        if engine is None or not self._verbose:
            return
        tree = engine.tree
        total = max(1, tree.distinct)
        open_epochs = sum(stage.end - stage.start for stage in tree.open)
        self._progress.update(self._task, total=total, completed=total - open_epochs, text=self._text())

    def trial_ended(self, trial: Any) -> None:
        """A line for a trial."""
        if not self._verbose:
            return
        name = self._oracle.objective.name
        said = f"{name}: {trial.score:.6g}" if trial.score is not None else (trial.status or "").lower()
        if trial.status != "COMPLETED" and trial.message:
            said += f" ({trial.message.strip().splitlines()[-1]})"
        self._console.print(f"Trial {trial.trial_id} complete: {said}", highlight=False)
        self.refresh()

    def _text(self) -> str:
        engine = self._engine
        assert engine is not None
        trials = self._oracle.trials.values()
        ended = [t for t in trials if t.status in ("COMPLETED", "FAILED", "INVALID")]
        best = self._oracle.get_best_trials(1)
        score = best[0].score if best else None
        parts = [f"trials {len(ended)}/{len(trials)}", f"stages left {engine.pending}"]
        if engine.merge_rate is not None:
            parts.append(f"merge rate {engine.merge_rate:.2f}x")
        if score is not None:
            parts.append(f"best {self._oracle.objective.name} {score:.5g}")
        left = engine.tree.work / max(1, engine.workers)
        if left:
            parts.append(f"about {left:.0f} s left")
        return ", ".join([*parts, f"{time.monotonic() - self._began:.0f} s"])

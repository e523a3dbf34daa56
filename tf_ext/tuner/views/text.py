"""A plan in the terminal: a table of its trials, and a tree of its stages."""

from __future__ import annotations

import collections

import rich.box
import rich.console
import rich.table
import rich.text
import rich.tree

from tf_ext.tuner.views import wording
from tf_ext.tuner.views.choosing import most_shared
from tf_ext.tuner.views.model import Trial, View
from tf_ext.tuner.views.stages import Stage
from tf_ext.tuner.views.summary import StudySummary, Summary
from tf_ext.tuner.views.totals import Totals

__all__ = ["EMPTY", "print_summary", "totals_line", "tree"]

EMPTY = "The plan is empty: no trial was asked for yet."

_COLOURS = {"done": "green", "running": "bold cyan", "pending": "yellow", "failed": "bold red"}
_MARKS = {"done": "●", "running": "▶", "pending": "○", "failed": "✗"}
_STATUSES = {"COMPLETED": "green", "RUNNING": "cyan", "FAILED": "bold red", "INVALID": "bold red"}


def print_summary(summary: Summary, console: rich.console.Console) -> None:
    """Prints studies, their best trials, and totals."""
    console.print(f"Plan in {summary.directory}", markup=False, highlight=False, soft_wrap=True)
    for study in summary.studies:
        console.print(_trials(study))
    if not summary.studies or not any(study.count for study in summary.studies):
        console.print(EMPTY)
    if sum(summary.totals.stages.values()):
        console.print(_totals(summary.totals))


def _trials(summary: StudySummary) -> rich.table.Table:
    study, shown = summary.study, len(summary.trials)
    title = f"{study.name}: {summary.count} trials, objective {study.objective} ({study.direction})"
    more = f"the best {shown} of {summary.count}; --limit 0 shows all" if shown < summary.count else None
    # A title is read as markup unless it is a text.
    table = rich.table.Table(
        title=rich.text.Text(title), caption=more, title_justify="left", caption_justify="left", box=rich.box.SIMPLE
    )
    for name in ("trial", "status", "score", "best epoch", "epochs"):
        table.add_column(name, justify="left" if name in ("trial", "status") else "right", no_wrap=True)
    table.add_column("hyper-parameters", overflow="fold")
    for trial in summary.trials:
        table.add_row(*_row(trial))
    return table


def _row(trial: Trial) -> list[rich.text.Text]:
    name = trial.trial if trial.execution == 0 else f"{trial.trial}/{trial.execution}"
    values = wording.settings((n, v) for n, v in trial.values.items() if not n.startswith("tuner/"))
    told = f"{values} ({wording.message(trial.message)})" if trial.message else values
    cells = [name, trial.status, wording.number(trial.score), wording.number(trial.best_epoch), str(trial.epochs), told]
    styles = ["", _STATUSES.get(trial.status, ""), "", "", "", ""]
    return [rich.text.Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)]


def _totals(totals: Totals) -> rich.table.Table:
    table = rich.table.Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    states = ", ".join(f"{count} {state}" for state, count in totals.stages.items() if count)
    rate = "-" if totals.merge_rate is None else f"{totals.merge_rate:.3f}"
    table.add_row("stages", str(sum(totals.stages.values())), states)
    table.add_row(
        "steps requested", str(totals.requested), "what the trials would have taken alone, as far as they are"
    )
    table.add_row("steps executed", str(totals.executed), f"each stage once, in {wording.duration(totals.seconds)}")
    told = f"for a checkpoint that was gone, in {wording.duration(totals.repeated_seconds)}" if totals.repeated else ""
    table.add_row("steps repeated", str(totals.repeated), told)
    table.add_row("merge rate", rate, "requested / (executed + repeated)")
    table.add_row("checkpoints", str(totals.checkpoints), wording.bytes_of(totals.checkpoint_bytes))
    return table


def totals_line(totals: Totals) -> str:
    """The totals in one line."""
    rate = "-" if totals.merge_rate is None else f"{totals.merge_rate:.3f}"
    return (
        f"{sum(totals.statuses.values())} trials, {sum(totals.stages.values())} stages, merge rate {rate} "
        f"({totals.requested} steps requested, {totals.executed} executed, {totals.repeated} repeated)"
    )


def tree(view: View, *, limit: int | None = 200) -> rich.tree.Tree:
    """The stages as a tree for `rich.print`.

    Args:
        view: The plan.
        limit: How many stages to show, those that most trials go through first; None for all.

    Returns:
        The tree; it tells what it leaves out. A stage with an arrow comes after the one in the line above.
    """
    choice = most_shared(view, limit)
    children = collections.Counter(stage.parent for stage in choice.stages)
    root = rich.tree.Tree(rich.text.Text(f"{view.directory}: {totals_line(view.totals)}"))
    places: dict[int | None, rich.tree.Tree] = {None: root}
    levels: dict[int, rich.tree.Tree] = {}  # what a stage is a branch of
    for stage in choice.stages:
        # A schedule with a value for each epoch would soon leave the screen: where nothing else branches off, the next
        # stage stands below the one before it, on the same level.
        follows = stage.parent is not None and children[stage.parent] == 1 and stage.parent not in choice.hidden
        level = levels[stage.parent] if follows and stage.parent is not None else places[stage.parent]
        levels[stage.index] = level
        places[stage.index] = level.add(_line(view, stage, follows))
    for index, count in choice.hidden.items():
        places[index].add(rich.text.Text(f"… {count} more stages", style="dim"))
    if choice.left_out:
        root.add(rich.text.Text(f"{choice.left_out} stages are not shown; --limit 0 shows all", style="dim"))
    return root


def _line(view: View, stage: Stage, follows: bool) -> rich.text.Text:
    colour = _COLOURS[stage.state]
    line = rich.text.Text("↳ " if follows else "", style="dim")
    line.append(f"{_MARKS[stage.state]} ", style=colour)
    line.append(wording.epochs(stage), style="bold")
    line.append(f" {wording.what(stage)}")
    line.append(f"  {stage.state}", style=colour)
    if stage.state == "done":
        line.append(f"  {stage.steps} steps {wording.duration(stage.seconds)}", style="dim")
    if stage.stopped:
        line.append("  stopped by a callback", style="dim")
    if stage.metrics:
        line.append(f"  {wording.settings(stage.metrics.items())}")
    trials = view.through(stage)
    names = ", ".join(trial.trial for trial in trials[:4]) + (" …" if len(trials) > 4 else "")
    count = f"{len(trials)} trial{'' if len(trials) == 1 else 's'}"
    line.append(f"  {count}{f': {names}' if trials else ''}", style="magenta")
    if stage.score is not None:
        line.append(f"  best score {wording.number(stage.score)}", style=colour)
    return line

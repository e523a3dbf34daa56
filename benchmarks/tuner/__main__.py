"""Runs the benchmark of `tf_ext.tuner`.

    python -m benchmarks.tuner [--quick] [--out=FILE] [--plot=FOLDER]
    python -m benchmarks.tuner --bars [N] [--only CELL] [--smoke] [--out=FILE]

The first runs the grid of `examples.digits_schedule` with each implementation and prints the seconds of training (first to
last step of each epoch, validation included), those of the whole search, the steps and the best score as lines of JSON;
`ratio` is the value over that of `tf_ext.tuner`. The second measures the numbered bars (all of them without N), each task in
a process of its own; `--only CELL` measures one.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from absl import logging

from benchmarks import harness, ledger
from benchmarks.tuner import bars, peers, plot
from examples.digits_schedule import data as datasets
from examples.digits_schedule.searching import Outcome
from examples.digits_schedule.study import Study

_TASK_S = 3600.0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuner", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="trials of 6 epochs instead of 24")
    parser.add_argument("--peers", nargs="+", choices=peers.PEERS, help="only these, beside tf_ext.tuner")
    parser.add_argument("--bars", nargs="?", type=int, const=0, metavar="N", help="measure bar N, or all bars")
    parser.add_argument("--only", metavar="CELL", help="with --bars: the task that settles this cell, in this process")
    parser.add_argument("--smoke", action="store_true", help="with --bars: smallest size, check results, not times")
    parser.add_argument("--out", type=pathlib.Path, help="append the lines here; with --bars, go on where it stopped")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FOLDER", help="write figures here")
    return parser.parse_args(argv)


def _in_child(task: ledger.Task, smoke: bool) -> list[ledger.Cell]:
    """Measures a task in a fresh process: what a search leaves in memory slows whoever comes after it."""
    command = [sys.executable, "-m", "benchmarks.tuner", f"--bars={task.bar}", f"--only={task.cells[0]}"]
    command += ["--smoke"] * smoke
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TASK_S, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [ledger.Cell(**line) for line in lines if line["cell"] != "all"]


def _bars(arguments: argparse.Namespace) -> bool:
    tasks = bars.tasks(arguments.bars or None)
    if arguments.only:
        tasks = [task for task in tasks if arguments.only in task.cells]
    elif not arguments.smoke:
        tasks = [dataclasses.replace(task, measure=functools.partial(_in_child, task)) for task in tasks]
    return ledger.run(tasks, arguments.out, arguments.smoke, budget_s=3 * _TASK_S)


def main(argv: Sequence[str]) -> int:
    """Runs what the arguments ask for; returns 1 if a bar has failed."""
    arguments = _arguments(argv)
    logging.set_verbosity(logging.INFO)
    if arguments.bars is not None:
        return 0 if _bars(arguments) else 1
    study, data = Study(6 if arguments.quick else 24), datasets.load()
    case, ours = f"digits/{study.epochs} epochs", None
    records: list[dict[str, Any]] = []
    for name in dict.fromkeys([peers.OURS, *(arguments.peers or peers.PEERS)]):
        try:
            with tempfile.TemporaryDirectory() as directory:
                outcome = peers.PEERS[name](study, data, pathlib.Path(directory))
        except harness.UnavailableError as error:
            logging.info("%s is not run: %s", name, error)
            continue
        ours = ours or outcome
        records += _report(case, name, outcome, ours, arguments.out)
    for path in plot.draw(records, arguments.plot) if arguments.plot else ():
        logging.info("wrote %s", path)
    return 0


def _report(case: str, peer: str, outcome: Outcome, ours: Outcome, out: pathlib.Path | None) -> list[dict[str, Any]]:
    """Prints a line for each metric."""
    rows = (
        (plot.TRAINING, outcome.clock.seconds, ours.clock.seconds, "s"),
        (plot.TOTAL, outcome.total, ours.total, "s"),
        ("steps", outcome.clock.steps, ours.clock.steps, "steps"),
        ("best score", max(outcome.scores.values()), max(ours.scores.values()), "accuracy"),
    )
    records = []
    for metric, value, base, unit in rows:
        record = {"benchmark": "tuner", "case": case, "metric": metric, "value": value, "unit": unit, "peer": peer}
        records.append({**record, "ratio": value / base if base else None})
        harness.emit(records[-1], out)
    return records


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

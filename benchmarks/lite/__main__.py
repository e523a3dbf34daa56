"""Runs the benchmark of `tf_ext.lite`.

    python -m benchmarks.lite [--quick] [--out=FILE] [--plot=FOLDER]
    python -m benchmarks.lite --bars [N] [--only CELL] [--smoke] [--out=FILE]

The first runs frames of several models, one run of each, with the engine and with each peer, and prints lines of JSON;
`ratio` is the value over the engine's. The limit is half of what one interpreter after another takes: two cores cannot do
better. The second measures the numbered bars, each task in a process of its own; `--only CELL` measures one.
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
from benchmarks.lite import bars, models, ours, plot
from benchmarks.lite.peers import PEERS

_TASK_S = 1800.0
OURS, LIMIT = "tf_ext.lite", "limit"


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lite", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and models from PyPI alone")
    parser.add_argument("--bars", nargs="?", type=int, const=0, metavar="N", help="measure bar N, or all bars")
    parser.add_argument("--only", metavar="CELL", help="with --bars: the task that settles this cell, in this process")
    parser.add_argument("--smoke", action="store_true", help="with --bars: smallest size, check results, not times")
    parser.add_argument("--out", type=pathlib.Path, help="append the lines here; with --bars, go on where it stopped")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FOLDER", help="write figures here")
    return parser.parse_args(argv)


def _in_child(task: ledger.Task, smoke: bool) -> list[ledger.Cell]:
    """Measures a task in a fresh process: what earlier ones left in memory would slow it."""
    command = [sys.executable, "-m", "benchmarks.lite", f"--bars={task.bar}", f"--only={task.cells[0]}"]
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


def _frames(case: str, names: Sequence[str], rounds: int, out: pathlib.Path | None) -> list[dict[str, Any]]:
    """Times frames of one workload with each implementation, and prints a line for each."""
    loaded = models.load(names)
    with tempfile.TemporaryDirectory() as folder:
        runners: dict[str, Any] = {OURS: ours.Coordinated(loaded, pathlib.Path(folder))}
        runners |= {name: make(loaded) for name, make in PEERS.items()}
        timing = harness.alternate({name: runner.frame for name, runner in runners.items()}, rounds)
        for runner in runners.values():
            runner.close()
    values = {name: 1000 * taken.median() for name, taken in timing.items()}
    values[LIMIT] = values["sequential"] / 2
    records = []
    for name, value in values.items():
        record = {"benchmark": "lite", "case": case, "metric": "frame", "value": value, "unit": "ms", "peer": name}
        records.append({**record, "ratio": value / values[OURS]})
        harness.emit(records[-1], out)
    return records


def main(argv: Sequence[str]) -> int:
    """Runs what the arguments ask for; returns 1 if a bar has failed."""
    arguments = _arguments(argv)
    logging.set_verbosity(logging.INFO)
    if arguments.bars is not None:
        return 0 if _bars(arguments) else 1
    cases = {"faces": models.SMALL} if arguments.quick else models.WORKLOADS
    records: list[dict[str, Any]] = []
    for case, names in cases.items():
        try:
            records += _frames(case, names, 30 if arguments.quick else 100, arguments.out)
        except harness.UnavailableError as error:
            logging.info("%s is not run: %s", case, error)
    for path in plot.draw(records, arguments.plot) if arguments.plot else ():
        logging.info("wrote %s", path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

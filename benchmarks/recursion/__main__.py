"""Runs the benchmark of `tf_ext.recursion`.

    python -m benchmarks.recursion [--quick] [--out=FILE] [--plot=FOLDER]
    python -m benchmarks.recursion --bars [N] [--only CELL] [--smoke] [--out=FILE]

The first prints, for every case and implementation, the median time per tree as one line of JSON; `ratio` is that time
over the time of `batched`. The second measures the numbered bars (all of them without N), each task in a process of its own;
`--only CELL` measures one.

What a run includes is the same for all: forests are tensors already, and what an implementation precomputes on the host
(topological order, level schedule) is not counted.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from benchmarks import harness, ledger
from benchmarks.harness import Timing
from benchmarks.recursion import bars, plot, suite
from benchmarks.recursion.suite import CASES, IMPLEMENTATIONS, MODES, Case

_TASK_S = 1500.0
QUICK = ("treelstm/10", "ast/1", "treelstm/1")


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recursion", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three cases, few runs, under a minute")
    parser.add_argument("--cases", nargs="+", choices=CASES, help="only these cases")
    parser.add_argument("--bars", nargs="?", type=int, const=0, metavar="N", help="measure bar N, or all bars")
    parser.add_argument("--only", metavar="CELL", help="with --bars: the task that settles this cell, in this process")
    parser.add_argument("--smoke", action="store_true", help="with --bars: smallest size, check results, not times")
    parser.add_argument("--out", type=pathlib.Path, help="append the lines here; with --bars, go on where it stopped")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FOLDER", help="write figures here")
    return parser.parse_args(argv)


def _in_child(task: ledger.Task, smoke: bool) -> list[ledger.Cell]:
    """Measures a task in a fresh process: what a peer leaves in memory slows whoever comes after it."""
    command = [sys.executable, "-m", "benchmarks.recursion", f"--bars={task.bar}", f"--only={task.cells[0]}"]
    command += ["--smoke"] * smoke
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TASK_S, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [ledger.Cell(**line) for line in lines if line["cell"] != "all"]


def main(argv: Sequence[str]) -> int:
    """Runs what the arguments ask for; returns 1 if a bar has failed."""
    arguments = _arguments(argv)
    logging.set_verbosity(logging.INFO)
    if arguments.bars is not None:
        tasks = bars.tasks(arguments.bars or None)
        if arguments.only:
            tasks = [task for task in tasks if arguments.only in task.cells]
        elif not arguments.smoke:
            tasks = [dataclasses.replace(task, measure=functools.partial(_in_child, task)) for task in tasks]
        return 0 if ledger.run(tasks, arguments.out, arguments.smoke) else 1
    names = arguments.cases or (QUICK if arguments.quick else tuple(CASES))
    records = []
    start = time.monotonic()
    for name in names:
        if arguments.quick and time.monotonic() - start > 25:
            logging.info("%s is not run: the minute is nearly up", name)
            continue
        runners = suite.prepare(list(IMPLEMENTATIONS), *CASES[name].make())
        for mode in MODES:
            calls = {peer: suite.call(runner, mode) for peer, runner in runners.items()}
            records += _report(CASES[name], mode, _time(calls, arguments.quick), arguments.out)
    for path in plot.draw(records, arguments.plot) if arguments.plot else ():
        logging.info("wrote %s", path)
    return 0


def _time(calls: Mapping[str, Callable[[], Any]], quick: bool) -> dict[str, Timing]:
    if quick:
        return harness.alternate(calls, rounds=7, share_s=0.3, at_least=1, tolerant=True)
    return harness.alternate(calls, rounds=21, share_s=10.0, at_least=1, tolerant=True)


def _report(case: Case, mode: str, timing: dict[str, Timing], out: pathlib.Path | None) -> list[dict[str, object]]:
    """Prints a line for each implementation and clock; an implementation that was not run has no value."""
    records: list[dict[str, object]] = []
    for peer in IMPLEMENTATIONS:
        for metric, clock in ((plot.METRIC, "wall"), ("processor time per tree", "cpu")):
            record = {"benchmark": "recursion", "case": f"{case.name}/{mode}", "metric": metric, "unit": "ms"}
            value = 1e3 * timing[peer].median(clock) / case.batch if peer in timing else None
            base = timing["batched"].median(clock) if "batched" in timing else None
            ratio = timing[peer].median(clock) / base if base and peer in timing else None
            records.append({**record, "value": value, "peer": peer, "ratio": ratio})
            harness.emit(records[-1], out)
    return records


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

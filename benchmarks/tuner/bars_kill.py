"""Bar 6: a tuner or a worker is killed at random moments, and the search goes on as if nothing had happened."""

import dataclasses
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

from benchmarks.ledger import Cell, Task, at_least, at_most
from benchmarks.tuner import killed, searches
from benchmarks.tuner.searches import Trained
from tf_ext import tuner
from tf_ext.tuner import oracles

SAME = ("Grid", "Random", "SHA", "Hyperband", "PBT")
ASYNCHRONOUS = ("ASHA", "MedianStopping")
_KILLS = 50
_CELLS = (
    "kills",
    "searches whose results differ/Grid, Random, SHA, Hyperband, PBT",
    "trials that differ from themselves alone/ASHA, MedianStopping",
    "decisions that do not follow/ASHA, MedianStopping",
    "bytes on disk over those of the checkpoints that are named",
    "steps in the plan over distinct steps",
)
_SEARCH_S = 300.0
# Of a checkpoint on disk beside its arrays: manifest, index, alignment.
_FILES_BYTES = 16_384


@dataclasses.dataclass
class _Tally:
    """What was seen over all searches."""

    kills: int = 0
    differing: list[str] = dataclasses.field(default_factory=list)
    inexact: list[str] = dataclasses.field(default_factory=list)
    undecided: list[str] = dataclasses.field(default_factory=list)
    disk: float = 0.0
    repeated: float = 0.0


def kills() -> Iterable[Task]:
    """Yields bar 6."""
    yield Task(6, _CELLS, _measure)


def _measure(smoke: bool) -> list[Cell]:
    draw, tally = random.Random(6), _Tally()
    wanted = 3 if smoke else _KILLS
    names = ["Grid", "SHA", "ASHA"] if smoke else [*SAME, *ASYNCHRONOUS]
    undisturbed: dict[str, dict[str, Trained]] = {}
    turn = 0
    while tally.kills < wanted and turn < 4 * wanted:
        oracle, workers = names[turn % len(names)], int(turn % 2 == 0)
        most = 1 if smoke else min(3, wanted - tally.kills)
        with tempfile.TemporaryDirectory() as name:
            _disturb(oracle, pathlib.Path(name), workers, most, draw, tally, smoke)
            _check(oracle, pathlib.Path(name), undisturbed, tally, smoke)
        turn += 1
    values = (tally.differing, tally.inexact, tally.undecided)
    cells = [at_least(6, _CELLS[0], [tally.kills], wanted, "kills")]
    for name, wrong in zip(_CELLS[1:4], values, strict=True):
        cells.append(
            dataclasses.replace(at_most(6, name, [len(wrong)], 0, "of them"), note="; ".join(wrong[:3]) or None)
        )
    cells.append(at_most(6, _CELLS[4], [tally.disk], 1.0, "x"))
    cells.append(at_most(6, _CELLS[5], [tally.repeated], 1.0, "x"))
    return [dataclasses.replace(cell, runs=tally.kills) for cell in cells]


def _disturb(
    oracle: str, directory: pathlib.Path, workers: int, most: int, draw: random.Random, tally: _Tally, smoke: bool
) -> None:
    """Starts a search again and again until it ends, and kills it, or its worker, up to `most` times."""
    left, began = most, time.monotonic()
    while time.monotonic() - began < _SEARCH_S:
        command = [sys.executable, "-m", "benchmarks.tuner.killed", oracle, str(directory), str(workers)]
        command += ["smoke"] * smoke
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while left and _wait(process, directory, draw):
                victim = _worker_of(process.pid) if workers else process.pid
                if victim is None or process.poll() is not None:
                    break
                os.kill(victim, signal.SIGKILL)
                tally.kills, left = tally.kills + 1, left - 1
                if not workers:
                    break
            code = process.wait(_SEARCH_S)
        finally:
            process.kill()
        if code == 0:
            return
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the search with {oracle} ended with {code} after {most - left} kills")
    raise RuntimeError(f"the search with {oracle} did not end within {_SEARCH_S:.0f} s")


def _wait(process: subprocess.Popen[bytes], directory: pathlib.Path, draw: random.Random) -> bool:
    """Waits for a stage to end that was not there before, and a random time longer; whether the process still runs."""
    before = _runs(directory)
    while process.poll() is None and _runs(directory) <= before:
        time.sleep(0.02)
    time.sleep(draw.uniform(0.0, 0.4))
    return process.poll() is None


def _runs(directory: pathlib.Path) -> int:
    try:
        with tuner.Plan(directory / searches.PROJECT, create=False) as plan:
            return int(plan.totals()["run"])
    except Exception:  # it is being made
        return 0


def _worker_of(parent: int) -> int | None:
    """A child of a process (Linux)."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(after_name[1]) == parent and after_name[0] != "Z":
            return int(entry.name)
    return None


def _check(
    oracle: str, directory: pathlib.Path, undisturbed: dict[str, dict[str, Trained]], tally: _Tally, smoke: bool
) -> None:
    trials = searches.trained(directory)
    if oracle in SAME:
        if oracle not in undisturbed:
            with tempfile.TemporaryDirectory() as name:
                killed.run(oracle, pathlib.Path(name), 0, smoke)
                undisturbed[oracle] = searches.trained(pathlib.Path(name))
        if trials != undisturbed[oracle]:
            tally.differing.append(oracle)
    else:
        bad = searches.differences(trials, killed.space(smoke), searches.default_state(), 1 if smoke else 3)
        tally.inexact += [f"{oracle}: {text}" for text in bad]
    with tuner.Plan(directory / searches.PROJECT, create=False) as plan:
        if oracle in ASYNCHRONOUS:
            tally.undecided += oracles.replay(event["data"] for event in plan.events(kinds=["decision"]))
        named = [size for kind in ("state", "best") for _, size in plan.checkpoints(kind).values()]
        # A stage that was killed is not in the plan: what it had done is all that was lost.
        executed = plan.totals()["steps"] + plan.totals()["again"]
        tally.repeated = max(tally.repeated, executed / searches.distinct_steps(trials))
    on_disk = sum(file.stat().st_size for file in (plan.directory / "states").rglob("*") if file.is_file())
    tally.disk = max(tally.disk, on_disk / (sum(named) + _FILES_BYTES * (1 + len(named))))

"""What every benchmark of the suite shares: alternating timing, memory, child processes and JSON lines.

`benchmarks.ledger` keeps the books of an issue's numbered bars on top of it. Nothing here knows what is measured.
"""

import dataclasses
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging


class UnavailableError(Exception):
    """What is to be measured is not installed here; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """The runs of one implementation, in the order of the rounds.

    Attributes:
        wall: Seconds on the clock for each run.
        cpu: Seconds of processor time for each run, over all threads and ended children.
    """

    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def runs(self) -> int:
        """The number of measured runs."""
        return len(self.wall)

    def seconds(self, clock: str) -> tuple[float, ...]:
        """Returns `wall` or `cpu`."""
        return self.wall if clock == "wall" else self.cpu

    def median(self, clock: str = "wall") -> float:
        """Returns the median of `wall` or `cpu`."""
        return statistics.median(self.seconds(clock))


def processor_time() -> float:
    """Returns the seconds of processor time used by this process, its threads and its ended children."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def clock(call: Callable[[], Any]) -> tuple[float, float]:
    """Runs `call` and returns its wall and processor seconds."""
    cpu, wall = processor_time(), time.perf_counter()
    call()
    return time.perf_counter() - wall, processor_time() - cpu


def alternate(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int = 11,
    share_s: float = 20.0,
    at_least: int = 3,
    tolerant: bool = False,
) -> dict[str, Timing]:
    """Times several implementations in turn, so that what disturbs the machine disturbs all of them.

    Each runs once before, to be traced and warmed up; that run counts only where it alone takes longer than `share_s`.

    Args:
        calls: What to run, by name. Each must have finished its work when it returns.
        rounds: How many times each runs.
        share_s: A slow one leaves the later rounds when its runs have taken this many seconds.
        at_least: But not before it has run this often.
        tolerant: Log an implementation that fails and leave it out.

    Returns:
        The timings by name. The n-th runs of all names belong to one round.
    """
    runs: dict[str, list[tuple[float, float]]] = {}
    for name, call in calls.items():
        try:
            warmup = clock(call)
        except Exception:
            if not tolerant:
                raise
            logging.exception("%s is not run", name)
            continue
        runs[name] = [warmup] if warmup[0] > share_s else []
    for _ in range(rounds):
        for name, past in runs.items():
            if len(past) < at_least or sum(wall for wall, _ in past) < share_s:
                past.append(clock(calls[name]))
    return {name: Timing(tuple(wall for wall, _ in past), tuple(cpu for _, cpu in past)) for name, past in runs.items()}


def ratios(over: Timing, under: Timing, clock: str = "wall") -> list[float]:
    """Returns `over / under` for every round that both ran."""
    pairs = zip(over.seconds(clock), under.seconds(clock), strict=False)
    return [a / b for a, b in pairs]


def spread(values: Sequence[float]) -> float | None:
    """Returns the distance between the quartiles over the median, None below three values."""
    if len(values) < 3:
        return None
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle if middle else None


def peak_memory() -> int:
    """Returns the largest resident size this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def memory() -> int:
    """Returns the present resident size of this process, in bytes (Linux)."""
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def in_child(module: str, arguments: Sequence[str], timeout_s: float = 900.0) -> dict[str, Any]:
    """Runs `python -m module arguments` and returns the JSON object on its last line.

    For what needs a fresh process: its peak memory is its own, and if it crashes the benchmark goes on.

    Raises:
        RuntimeError: If it fails, takes longer than `timeout_s` or prints no object.
    """
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{' '.join(arguments)}: no end after {timeout_s:.0f} s") from error
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{' '.join(arguments)}: exit status {done.returncode}: {last}")
    return dict(json.loads(lines[-1]))


def emit(record: Mapping[str, Any], out: pathlib.Path | None = None) -> None:
    """Prints a record as one line of JSON, and appends it to a file."""
    line = json.dumps({key: _short(value) for key, value in record.items()})
    print(line, flush=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the records of a file that `emit` wrote; a line cut short by a crash is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    # JSON has no infinity; a limit that nothing can miss is none.
    return float(f"{value:.4g}") if math.isfinite(value) else None

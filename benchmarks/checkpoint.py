"""Measures saving and loading of checkpoints against `numpy.savez` and against the plain writing of as many bytes.

    python -m benchmarks.checkpoint [--quick] [--directory DIR]

Prints a line of JSON for each case and peer. `ratio` is ours over the peer's, the median over rounds in which both ran in
turn: below 1 is faster. All writers end with an fsync of the file; `savez_no_sync` does not, and shows what durability costs.
"""

import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import harness
from tf_ext.checkpoint import Store

_QUICK = flags.DEFINE_bool("quick", False, "Fewer rounds and no large case.")
_DIRECTORY = flags.DEFINE_string("directory", None, "Where to write; a temporary directory by default.")

Arrays = dict[str, np.ndarray[Any, Any]]


def _arrays(count: int, nbytes: int) -> Arrays:
    draw = np.random.default_rng(0)
    return {f"layer-{i}/kernel": draw.standard_normal(nbytes // count // 4, np.float32) for i in range(count)}


def _sync(path: pathlib.Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _writers(store: Store, directory: pathlib.Path, arrays: Arrays) -> dict[str, Callable[[], Any]]:
    def plain() -> None:
        with open(directory / "plain", "wb") as file:
            for array in arrays.values():
                file.write(array.data)
        _sync(directory / "plain")

    def savez(sync: bool) -> None:
        np.savez(directory / "peer.npz", *arrays.values())
        if sync:
            _sync(directory / "peer.npz")

    return {
        "ours": lambda: store.save("x", arrays),
        "plain": plain,
        "savez": lambda: savez(True),
        "savez_no_sync": lambda: savez(False),
    }


def _readers(store: Store, directory: pathlib.Path, arrays: Arrays) -> dict[str, Callable[[], Any]]:
    def ours() -> None:
        with store.load("x") as checkpoint:
            for key in checkpoint:
                checkpoint[key]

    def plain() -> None:
        with open(directory / "plain", "rb") as file:
            for array in arrays.values():
                file.readinto(np.empty_like(array).data)

    def savez() -> None:
        with np.load(directory / "peer.npz") as file:
            for key in file:
                file[key]

    return {"ours": ours, "plain": plain, "savez": savez}


def _measure(case: str, calls: dict[str, Callable[[], Any]], rounds: int) -> None:
    timings = harness.alternate(calls, rounds=rounds, share_s=60)
    for peer, timing in timings.items():
        ratio = statistics.median(harness.ratios(timings["ours"], timing))
        harness.emit(
            {
                "benchmark": "checkpoint",
                "case": case,
                "metric": "time",
                "value": timing.median() * 1e3,
                "unit": "ms",
                "peer": peer,
                "ratio": ratio,
            }
        )


def main(_: list[str]) -> None:
    """Runs all cases: the state of a small model, of a larger one, and of many small variables."""
    cases = {"1 MB in 40": (40, 10**6), "10 MB in 1000": (1000, 10**7), "100 MB in 100": (100, 10**8)}
    if not _QUICK.value:
        cases["500 MB in 20"] = (20, 5 * 10**8)
    with tempfile.TemporaryDirectory(dir=_DIRECTORY.value) as name:
        directory = pathlib.Path(name)
        store = Store(directory / "store")
        for case, (count, nbytes) in cases.items():
            arrays = _arrays(count, nbytes)
            rounds = 5 if _QUICK.value else 9
            _measure(f"save {case}", _writers(store, directory, arrays), rounds)
            _measure(f"load {case}", _readers(store, directory, arrays), rounds)


if __name__ == "__main__":
    app.run(main)

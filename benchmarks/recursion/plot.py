"""Draws the results: one figure for each mode, milliseconds per tree on a logarithmic scale."""

import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import UnavailableError

METRIC = "wall time per tree"


def draw(records: Sequence[dict[str, Any]], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the figures and returns their paths.

    Args:
        records: Lines that `python -m benchmarks.recursion` printed.
        folder: Where the PNGs go.

    Raises:
        UnavailableError: If matplotlib is not installed.
    """
    try:
        import matplotlib.figure
    except ImportError as error:
        raise UnavailableError("matplotlib is not installed: pip install matplotlib") from error
    times = {(r["case"], r["peer"]): r["value"] for r in records if r.get("metric") == METRIC and r["value"]}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for mode in dict.fromkeys(case.rsplit("/", 1)[1] for case, _ in times):
        figure = matplotlib.figure.Figure(figsize=(11, 5), layout="constrained")
        _bars(figure.subplots(), {key: ms for key, ms in times.items() if key[0].endswith(mode)}, mode)
        written.append(folder / f"recursion_{mode}.png")
        figure.savefig(written[-1], dpi=120)
    return written


def _bars(axes: Any, times: dict[tuple[str, str], float], mode: str) -> None:
    cases = list(dict.fromkeys(case for case, _ in times))
    peers = list(dict.fromkeys(peer for _, peer in times))
    width = 0.8 / len(peers)
    for number, peer in enumerate(peers):
        there = [i for i, case in enumerate(cases) if (case, peer) in times]
        heights = [times[cases[i], peer] for i in there]
        axes.bar([i + number * width for i in there], heights, width, label=peer)
    axes.set_yscale("log")
    axes.set_ylabel("ms per tree")
    axes.set_title(f"tf_ext.recursion, {mode}")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(cases))], [c.rsplit("/", 1)[0] for c in cases])
    axes.legend(ncols=len(peers), fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.08))

"""Draws the results: seconds of training and of the whole search, side by side."""

import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import UnavailableError

TRAINING, TOTAL = "training time", "total time"


def draw(records: Sequence[dict[str, Any]], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes a figure for each case and returns their paths.

    Args:
        records: Lines that `python -m benchmarks.tuner` printed.
        folder: Where the PNGs go.

    Raises:
        UnavailableError: If matplotlib is not installed.
    """
    try:
        import matplotlib.figure
    except ImportError as error:
        raise UnavailableError("matplotlib is not installed: pip install matplotlib") from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for case in dict.fromkeys(record["case"] for record in records):
        figure = matplotlib.figure.Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        for number, metric in enumerate((TRAINING, TOTAL)):
            times = {
                r["peer"]: r["value"] for r in records if (r["case"], r["metric"]) == (case, metric) and r["value"]
            }
            axes.barh([i + 0.4 * number for i in range(len(times))], list(times.values()), 0.4, label=metric)
            axes.set_yticks([i + 0.2 for i in range(len(times))], list(times))
        axes.set_xlabel("seconds")
        axes.set_title(f"tf_ext.tuner, {case}")
        axes.legend()
        written.append(folder / f"tuner_{case.replace('/', '_').replace(' ', '_')}.png")
        figure.savefig(written[-1], dpi=120)
    return written

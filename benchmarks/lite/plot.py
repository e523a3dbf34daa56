"""Figures of what `python -m benchmarks.lite` measured."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any


def draw(records: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws the milliseconds of a frame, a bar for each implementation, and returns the files."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for case in dict.fromkeys(record["case"] for record in records):
        rows = [record for record in records if record["case"] == case]
        figure, axes = pyplot.subplots(figsize=(6, 1 + 0.4 * len(rows)), layout="constrained")
        axes.barh([row["peer"] for row in rows][::-1], [row["value"] for row in rows][::-1])
        axes.set_xlabel("ms a frame")
        axes.set_title(f"{case}: one run of each model")
        files.append(folder / f"lite_{case}.png")
        figure.savefig(files[-1], dpi=150)
        pyplot.close(figure)
    return files

"""A photograph, as a camera sees it that is held by hand; and the app that looks at what comes."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import pathlib
import time
from collections.abc import Sequence

import numpy as np
import PIL.Image

from examples.ar.app import Branch, Finding
from examples.ar.runners import Runner

_FRAMES = 8
_AT_ONCE = 2


def frames(file: pathlib.Path) -> list[PIL.Image.Image]:
    """Returns some pictures, each shifted a little."""
    photograph = PIL.Image.open(file).convert("RGB")
    made = []
    for index in range(_FRAMES):
        turn = 2 * math.pi * index / _FRAMES
        shift = (1, 0, 6 * math.cos(turn), 0, 1, 4 * math.sin(turn))
        made.append(photograph.transform(photograph.size, PIL.Image.Transform.AFFINE, shift))
    return made


@dataclasses.dataclass
class Watch:
    """What a runner made of the frames, and how fast.

    Attributes:
        rates: frames per second, of each round.
        latencies: seconds of each frame.
        outputs: of all networks for each of the different frames, in the order of the branches.
        findings: of the first frame, by branch.
    """

    rates: list[float] = dataclasses.field(default_factory=list)
    latencies: list[float] = dataclasses.field(default_factory=list)
    outputs: dict[int, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    findings: list[Finding] = dataclasses.field(default_factory=list)


def look(
    runner: Runner, branches: Sequence[Branch], pictures: Sequence[PIL.Image.Image], seconds: float, watch: Watch
) -> None:
    """Looks at frames, two of them at a time where the runner may be asked by several threads."""
    begin, done = time.perf_counter(), 0
    at_once = 1 if runner.threads == 1 else _AT_ONCE
    with (
        concurrent.futures.ThreadPoolExecutor(runner.threads * at_once) as pool,
        concurrent.futures.ThreadPoolExecutor(at_once) as frames_pool,
    ):
        while done < at_once or time.perf_counter() - begin < seconds:
            numbers = [(done + i) % len(pictures) for i in range(at_once)]
            list(frames_pool.map(lambda number: _frame(runner, branches, pictures, number, pool, watch), numbers))
            done += at_once
    watch.rates.append(done / (time.perf_counter() - begin))


def _frame(
    runner: Runner,
    branches: Sequence[Branch],
    pictures: Sequence[PIL.Image.Image],
    number: int,
    pool: concurrent.futures.Executor,
    watch: Watch,
) -> None:
    begin = time.perf_counter()
    made = list(pool.map(lambda branch: _branch(runner, branch, pictures[number]), branches))
    watch.latencies.append(time.perf_counter() - begin)
    if number not in watch.outputs:
        watch.outputs[number] = [array for _, arrays in made for array in arrays]
    if number == 0 and not watch.findings:
        watch.findings = [finding for finding, _ in made]


def _branch(runner: Runner, branch: Branch, picture: PIL.Image.Image) -> tuple[Finding, list[np.ndarray]]:
    outputs: list[np.ndarray] = []

    def run(model: str, value: np.ndarray) -> list[np.ndarray]:
        made = runner.run(model, value)
        outputs.extend(made)
        return made

    return branch.look(picture, run), outputs

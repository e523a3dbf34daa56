"""The models of the benchmark, and inputs for them."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.harness import UnavailableError

Array = npt.NDArray[Any]

WORKLOADS = {
    # An app that draws on faces, hands and bodies.
    "ar": (
        "face_detection_short",
        "face_landmark",
        "iris_landmark",
        "palm_detection_lite",
        "hand_landmark_lite",
        "pose_landmark_lite",
        "selfie_segmentation",
    ),
    "heavy": ("mobilenet_v2_float32", "efficientnet_b0_float32", "pose_landmark_full", "palm_detection_full"),
}
SMALL = ("face_detection_short", "face_landmark", "iris_landmark")
"""What smoke runs use: it comes from PyPI alone."""


class Loaded(NamedTuple):
    """A model's file, and the values of its inputs by position."""

    name: str
    file: pathlib.Path
    inputs: tuple[Array, ...]


def interpreter(file: pathlib.Path, threads: int = 1) -> Any:
    """Returns LiteRT's interpreter of a model, tensors allocated."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise UnavailableError(f"ai-edge-litert is not there: {error}") from error
    made = Interpreter(str(file), num_threads=threads)
    made.allocate_tensors()
    return made


def load(names: Sequence[str], seed: int = 0) -> list[Loaded]:
    """Fetches models and draws inputs for them: uniform in [0, 1), integers over their whole range."""
    from tf_ext import lite

    try:
        files = lite.model_zoo.fetch(names)
    except lite.LiteError as error:
        raise UnavailableError(str(error)) from error
    return [Loaded(name, files[name], draw(files[name], seed)) for name in names]


def draw(file: pathlib.Path, seed: int = 0) -> tuple[Array, ...]:
    """Draws inputs for a model."""
    generator, inputs = np.random.default_rng(seed), []
    for detail in interpreter(file).get_input_details():
        shape, dtype = tuple(detail["shape"]), np.dtype(detail["dtype"])
        if dtype.kind == "f":
            inputs.append(generator.random(shape).astype(dtype))
        else:
            limits = np.iinfo(dtype)
            inputs.append(generator.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    return tuple(inputs)


def bundles(models: Sequence[Loaded], folder: pathlib.Path) -> list[pathlib.Path]:
    """Makes a bundle of each model, once."""
    from tf_ext import lite

    made = []
    for model in models:
        target = folder / f"{model.name}.tfxlite"
        if not target.exists():
            lite.make_bundle(model.file, target)
        made.append(target)
    return made


def quiet() -> None:
    """LiteRT tells of every interpreter on standard error; here it is only in the way."""
    if not sys.stderr.isatty():
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

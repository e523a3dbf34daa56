"""What the app computes of a picture. Each branch is a chain of networks; branches do not depend on each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import PIL.Image

from examples.ar.detection import BODIES, FACES, PALMS, Detection, Detector
from examples.ar.geometry import Square, angle, to_array, whole

Run = Callable[[str, np.ndarray], list[np.ndarray]]
"""Runs the model of a name on its one input, and returns its outputs in their order."""

# Corners of the eyes among the points of the mesh: the right one's outer and inner, then the left one's.
_EYES = ((33, 133), (362, 263))


@dataclasses.dataclass
class Finding:
    """What a branch found, in pixels of the picture.

    Attributes:
        points: by name, each of the shape [n, 2].
        mask: of the whole picture, from 0 to 1, shape [256, 256], or None.
        scores: how sure each network is, by name.
    """

    points: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    mask: np.ndarray | None = None
    scores: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Branch:
    """A chain of networks.

    Attributes:
        name: what it looks for.
        models: that it runs, by their names in the model zoo.
        look: computes it.
    """

    name: str
    models: tuple[str, ...]
    look: Callable[[PIL.Image.Image, Run], Finding]


def _detect(detector: Detector, picture: PIL.Image.Image, run: Run) -> Detection:
    square = whole(picture)
    boxes, scores = run(detector.model, detector.prepare(square.crop(picture, detector.size)))
    found = detector.best(boxes, scores)
    points = np.concatenate([found.centre[None], found.points])
    placed = square.out(points)
    return Detection(found.score, placed[0], found.size * square.side, placed[1:])


def faces(picture: PIL.Image.Image, run: Run) -> Finding:
    """The face, 468 points of it, and both irises."""
    found = _detect(FACES, picture, run)
    turned = angle(found.points[0], found.points[1])
    face = Square.at(found.centre, 1.5 * float(max(found.size)), turned)
    mesh, certain = run("face_landmark", face.crop(picture, 192))
    points = face.out(mesh.reshape(-1, 3)[:, :2] / 192)
    made = Finding({"face": points}, scores={"face": found.score, "mesh": _logistic(certain)})
    for name, corners in zip(("right", "left"), _EYES, strict=True):
        begin, end = points[list(corners)]
        eye = Square.at((begin + end) / 2, 2.3 * math.dist(begin, end), angle(begin, end))
        crop = eye.crop(picture, 64)
        # The network knows left eyes; a right one is mirrored.
        contour, iris = run("iris_landmark", crop if name == "left" else np.ascontiguousarray(crop[:, :, ::-1]))
        for kind, flat in (("eye", contour), ("iris", iris)):
            inside = flat.reshape(-1, 3)[:, :2] / 64
            if name == "right":
                inside = inside * [-1, 1] + [1, 0]
            made.points[f"{name} {kind}"] = eye.out(inside)
    return made


def hands(picture: PIL.Image.Image, run: Run) -> Finding:
    """What looks most like a palm, and 21 points of the hand."""
    found = _detect(PALMS, picture, run)
    turned = angle(found.points[0], found.points[2]) + math.pi / 2
    hand = Square.at(found.centre, 2.6 * float(max(found.size)), turned)
    points, certain, *_ = run("hand_landmark_lite", hand.crop(picture, 224))
    inside = points.reshape(-1, 3)[:, :2] / 224
    return Finding({"hand": hand.out(inside)}, scores={"palm": found.score, "hand": float(certain.ravel()[0])})


def bodies(picture: PIL.Image.Image, run: Run) -> Finding:
    """The body, and 33 points of it."""
    found = _detect(BODIES, picture, run)
    middle, edge = found.points[0], found.points[1]
    body = Square.at(middle, 2.5 * math.dist(middle, edge), angle(middle, edge) + math.pi / 2)
    points, certain, *_ = run("pose_landmark_lite", body.crop(picture, 256))
    placed = body.out(points.reshape(-1, 5)[:33, :2] / 256)
    return Finding({"body": placed}, scores={"body": found.score, "pose": float(certain.ravel()[0])})


def people(picture: PIL.Image.Image, run: Run) -> Finding:
    """Which pixels are of people."""
    small = picture.resize((256, 256), PIL.Image.Resampling.BILINEAR)
    (mask,) = run("selfie_segmentation", to_array(small))
    return Finding(mask=mask[0, :, :, 0])


def _logistic(values: np.ndarray) -> float:
    return float(1 / (1 + np.exp(-values.ravel()[0])))


BRANCHES = (
    Branch("faces", ("face_detection_short", "face_landmark", "iris_landmark"), faces),
    Branch("hands", ("palm_detection_lite", "hand_landmark_lite"), hands),
    Branch("bodies", ("pose_detection", "pose_landmark_lite"), bodies),
    Branch("people", ("selfie_segmentation",), people),
)

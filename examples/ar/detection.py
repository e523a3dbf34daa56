"""What single-shot detectors tell: a score, a box and some points for each of many anchors."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np


@dataclasses.dataclass(frozen=True)
class Detector:
    """A detector with square anchors of one size.

    Attributes:
        model: its name in the model zoo.
        size: of its input, in pixels.
        strides: pixels between the anchors of each layer; layers of the same stride share their places.
        low: what black is in its input; white is 1.
    """

    model: str
    size: int
    strides: tuple[int, ...]
    low: float

    @functools.cached_property
    def anchors(self) -> np.ndarray:
        """The centres of the anchors, from 0 to 1, shape [n, 2]."""
        found = []
        for stride, layers in itertools.groupby(self.strides):
            count = self.size // stride
            places = (np.arange(count) + 0.5) / count
            grid = np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2)
            found.append(np.repeat(grid, 2 * len(list(layers)), axis=0))
        return np.concatenate(found)

    def prepare(self, crop: np.ndarray) -> np.ndarray:
        """Turns a picture, from 0 to 1, into what the detector takes; in place."""
        if self.low:
            crop *= np.float32(1 - self.low)
            crop += np.float32(self.low)
        return crop

    def best(self, boxes: np.ndarray, scores: np.ndarray) -> Detection:
        """Returns what has the highest score.

        Args:
            boxes: shape [1, n, 4 + 2 k]: centre, width and height, and k points, in pixels from the anchor.
            scores: shape [1, n, 1], before the logistic function.
        """
        index = int(np.argmax(scores[0, :, 0]))
        values = boxes[0, index].reshape(-1, 2) / self.size
        centre, points = values[0] + self.anchors[index], values[2:] + self.anchors[index]
        score = float(1 / (1 + np.exp(-np.clip(scores[0, index, 0], -80, 80))))
        return Detection(score, centre, values[1], points)


@dataclasses.dataclass(frozen=True)
class Detection:
    """Something that was found; all places from 0 to 1.

    Attributes:
        score: from 0 to 1.
        centre, size: of its box.
        points: shape [k, 2].
    """

    score: float
    centre: np.ndarray
    size: np.ndarray
    points: np.ndarray


FACES = Detector("face_detection_short", 128, (8, 16, 16, 16), -1.0)
PALMS = Detector("palm_detection_lite", 192, (8, 16, 16, 16), 0.0)
BODIES = Detector("pose_detection", 224, (8, 16, 32, 32, 32), -1.0)

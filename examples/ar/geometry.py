"""Squares cut out of pictures, turned and scaled, and points brought back from them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import PIL.Image


@dataclasses.dataclass(frozen=True)
class Square:
    """A square in a picture, turned about its centre.

    Attributes:
        x, y: its centre, in pixels.
        side: in pixels.
        angle: clockwise, in radians.
    """

    x: float
    y: float
    side: float
    angle: float = 0.0

    @classmethod
    def at(cls, centre: np.ndarray, side: float, angle: float) -> Square:
        """Returns the square about a point, of the shape [2]."""
        return cls(float(centre[0]), float(centre[1]), side, angle)

    def crop(self, picture: PIL.Image.Image, size: int) -> np.ndarray:
        """Returns what is in the square, float32 from 0 to 1, shape [1, size, size, 3]; black beyond the picture."""
        step = self.side / size
        a, b = step * math.cos(self.angle), -step * math.sin(self.angle)
        left = self.x - (a + b) * size / 2
        top = self.y - (a - b) * size / 2
        data = (a, b, left, -b, a, top)
        cut = picture.transform((size, size), PIL.Image.Transform.AFFINE, data, PIL.Image.Resampling.BILINEAR)
        return to_array(cut)

    def out(self, points: np.ndarray) -> np.ndarray:
        """Returns points of the square, from 0 to 1, shape [n, 2], as pixels of the picture."""
        turned = (points - 0.5) * self.side
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        x, y = turned[:, 0] * cos - turned[:, 1] * sin, turned[:, 0] * sin + turned[:, 1] * cos
        return np.stack([x + self.x, y + self.y], axis=1)


def to_array(picture: PIL.Image.Image) -> np.ndarray:
    """Returns a picture as float32 of the shape [1, height, width, 3], from 0 to 1."""
    return np.multiply(np.asarray(picture), np.float32(1 / 255), dtype=np.float32)[None]


def whole(picture: PIL.Image.Image) -> Square:
    """Returns the smallest square that holds the picture."""
    return Square(picture.width / 2, picture.height / 2, max(picture.size))


def angle(begin: np.ndarray, end: np.ndarray) -> float:
    """Returns how far a line is turned from pointing to the right, in radians."""
    return math.atan2(end[1] - begin[1], end[0] - begin[0])

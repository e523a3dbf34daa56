"""Handwritten digits, 8 x 8 pixels, that come with scikit-learn."""

from __future__ import annotations

import dataclasses

import numpy as np
import sklearn.datasets

_VALIDATION = 360


@dataclasses.dataclass(frozen=True)
class Data:
    """Images of shape [n, 8, 8, 1] and dtype float32, from 0 to 1, and the digits that they show, for both parts."""

    x: np.ndarray
    y: np.ndarray
    validation_x: np.ndarray
    validation_y: np.ndarray


def load() -> Data:
    """Returns 1437 images to learn from, and 360 by other writers to measure with.

    The file is in the order of its writers, so that those at its end are others.
    """
    digits = sklearn.datasets.load_digits()
    x = (digits.images[..., None] / 16.0).astype("float32")
    y = digits.target.astype("int32")
    return Data(x[:-_VALIDATION], y[:-_VALIDATION], x[-_VALIDATION:], y[-_VALIDATION:])

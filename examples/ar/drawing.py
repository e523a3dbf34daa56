"""Draws what was found on the picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import PIL.Image
import PIL.ImageDraw

from examples.ar.app import Finding

_COLOURS = {"face": "#7fe0ff", "eye": "#ffd24d", "iris": "#ff4d6d", "hand": "#8cff66", "body": "#ff9df5"}
_RADII = {"face": 0.8, "eye": 0.8, "iris": 1.2, "hand": 2.5, "body": 3.0}
_BACKGROUND = np.array([24, 28, 66], np.float32)
# Points of what is likely not there are not drawn.
_SURE = 0.5


def draw(picture: PIL.Image.Image, findings: Iterable[Finding], scale: int = 2) -> PIL.Image.Image:
    """Returns the picture, enlarged, with all that was found on it.

    Args:
        picture: what was looked at.
        findings: of its branches.
        scale: how much larger to make it.
    """
    listed = list(findings)
    made = picture.resize((picture.width * scale, picture.height * scale), PIL.Image.Resampling.LANCZOS)
    for finding in listed:
        if finding.mask is not None:
            made = _dim(made, finding.mask)
    pen = PIL.ImageDraw.Draw(made)
    for finding in listed:
        if min(finding.scores.values(), default=1.0) < _SURE:
            continue
        for name, points in finding.points.items():
            kind = name.split()[-1]
            _dots(pen, points * scale, _RADII[kind] * scale, _COLOURS[kind])
            if kind == "iris":
                _circle(pen, points * scale, _COLOURS[kind])
    return made


def _dim(picture: PIL.Image.Image, mask: np.ndarray) -> PIL.Image.Image:
    """What is not of people becomes dark blue."""
    large = np.asarray(PIL.Image.fromarray((mask * 255).astype(np.uint8)).resize(picture.size), np.float32) / 255
    share = 0.35 + 0.65 * large[:, :, None]
    mixed = np.asarray(picture, np.float32) * share + _BACKGROUND * (1 - share)
    return PIL.Image.fromarray(mixed.astype(np.uint8))


def _dots(pen: PIL.ImageDraw.ImageDraw, points: np.ndarray, radius: float, colour: str) -> None:
    for x, y in points:
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _circle(pen: PIL.ImageDraw.ImageDraw, points: Sequence[np.ndarray] | np.ndarray, colour: str) -> None:
    """The iris: its centre comes first, then four points of its edge."""
    (x, y), edge = points[0], np.asarray(points[1:])
    radius = float(np.mean(np.hypot(edge[:, 0] - x, edge[:, 1] - y)))
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour, width=2)

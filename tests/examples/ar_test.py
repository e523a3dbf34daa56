"""The example that draws on people: its geometry, what it finds on the photograph, and its whole run."""

import json
import math
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import PIL.Image
import pytest

from examples.ar import app, camera, detection, drawing, geometry, runners
from tf_ext import testing
from tf_ext.lite import _library, errors, model_zoo
from tf_ext.lite.model import Model


def files_of(*branches) -> dict:
    try:
        return {name: model_zoo.path(name) for branch in branches for name in branch.models}
    except errors.NotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def photograph():
    try:
        return PIL.Image.open(model_zoo.photograph()).convert("RGB")
    except errors.UnavailableError as error:
        pytest.skip(str(error))


@hypothesis.given(
    x=st.floats(20, 40), y=st.floats(20, 40), side=st.floats(30, 60), angle=st.floats(-3, 3), row=st.integers(2, 13)
)
@hypothesis.settings(deadline=None, max_examples=50)
def test_what_a_crop_shows_is_where_out_says(x, y, side, angle, row):
    """A picture whose colours tell the place: a crop of it tells the places that `out` computes."""
    width = height = 80
    places = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1) + 0.5
    picture = PIL.Image.fromarray(np.concatenate([places, places[:, :, :1]], axis=-1).astype(np.uint8), "RGB")
    square = geometry.Square(x, y, side, angle)
    crop = square.crop(picture, 16)[0, row, row, :2] * 255
    place = square.out(np.array([[(row + 0.5) / 16] * 2]))[0]
    if place.min() > 2 and place.max() < 78:
        assert crop == pytest.approx(place, abs=1.5)


def test_angles():
    assert geometry.angle(np.array([0, 0]), np.array([2, 2])) == pytest.approx(math.pi / 4)
    assert geometry.whole(PIL.Image.new("RGB", (30, 50))) == geometry.Square(15, 25, 50)


def test_the_best_detection_is_decoded():
    detector = detection.Detector("none", 32, (8, 16, 16), 0.0)
    assert detector.anchors.shape == (4 * 4 * 2 + 2 * 2 * 4, 2)
    assert detector.anchors[0].tolist() == detector.anchors[1].tolist() == [0.125, 0.125]
    assert detector.anchors[2].tolist() == [0.375, 0.125]
    boxes, scores = np.zeros((1, 48, 8), np.float32), np.full((1, 48, 1), -9, np.float32)
    scores[0, 2], boxes[0, 2] = 0, [3.2, 0, 16, 8, 0, 3.2, -3.2, 0]
    found = detector.best(boxes, scores)
    assert found.score == 0.5
    assert found.centre == pytest.approx([0.475, 0.125])
    assert found.size == pytest.approx([0.5, 0.25])
    assert found.points == pytest.approx(np.array([[0.375, 0.225], [0.275, 0.125]]))


def test_detectors_have_an_anchor_for_each_box():
    testing.require("litert")
    for detector in (detection.FACES, detection.PALMS, detection.BODIES):
        if detector.model not in model_zoo.present():
            continue
        model = Model(model_zoo.path(detector.model))
        boxes, scores = (model.tensors[index].shape for index in model.outputs)
        assert boxes[1] == scores[1] == len(detector.anchors)
        assert model.tensors[model.inputs[0]].shape == (1, detector.size, detector.size, 3)


def test_the_face_and_the_irises_are_where_they_are(photograph):
    testing.require("litert")
    runner = runners.Interpreters("plain", files_of(app.BRANCHES[0]), 1)
    found = app.faces(photograph, runner.run)
    assert found.scores["face"] > 0.8
    assert found.scores["mesh"] > 0.9
    assert found.points["face"].shape == (468, 2)
    # As a person sees them on the photograph, in pixels.
    assert found.points["right iris"][0] == pytest.approx([219, 191], abs=8)
    assert found.points["left iris"][0] == pytest.approx([303, 189], abs=8)
    nose = found.points["face"][1]
    assert nose == pytest.approx([262, 243], abs=12)


def test_all_branches_run_and_are_drawn(photograph):
    testing.require("litert")
    runner = runners.Interpreters("plain", files_of(*app.BRANCHES), 4)
    watch = camera.Watch()
    pictures = camera.frames(model_zoo.photograph())
    camera.look(runner, app.BRANCHES, pictures, 0.0, watch)
    assert len(watch.findings) == 4
    mask = watch.findings[3].mask
    assert mask is not None
    assert mask.shape == (256, 256)
    assert mask[140, 128] > 0.9  # her collar
    assert mask[20, 240] < 0.1  # the wall
    drawn = drawing.draw(pictures[0], watch.findings)
    assert drawn.size == (1024, 1200)
    enlarged = np.asarray(pictures[0].resize(drawn.size), np.int32)
    assert 0.01 < (np.abs(np.asarray(drawn, np.int32) - enlarged).max(axis=2) > 60).mean() < 0.6


@pytest.mark.slow
def test_the_whole_run(tmp_path):
    testing.require("litert")
    if _library.find() is None:
        pytest.skip(f"the library is not built: {_library.REPAIR}")
    files_of(app.BRANCHES[0])
    command = [sys.executable, "-m", "examples.ar", "--seconds", "12", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("equal") == 3
    assert PIL.Image.open(tmp_path / "ar.png").size == (1024, 1200)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) >= 8

"""Bundles: what is in them, whole or not at all, and refused when damaged."""

import dataclasses
import json
import random
import struct
from typing import ClassVar

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from tests.lite import tiny
from tf_ext.lite import _builder, _container, _runners, bundle, errors, model_zoo, profiler
from tf_ext.lite.bundle import Bundle, make_bundle
from tf_ext.lite.model import Model
from tf_ext.lite.plan import Plan

pytestmark = pytest.mark.usefixtures("litert")

QUICK = {"warmup": 0, "runs": 3, "cache": False}


@pytest.fixture(scope="module")
def residual() -> bytes:
    return tiny.residual()


@pytest.fixture(scope="module")
def made(residual, tmp_path_factory) -> Bundle:
    return make_bundle(residual, tmp_path_factory.mktemp("made") / "net.tfxlite", name="net", parts=3, **QUICK)


def run_pieces(found: Bundle, units, inputs) -> list[np.ndarray]:
    """Runs some pieces that cover the model."""
    values = dict(zip(found.plan.inputs, inputs, strict=True))
    for ends in units:
        index = [piece.units for piece in found.plan.pieces].index(ends)
        piece = found.plan.pieces[index]
        outputs = _runners.cpu(found.piece(index)).run([values[tensor] for tensor in piece.inputs])
        values.update(zip(piece.outputs, outputs, strict=True))
    return [values[tensor] for tensor in found.plan.outputs]


@pytest.mark.parametrize("units", [[(0, 3)], [(0, 1), (1, 3)], [(0, 2), (2, 3)], [(0, 1), (1, 2), (2, 3)]])
def test_any_row_of_pieces_computes_the_model(made, residual, units):
    model = Model(residual)
    inputs = _runners.random_inputs([model.tensors[index] for index in model.inputs], seed=99)
    wanted = _runners.cpu(residual).run(inputs)
    assert all(map(np.array_equal, run_pieces(made, units, inputs), wanted))


def test_the_plan_is_that_of_the_format(made, residual):
    data = made.path.read_bytes()
    magic, length = struct.unpack_from("<8sQ", data)
    assert magic == b"TFXLITE1"
    plan = json.loads(data[16 : 16 + length])
    assert (plan["format"], plan["version"]) == ("tf_ext.lite", 1)
    model = Model(residual)
    assert plan["model"] == {
        "name": "net",
        "sha256": model.sha256,
        "bytes": len(residual),
        "operators": 22,
        "tensors": len(model.tensors),
        "codes_crc32": model.codes_crc32,
    }
    assert plan["signature"] == {
        "name": None,
        "inputs": ["left", "right"],
        "outputs": ["sum", model.tensors[model.outputs[1]].name],
    }
    assert plan["processors"] == [{"name": "cpu", "accelerator": "cpu", "threads": 1}]
    assert plan["units"][0]["operators"][0] == 0
    assert plan["units"][-1]["operators"][1] == 22
    assert plan["units"][0]["inputs"] == plan["inputs"]
    assert plan["runtime"] == {"litert": _runners.runtime_version()}
    for piece in plan["pieces"]:
        assert piece["offset"] % 64 == 0
        assert data[piece["offset"] + 4 : piece["offset"] + 8] == b"TFL3"
        assert piece["latency_us"]["cpu"] > 0
        assert "file" not in piece
    listed = {tensor["id"]: tensor for tensor in plan["tensors"]}
    assert listed[plan["inputs"][0]] == {
        "id": 0,
        "name": "left",
        "type": "float32",
        "shape": [1, 6, 6, 4],
        "bytes": 576,
    }


def test_a_folder_holds_the_same(made, residual, tmp_path):
    folder = make_bundle(residual, tmp_path / "net", name="net", parts=3, **QUICK)
    assert sorted(file.name for file in (tmp_path / "net").iterdir()) == ["plan.json", "sub"]
    assert [piece.file for piece in folder.plan.pieces][:2] == ["sub/0-1.tflite", "sub/0-2.tflite"]
    for index, piece in enumerate(made.plan.pieces):
        assert folder.piece(index) == made.piece(index)
        assert folder.plan.pieces[index].sha256 == piece.sha256
    assert [file.name for file in tmp_path.iterdir()] == ["net"]


def test_a_plan_comes_back_as_it_was(made):
    assert Plan.from_json(made.plan.to_json()) == made.plan
    assert Plan.from_json(made.plan.to_json(indent=1)) == made.plan


def test_names_beyond_ascii(tmp_path):
    graph, _, y = tiny.adding()
    graph.tensors[y].name = "größe \u4e2d".encode()
    found = make_bundle(graph.data(y), tmp_path / "b.tfxlite", name="né", **QUICK)
    assert (found.plan.name, found.plan.output_names) == ("né", ("größe \u4e2d",))


def test_the_explanation(made):
    lines = made.explain().splitlines()
    assert lines[0].startswith("net: 22 operators in 3 units, 6 pieces")
    assert lines[2].split() == ["units", "operators", "size", "cpu"]
    assert lines[4].split()[0] == "0-1"


def test_what_is_there_is_not_overwritten_unasked(residual, tmp_path):
    for name in ("net.tfxlite", "net"):
        make_bundle(residual, tmp_path / name, **QUICK)
        with pytest.raises(errors.InvalidArgumentError, match="already something at .*overwrite=True"):
            make_bundle(residual, tmp_path / name, **QUICK)
        assert len(make_bundle(residual, tmp_path / name, parts=2, overwrite=True, **QUICK).plan.units) == 2
        assert len(Bundle.open(tmp_path / name).plan.units) == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net", "net.tfxlite"]


def test_folders_and_files_that_are_no_bundles_are_never_overwritten(residual, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("a")
    (tmp_path / "text").write_text("b")
    for name in ("photos", "text"):
        with pytest.raises(errors.InvalidArgumentError, match="no bundle|is a file"):
            make_bundle(residual, tmp_path / name, overwrite=True, **QUICK)
    assert (tmp_path / "photos" / "a.jpg").read_text() == "a"
    assert (tmp_path / "text").read_text() == "b"


def full(*_) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["net", "net.tfxlite"])
def test_nothing_is_left_when_writing_fails(residual, tmp_path, monkeypatch, name):
    monkeypatch.setattr("tf_ext.lite._container.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        make_bundle(residual, tmp_path / name, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_an_old_bundle_stays_when_writing_fails(residual, tmp_path, monkeypatch):
    make_bundle(residual, tmp_path / "net", **QUICK)
    monkeypatch.setattr("tf_ext.lite._container.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        make_bundle(residual, tmp_path / "net", overwrite=True, **QUICK)
    Bundle.open(tmp_path / "net")
    assert [file.name for file in tmp_path.iterdir()] == ["net"]


def test_models_that_are_none_are_told(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="expected a path, the bytes .*, got int"):
        make_bundle(7, tmp_path / "b", **QUICK)
    with pytest.raises(errors.InvalidArgumentError, match="each once, got \\['cpu', 'tpu'\\]"):
        make_bundle(tiny.residual(), tmp_path / "b", processors=("cpu", "tpu"), **QUICK)
    with pytest.raises(errors.InvalidArgumentError, match="`support` tells of \\['gpu'\\]"):
        make_bundle(tiny.residual(), tmp_path / "b", support={"gpu": {"ADD"}}, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_shape_that_only_shows_when_it_runs_is_refused(tmp_path):
    graph = tiny.Graph()
    x = graph.input((4,), name="x")
    found = graph.op(
        "WHERE", [graph.op("LESS", [x, graph.constant(np.full(1, 0.5, "float32"))], (4,), "bool")], (4, 1), "int64"
    )
    with pytest.raises(errors.InvalidArgumentError, match="tensor 't3' is dynamic, \\(4, 1\\) in the file"):
        make_bundle(graph.data(found), tmp_path / "b", **QUICK)


def test_a_model_of_keras(tmp_path):
    keras = pytest.importorskip("keras")
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="little")
    found = make_bundle(network, tmp_path / "b", **QUICK)
    assert found.plan.name == "little"
    value = np.array([[1, 2, 3]], np.float32)
    (output,) = _runners.cpu(found.piece(0)).run([value])
    np.testing.assert_allclose(output, network(value), rtol=1e-5)


def test_measurements_come_from_the_cache(residual, tmp_path, monkeypatch):
    monkeypatch.setenv(profiler.CACHE_VARIABLE, str(tmp_path / "cache"))
    how = {"warmup": 0, "runs": 3}
    first = make_bundle(residual, tmp_path / "a", parts=2, **how)
    monkeypatch.setattr(profiler, "measure", lambda *_, **__: pytest.fail("measured again"))
    second = make_bundle(residual, tmp_path / "b", parts=2, **how)
    assert [piece.latency_us for piece in first.plan.pieces] == [piece.latency_us for piece in second.plan.pieces]


# --- accelerators --------------------------------------------------------------------------------------------------------


class Fake:
    """An accelerator that adds an error to what the CPU computes, or fails."""

    wrong: ClassVar[dict] = {}

    def __init__(self, processor: str) -> None:
        self.processor = processor
        self.tried = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, data, inputs, outputs):
        self.tried += 1
        error = self.wrong.get(self.tried, 0.0)
        if error is None:
            raise errors.UnavailableError("the driver is lost")
        return [array + np.float32(error) for array in _runners.cpu(data).run(inputs)]

    def measure(self, data, tensors, **numbers):
        return profiler.Profile(self.processor, 1, *[77.0] * 5)


def test_pieces_that_compute_something_else_are_dropped_with_a_reason(residual, tmp_path, monkeypatch):
    from tf_ext.lite import _accelerators

    monkeypatch.setattr(_accelerators, "Accelerator", Fake)
    monkeypatch.setattr(Fake, "wrong", {2: 0.5, 4: 5e-4, 5: None, 6: float("nan")})
    everything = {operator.name for operator in Model(residual).operators}
    found = make_bundle(
        residual, tmp_path / "b.tfxlite", processors=("cpu", "gpu"), support={"gpu": everything}, parts=3, **QUICK
    )
    latencies = {piece.units: piece.latency_us["gpu"] for piece in found.plan.pieces}
    assert latencies == {(0, 1): 77, (0, 2): None, (0, 3): 77, (1, 2): 77, (1, 3): None, (2, 3): None}
    reasons = {one.units: one.reason for one in found.plan.dropped}
    assert reasons[1, 3] == "does not run: the driver is lost"
    assert "differs from the CPU by 0." in reasons[0, 2]
    assert reasons[0, 2].endswith("the tolerance is 0.001")
    assert reasons[2, 3] == "differs from the CPU by inf; the tolerance is 0.001"
    assert all(piece.latency_us["cpu"] for piece in found.plan.pieces)
    assert "dropped: units 1-2 on gpu: does not run: the driver is lost" in found.explain()


def test_distance():
    def of(a, b, kind="float32"):
        return _builder.distance(np.array(a, kind), np.array(b, kind))

    assert of([1, 2], [1, 2]) == 0
    assert of([0.5], [0.25]) == 0.25
    assert of([100.0, 1], [101.0, 1]) == pytest.approx(1 / 101)
    assert of([np.nan], [1]) == of([1], [np.inf]) == float("inf")
    assert of([np.nan], [np.nan]) == 0
    assert of([5, 9], [5, 10], "uint8") == 0.001
    assert of([5, 9], [5, 11], "uint8") == 2


# --- damage --------------------------------------------------------------------------------------------------------------


def test_what_is_no_bundle_is_told(tmp_path, residual):
    with pytest.raises(errors.NotFoundError, match="there is no bundle at"):
        Bundle.open(tmp_path / "none")
    with pytest.raises(errors.NotFoundError, match=r"holds no plan\.json"):
        Bundle.open(tmp_path)
    (tmp_path / "net.tflite").write_bytes(residual)
    with pytest.raises(errors.DataLossError, match="begin with b'TFXLITE1'"):
        Bundle.open(tmp_path / "net.tflite")


def test_another_version_is_told(made, tmp_path):
    raw = json.loads(made.plan.to_json())
    raw["version"] = 2
    with pytest.raises(errors.DataLossError, match="version 1, but got 'tf_ext.lite', version 2"):
        Plan.from_json(json.dumps(raw))


def test_a_changed_piece_is_found(made, tmp_path):
    data = bytearray(made.path.read_bytes())
    data[made.plan.pieces[3].offset + 200] ^= 1
    (tmp_path / "b.tfxlite").write_bytes(data)
    with pytest.raises(errors.DataLossError, match="units 1 of .* are damaged: the checksum differs"):
        Bundle.open(tmp_path / "b.tfxlite")


def test_a_folder_whose_piece_is_absent_is_told(residual, tmp_path):
    make_bundle(residual, tmp_path / "net", **QUICK)
    (tmp_path / "net" / "sub" / "0-1.tflite").unlink()
    with pytest.raises(errors.DataLossError, match="was expected to have .* bytes, but has 0"):
        Bundle.open(tmp_path / "net")


@hypothesis.given(length=st.integers(0, 10**6))
@hypothesis.settings(max_examples=50, deadline=None)
def test_truncated_bundles_are_refused(made, tmp_path_factory, length):
    data = made.path.read_bytes()
    file = tmp_path_factory.mktemp("cut") / "b.tfxlite"
    file.write_bytes(data[: length % len(data)])
    with pytest.raises(errors.DataLossError):
        Bundle.open(file)


@hypothesis.given(seed=st.integers(0, 10**9))
@hypothesis.settings(max_examples=200, deadline=None)
def test_corrupted_plans_never_crash(made, seed):
    generator = random.Random(seed)
    text = bytearray(made.plan.to_json().encode())
    for _ in range(generator.choice([1, 2, 8])):
        text[generator.randrange(len(text))] = generator.choice(b'0192-,:[]{}"ae.\\ \x00\xff')
    try:
        Plan.from_json(_container.text(bytes(text)))
    except errors.DataLossError as error:
        assert "bundle" in str(error) or "plan" in str(error)  # noqa: PT017


@hypothesis.given(seed=st.integers(0, 10**9))
@hypothesis.settings(max_examples=200, deadline=None)
def test_plans_whose_values_are_of_other_kinds_never_crash(made, seed):
    generator = random.Random(seed)
    raw = json.loads(made.plan.to_json())
    place = raw
    while True:
        key = generator.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if isinstance(place[key], dict | list) and place[key] and generator.random() < 0.8:
            place = place[key]
            continue
        place[key] = generator.choice([None, -1, 10**30, 1.5, "x", [], {}, True, [0, 10**9], float("nan")])
        break
    try:
        found = Plan.from_json(json.dumps(raw))
    except errors.DataLossError:
        return
    assert Plan.from_json(found.to_json()) == found or generator


def plan_with(made, **changes):
    return dataclasses.replace(made.plan, **changes)


def test_a_plan_checks_itself(made):
    plan = made.plan
    cases = {
        "no row of pieces": {"pieces": tuple(piece for piece in plan.pieces if piece.units[1] < 3)},
        "a tensor not listed": {"inputs": (0, 900)},
        "do not cover": {"units": plan.units[:-1]},
        "listed twice": {"tensors": plan.tensors * 2},
        "differ in number": {"input_names": ("a",)},
        "latency is that of a processor": {"processors": (dataclasses.replace(plan.processors[0], name="x"),)},
    }
    for told, changes in cases.items():
        with pytest.raises(errors.DataLossError, match=told):
            plan_with(made, **changes)


def test_a_file_outside_of_the_folder_is_refused(made):
    raw = json.loads(made.plan.to_json())
    raw["pieces"][0] = {**raw["pieces"][0], "file": "sub/../../secret", "offset": None}
    with pytest.raises(errors.DataLossError, match="no file of its folder sub"):
        Plan.from_json(json.dumps(raw))


@pytest.mark.parametrize("name", ["face_landmark", "face_detection_short"])
def test_real_models(tmp_path, name):
    if name not in model_zoo.present():
        pytest.skip(f"python -m tf_ext.lite.model_zoo {name}")
    found = make_bundle(model_zoo.path(name), tmp_path / f"{name}.tfxlite", parts=2, **QUICK)
    assert [piece.units for piece in found.plan.pieces] == [(0, 1), (0, 2), (1, 2)]
    assert not found.plan.dropped
    assert Bundle.open(found.path).plan == found.plan
    assert found.path.suffix == bundle.SUFFIX

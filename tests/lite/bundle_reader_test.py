"""The library's own reader of bundles: whatever the bytes, an error that says why, or a model that runs; never a crash."""

import copy
import json
import os
import subprocess
import sys
import textwrap

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.lite import faults
from tests.lite.faults import SIZE
from tf_ext import lite
from tf_ext.lite import _library, errors

pytestmark = pytest.mark.skipif(_library.find() is None, reason=f"the library is not built: {_library.REPAIR}")

INPUT = np.arange(SIZE, dtype=np.float32)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    return faults.build_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def engine(runtime):
    with lite.Engine(runtime=runtime, workers="cpu") as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return faults.write_bundle(tmp_path_factory.mktemp("bundle") / "sum")


@pytest.fixture(scope="module")
def packed(folder):
    return faults.pack(folder)


@pytest.fixture
def plan(tmp_path):
    """A plan to spoil; `written` writes it."""
    return faults.plan(tmp_path / "made")


@pytest.fixture
def written(tmp_path):
    def write(plan):
        text = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
        (tmp_path / "made" / "plan.json").write_bytes(text)
        return tmp_path / "made"

    return write


def runs(engine, bundle):
    return np.array_equal(engine.request(engine.add(bundle), INPUT)["t2"], INPUT + 3)


def attempt(engine, bundle):
    """Adds and runs a bundle; returns when that failed, and the error."""
    step = "adding"
    try:
        model = engine.add(bundle)
        step = "running"
        engine.request(model, [np.zeros(one.shape, one.type) for one in model.inputs])
    except errors.LiteError as error:
        return step, error
    return None


def test_what_is_whole_runs(engine, folder, packed):
    assert runs(engine, folder)
    assert runs(engine, packed)


def test_every_truncation_is_told(engine, packed):
    whole = len(packed.rstrip(b"\0"))
    for length in range(1, whole):
        with pytest.raises(errors.DataLossError):
            engine.add(packed[:length])
    assert runs(engine, packed[:whole])


def test_every_flipped_byte_of_a_piece_is_found(engine, packed):
    plan = json.loads(packed[16 : 16 + int.from_bytes(packed[8:16], "little")])
    (whole,) = [piece for piece in plan["pieces"] if piece["units"] == [0, 2]]
    for place in range(whole["offset"], whole["offset"] + whole["bytes"]):
        damaged = bytearray(packed)
        damaged[place] ^= 0x20
        model = engine.add(bytes(damaged))
        # Pieces are compared when they are first used, and what can be done without one is.
        assert np.array_equal(engine.request(model, INPUT)["t2"], INPUT + 3)
    assert "has another checksum than its plan says" in json.dumps(engine.statistics()["workers"])


def test_flipped_bytes_of_the_plan_are_told_or_change_nothing_that_runs(engine, packed):
    said: dict[str, list[str]] = {"adding": [], "running": []}
    for place in range(16 + int.from_bytes(packed[8:16], "little")):
        damaged = bytearray(packed)
        damaged[place] ^= 0x01
        found = attempt(engine, bytes(damaged))
        if found is not None:
            said[found[0]].append(f"{type(found[1]).__name__}: {found[1]}")
    # Of the rest, a processor has another name, or a piece another checksum.
    refused = [text for text in said["adding"] if text.startswith("DataLossError: ")]
    assert len(refused) > 500
    assert all("made for the processors" in text for text in said["adding"] if text not in refused)
    assert all("another checksum" in text or "could not read a piece" in text for text in said["running"])


VALUES = st.sampled_from(
    [None, True, False, 0, 1, -1, 3, 1.5, 1e300, -1e300, 2**53, 2**31, 2**63, "", "x", "sub/0-1.tflite", [], [0], {}]
).map(copy.deepcopy)  # what is put into a plan is changed there


@hypothesis.given(data=st.data())
@hypothesis.settings(
    max_examples=300, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_values_of_other_kinds_are_told_or_change_nothing_that_runs(engine, packed, data):
    raw = json.loads(packed[16 : 16 + int.from_bytes(packed[8:16], "little")])
    for _ in range(data.draw(st.integers(1, 3))):
        at = raw
        while True:
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not at[key] or not isinstance(at[key], dict | list) or data.draw(st.integers(0, 2)) == 0:
                break
            at = at[key]
        if isinstance(at, list) and data.draw(st.booleans()):
            at.append(copy.deepcopy(at[key]))
        else:
            at[key] = data.draw(VALUES)
    text = json.dumps(raw).encode()
    if len(text) + 16 > 4096:
        return
    bundle = (b"TFXLITE1" + len(text).to_bytes(8, "little") + text).ljust(4096, b"\0") + packed[4096:]
    found = attempt(engine, bundle)
    assert found is None or (not isinstance(found[1], errors.InternalError) and str(found[1]))


def change(*path, to):
    def apply(plan):
        at = plan
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (change("format", to="tf_ext.heavy"), "of format 'tf_ext.heavy', version 1; make the bundle anew"),
        (change("version", to=2), "version 2; make the bundle anew"),
        (change("model", "operators", to=0), "'model' is incomplete"),
        (change("model", "operators", to=3), "the units do not cover the operators"),
        (change("units", 1, "operators", to=[2, 2]), "unit 1 does not begin with the operator behind"),
        (change("units", 1, "outputs", to=[1]), "unit 1 writes a tensor that another unit writes"),
        (change("units", to=[]), "the plan has no units"),
        (change("tensors", 1, "id", to=0), "a tensor is there twice"),
        (change("tensors", 1, "type", to="gloat32"), "tensor 't1' is of type 'gloat32', which has no fixed size"),
        (change("tensors", 1, "bytes", to=4), "tensor 't1' is said to have 4 bytes, which its type and shape do not"),
        (change("tensors", 1, "shape", to=[2**31 - 1] * 8), "tensor 't1' is said to have 64 bytes"),
        (change("tensors", 1, "shape", to=[1] * 9), "tensor 1 of the plan is incomplete"),
        (change("tensors", 1, "shape", to=[-1]), "has a size that is none"),
        (change("inputs", to=[9]), "one of the inputs is no tensor of the plan"),
        (change("outputs", to=[]), None),
        (change("processors", to=[]), "the plan names no processor"),
        (change("processors", 0, "accelerator", to="tpu"), "accelerator cpu, gpu or npu"),
        (change("pieces", 0, "units", to=[1, 1]), "piece 0 is incomplete"),
        (change("pieces", 0, "units", to=[0, 3]), "piece 0 is incomplete"),
        (change("pieces", 0, "latency_us", "cpu", to=-1), "has a latency that is none"),
        (change("pieces", 0, "file", to="/etc/passwd"), "piece 0 has no file in the bundle's folder"),
        (change("pieces", 0, "file", to="sub/../../x"), "piece 0 has no file in the bundle's folder"),
        (change("pieces", 0, "outputs", to=[]), "a piece reads a tensor that need not have been written before"),
        (change("pieces", 0, "outputs", to=[2]), "a piece writes a tensor that none of its units makes"),
        (change("pieces", 1, "inputs", to=[2]), "a piece reads a tensor that need not have been written before"),
        (change("pieces", 2, "outputs", to=[]), "an output of the model need not be written by any piece"),
    ],
)
def test_plans_that_contradict_themselves(engine, plan, written, spoil, said):
    spoil(plan)
    if said is None:
        engine.add(written(plan))
        return
    with pytest.raises(errors.DataLossError, match=f"plan.json: .*{said}"):
        engine.add(written(plan))


def test_a_plan_without_a_way_through(engine, plan, written):
    plan["pieces"] = [piece for piece in plan["pieces"] if piece["units"] == [0, 1]]
    with pytest.raises(errors.DataLossError, match="do not lead from the first unit to the last"):
        engine.add(written(plan))


def test_a_piece_may_leave_out_what_is_read_within_it_alone(engine, plan, written):
    """The piece of both units does not write what the first hands to the second."""
    (whole,) = [piece for piece in plan["pieces"] if piece["units"] == [0, 2]]
    assert whole["outputs"] == [2]
    assert runs(engine, written(plan))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "expected a value at byte 0|bytes 0 to 0"),
        (b"\xef\xbb\xbf{}", "expected a digit at byte 0"),
        (b"{} x", "expected nothing more at byte 3"),
        (b'{"a": 01}', "expected no leading zero"),
        (b'{"a": 1.}', "expected a digit"),
        (b'{"a": NaN}', "expected a digit"),
        (b'{"a": 1e999}', "expected a number in range"),
        (b'{"a": 1, "a": 2}', "expected no name twice"),
        (b'{"a": "\xff"}', "expected UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "expected UTF-8"),
        (b'{"a": "\xc0\x80"}', "expected UTF-8"),
        (b'{"a": "\xf4\x90\x80\x80"}', "expected UTF-8"),
        (b'{"a": "\xe2\x82', "expected UTF-8"),
        (b'{"a": "\\ud800"}', "expected the second half of a character"),
        (b'{"a": "\\ud800\\u0041"}', "expected the second half of a character"),
        (b'{"a": "\\udc00"}', "expected the first half of a character"),
        (b'{"a": "\\x"}', "expected an escape"),
        (b'{"a": "\t"}', "expected no control character"),
        (b'{"a": "', "expected the end of a string"),
        (b'{"a" 1}', "expected ':'"),
        (b"{1: 2}", "expected a name in quotes"),
        (b"[1 2]", r"expected ',' or '\]'"),
        (b"[" * 100_000, "expected fewer levels"),
        (b"[" + b"0," * (1 << 22) + b"0]", "expected fewer values"),
        (b'"' + b" " * (64 << 20) + b'"', "expected at most 64 MiB"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_json(engine, tmp_path, text, said):
    (tmp_path / "plan.json").write_bytes(text)
    with pytest.raises(errors.DataLossError, match=said):
        engine.add(tmp_path)


def test_names_of_all_characters(engine, plan, written):
    name = 'x "\\\n\u00e9\u20ac\U0001f600'
    plan["model"]["name"] = plan["tensors"][0]["name"] = name
    for escaped in (True, False):
        model = engine.add(written(json.dumps(plan, ensure_ascii=escaped).encode()))
        assert model.inputs[0].name == name
        assert engine.statistics()["models"][-1]["name"] == name


@pytest.mark.parametrize("length", [1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000])
def test_checksums_of_all_lengths(engine, plan, written, tmp_path, length):
    """Those of `hashlib`: a piece of this length is read, and turned down by the runtime alone."""
    import hashlib

    data = bytes(range(256)) * 4
    plan["pieces"] = [piece for piece in plan["pieces"] if piece["units"] == [0, 2]]
    plan["pieces"][0].update(bytes=length, sha256=hashlib.sha256(data[:length]).hexdigest())
    (tmp_path / "made" / "sub" / "0-2.tflite").write_bytes(data[:length])
    with pytest.raises(errors.UnavailableError, match="could not read a piece: no valid model"):
        engine.request(engine.add(written(plan)), INPUT)
    plan["pieces"][0]["sha256"] = "0" * 64
    with pytest.raises(errors.UnavailableError, match="another checksum"):
        engine.request(engine.add(written(plan)), INPUT)


def test_files_of_a_folder(engine, plan, written, tmp_path):
    plan["pieces"] = [piece for piece in plan["pieces"] if piece["units"] == [0, 2]]
    piece = tmp_path / "made" / "sub" / "0-2.tflite"
    piece.write_bytes(b"add 33")
    with pytest.raises(errors.UnavailableError, match="expected to have 5 bytes, but has 6"):
        engine.request(engine.add(written(plan)), INPUT)
    piece.unlink()
    with pytest.raises(errors.UnavailableError, match="No such file"):
        engine.request(engine.add(written(plan)), INPUT)
    os.mkfifo(piece)
    with pytest.raises(errors.UnavailableError, match="expected an open file"):
        engine.request(engine.add(written(plan)), INPUT)


def test_paths_that_are_no_bundle(runtime, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    # In a process of its own: a reader that waits for the pipe would wait for ever.
    code = f"""
        from tf_ext import lite
        from tf_ext.lite import errors
        with lite.Engine(runtime={str(runtime)!r}, workers="cpu") as engine:
            for name in ("absent", "empty", "folder", "pipe"):
                try:
                    engine.add({str(tmp_path)!r} + "/" + name)
                except errors.LiteError as error:
                    print(name, type(error).__name__, error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    kinds = dict(line.split(" ")[:2] for line in done.stdout.splitlines())
    assert kinds == {
        "absent": "NotFoundError",
        "empty": "DataLossError",
        "folder": "DataLossError",
        "pipe": "DataLossError",
    }


def test_numbers_are_read_in_every_locale(runtime, folder):
    """Where the decimal point is a comma, C's own functions stop at a point."""
    code = f"""
        import locale, numpy as np
        for name in ("de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"):
            try:
                locale.setlocale(locale.LC_NUMERIC, name)
                break
            except locale.Error:
                pass
        else:
            print("none")
            raise SystemExit
        from tf_ext import lite
        with lite.Engine(runtime={str(runtime)!r}, workers="cpu") as engine:
            engine.request(engine.add({str(folder)!r}), np.zeros({SIZE}, np.float32))
            print(engine.statistics()["workers"][0]["slowdown"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    if done.stdout.strip() == "none":
        pytest.skip("no locale with a decimal comma is installed; to get one: apt-get install locales-all")
    assert float(done.stdout) > 0

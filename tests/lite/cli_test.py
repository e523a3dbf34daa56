"""`tf-ext lite`: what each action prints and writes, and what it says when something is wrong."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.lite import tiny
from tf_ext.lite import _library, errors, load
from tf_ext.lite.bundle import Bundle, make_bundle

pytestmark = pytest.mark.usefixtures("litert")
with_library = pytest.mark.skipif(_library.find() is None, reason=f"the library is not built: {_library.REPAIR}")


def tf_ext(*arguments, **environment) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tf_ext.cli", "lite", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A model, its bundle, and a load of it."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "net.tflite").write_bytes(tiny.residual())
    make_bundle(folder / "net.tflite", folder / "net.tfxlite", parts=2, runs=3, cache=False)
    models = [
        {"bundle": "net.tfxlite", "period_ms": 20, "slo_ms": 500, "name": "regular"},
        {"model": "net.tflite", "stream": 2, "name": "streamed"},
    ]
    (folder / "load.json").write_text(json.dumps({"seconds": 0.4, "workers": "cpu,cpu", "models": models}))
    (folder / "regular.json").write_text(json.dumps({"seconds": 0.4, "workers": "cpu,cpu", "models": models[:1]}))
    return folder


def test_analyze_prints_the_table(folder):
    (folder / "support.json").write_text(json.dumps({"gpu": ["CONV_2D", "LOGISTIC"]}))
    done = tf_ext("analyze", folder / "net.tflite", "--processors", "cpu,gpu", "--support", folder / "support.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("net: 22 operators, 5 of constants alone")
    assert "gpu does not support: 5 MUL, 2 ADD" in done.stdout


def test_bundle_writes_one_and_does_not_overwrite_it_unasked(folder, tmp_path):
    arguments = ("bundle", folder / "net.tflite", tmp_path / "out.tfxlite", "--parts", "3", "--runs", "3", "--no-cache")
    done = tf_ext(*arguments)
    assert done.returncode == 0, done.stderr
    assert len(Bundle.open(tmp_path / "out.tfxlite").plan.units) == 3
    assert done.stdout.startswith("net: 22 operators in 3 units, 6 pieces")
    again = tf_ext(*arguments)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1].startswith("tf-ext lite: there is already something at")
    assert tf_ext(*arguments, "--overwrite").returncode == 0


def test_profile_prints_percentiles(folder, tmp_path):
    done = tf_ext("profile", folder / "net.tflite", "--runs", "5", TF_EXT_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()
    assert head.split() == ["net,", "ms", "runs", "mean", "least", "median", "90", "%", "99", "%"]
    assert row.split()[:2] == ["cpu", "5"]
    assert len(list((tmp_path / "profiles").iterdir())) == 1


def test_what_is_wrong_is_told_in_a_sentence(folder, tmp_path):
    (tmp_path / "bad.tflite").write_bytes(b"\x18\x00\x00\x00TFL3" + bytes(10))
    (tmp_path / "bad.json").write_text('{"models": [{"bundle": "x", "perod_ms": 3}]}')
    for arguments, told in (
        (("analyze", tmp_path / "none.tflite"), "none.tflite cannot be read: No such file"),
        (("analyze", tmp_path / "bad.tflite"), "bad is damaged"),
        (("profile", folder / "net.tflite", "--core", "4096"), "expected one of the cores"),
        (("benchmark", tmp_path / "none.json"), "none.json cannot be read"),
        (("benchmark", tmp_path / "bad.json"), "got ['perod_ms']"),
    ):
        done = tf_ext(*arguments, TF_EXT_CACHE=str(tmp_path))
        assert done.returncode == 1
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("tf-ext lite: ")
        assert told in last
        assert "Traceback" not in done.stderr


def test_arguments_are_checked(folder):
    done = tf_ext("analyze", folder / "net.tflite", "--parts", "0")
    assert done.returncode == 2
    assert "expected a number from 1 on, got 0" in done.stderr


@with_library
def test_run_takes_and_gives_arrays(folder, tmp_path):
    inputs = {"left": np.ones((1, 6, 6, 4), np.float32), "right": np.zeros((1, 6, 6, 4), np.float32)}
    np.savez(tmp_path / "in.npz", **inputs)
    arguments = ("--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--count", "3", "--workers", "cpu")
    done = tf_ext("run", folder / "net.tfxlite", *arguments)
    assert done.returncode == 0, done.stderr
    assert "ms, the median of 3" in done.stdout
    assert set(np.load(tmp_path / "out.npz")) == set(Bundle.open(folder / "net.tfxlite").plan.output_names)


@with_library
def test_benchmark_prints_a_row_for_each_model(folder):
    done = tf_ext("benchmark", folder / "load.json", "--json")
    assert done.returncode == 0, done.stderr
    table, _, statistics = done.stdout.partition("{")
    rows = {line.split()[0]: line.split() for line in table.splitlines()}
    assert rows["regular"][1:6] == ["20", "ms", "500", "ms", "20"]
    assert rows["streamed"][1:4] == ["stream", "of", "2"]
    assert len(json.loads("{" + statistics)["workers"]) == 2


@with_library
def test_trace_writes_what_ran(folder, tmp_path):
    done = tf_ext("trace", folder / "load.json", "--out", tmp_path / "t.json", "--seconds", "0.2", "--policy", "heft")
    assert done.returncode == 0, done.stderr
    assert sum(event.get("ph") == "X" for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 10


@with_library
def test_simulate_compares_policies(folder):
    done = tf_ext("simulate", folder / "regular.json", "--policies", "heft,fixed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Simulated: regular, 20 jobs, 2 workers")
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["heft", "20"], ["fixed", "20"]]
    drawn = tf_ext("simulate", "--seed", "3", "--policies", "heft")
    assert drawn.returncode == 0, drawn.stderr
    stream = tf_ext("simulate", folder / "load.json")
    assert "streamed is a stream, which has no fixed times" in stream.stderr


@with_library
def test_processors_tells_of_this_machine():
    done = tf_ext("processors")
    assert done.returncode == 0, done.stderr
    begins = [
        line.split()[0] for line in done.stdout.splitlines()[2:] if not line.startswith(" ")
    ]  # long ones are wrapped
    assert begins == ["cpu", "gpu", "npu"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("[]", "expected an object, got list"),
        ("{", "is no JSON"),
        ('{"models": []}', "expected a list of models"),
        ('{"modles": [1]}', r"got \['modles'\]"),
        ('{"seconds": 0, "models": [{"bundle": "x"}]}', "expected 'seconds' to be a number over 0, got 0"),
        ('{"models": [{"bundle": "x", "model": "y"}]}', "either a 'bundle' or a 'model'"),
        ('{"models": [{"bundle": "x", "period_ms": 3, "stream": 1}]}', "either a period or a stream"),
        ('{"models": [{"bundle": "x", "slo_ms": "fast"}]}', "expected 'slo_ms' to be a number"),
        ('{"models": [{"bundle": "x", "stream": 1.5}]}', "whole numbers"),
    ],
)
def test_loads_that_cannot_be_understood(tmp_path, raw, told):
    (tmp_path / "load.json").write_text(raw)
    with pytest.raises(errors.InvalidArgumentError, match=told):
        load.Load.read(tmp_path / "load.json")


def test_a_load_is_read(folder):
    found = load.Load.read(folder / "load.json")
    assert (found.seconds, found.workers, found.policy) == (0.4, "cpu,cpu", "adaptive")
    regular, streamed = found.sources
    assert (regular.path, regular.period, regular.slo) == (folder / "net.tfxlite", 0.02, 0.5)
    assert (streamed.stream, streamed.period, streamed.slo, streamed.priority) == (2, None, None, 0)

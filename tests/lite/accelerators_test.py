"""Probing and bundles on a real GPU path: WebGPU over Vulkan, which SwiftShader computes; and what a crash or a hang does."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tf_ext.testing
from tests.lite import tiny
from tf_ext.lite import _accelerators, _library, errors, prober, profiler
from tf_ext.lite.bundle import make_bundle
from tf_ext.lite.model import Model

pytestmark = [
    pytest.mark.usefixtures("litert"),
    pytest.mark.skipif(_library.find() is None, reason=f"the library is not built: {_library.REPAIR}"),
]

SWIFTSHADER = pathlib.Path("/usr/lib/chromium")


@pytest.fixture
def gpu(monkeypatch, tmp_path) -> None:
    """A GPU for child processes: that of chromium, which the CPU computes."""
    tf_ext.testing.require("chromium")
    driver = SWIFTSHADER / "vk_swiftshader_icd.json"
    if not driver.is_file():
        pytest.skip(f"this chromium has no {driver}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(SWIFTSHADER))
    monkeypatch.setenv("VK_ICD_FILENAMES", str(driver))
    monkeypatch.setenv(profiler.CACHE_VARIABLE, str(tmp_path / "cache"))


def mixed() -> bytes:
    """Convolutions, and between them an operator that GPUs lack: which of two numbers is larger, as an index."""
    random, graph = np.random.default_rng(1), tiny.Graph()
    size = (1, 8, 8, 4)
    x = graph.input(size)
    same = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1, "padding": 0}

    def convolve(value):
        kernel = graph.constant(random.normal(0, 0.3, (4, 3, 3, 4)).astype("float32"))
        bias = graph.constant(random.normal(0, 0.1, 4).astype("float32"))
        return graph.op("CONV_2D", [value, kernel, bias], size, options=("Conv2DOptions", same))

    x = convolve(x)
    index = graph.op(
        "ARG_MAX",
        [x, graph.constant(np.array(3, "int32"))],
        (1, 8, 8),
        "int64",
        options=("ArgMaxOptions", {"outputType": 4}),
    )
    number = graph.op("CAST", [index], (1, 8, 8), options=("CastOptions", {}))
    shape = graph.constant(np.array([1, 8, 8, 1], "int32"))
    wide = graph.op("RESHAPE", [number, shape], (1, 8, 8, 1), options=("ReshapeOptions", {}))
    x = graph.op("ADD", [x, wide], size, options=("AddOptions", {}))
    return graph.data(convolve(x))


def test_a_gpu_gets_the_units_that_it_supports(gpu, tmp_path):
    found = make_bundle(
        mixed(), tmp_path / "b.tfxlite", name="mixed", processors=("cpu", "gpu"), warmup=0, runs=3, cache=False
    )
    first, *_, last = found.plan.units
    assert first.processors == last.processors == ("cpu", "gpu")
    assert ("cpu",) in [unit.processors for unit in found.plan.units]
    by_units = {piece.units: piece.latency_us for piece in found.plan.pieces}
    assert by_units[0, 1]["gpu"] is not None
    assert by_units[0, len(found.plan.units)]["gpu"] is None
    assert all(latency["cpu"] is not None for latency in by_units.values())
    assert found.plan.dropped == ()


def test_what_was_found_by_probing_is_kept(gpu, monkeypatch):
    model = Model(mixed())
    first = prober.probe(model, "gpu")
    assert model.ordinary[0] in first
    asked: list[int] = []
    run = _accelerators.Accelerator.run

    def counted(*arguments):
        asked.append(1)
        return run(*arguments)

    monkeypatch.setattr(_accelerators.Accelerator, "run", counted)
    assert prober.probe(model, "gpu") == first
    assert len(asked) < len(model.ordinary)  # only what was refused is asked again


def test_an_engine_with_cpu_and_gpu_agrees_with_the_cpu(gpu, tmp_path):
    """In a process of its own: the driver is looked for when a process starts."""
    code = f"""
import numpy as np
from tests.lite.accelerators_test import mixed
from tf_ext.lite import Engine, make_bundle, _runners
bundle = make_bundle(mixed(), {str(tmp_path / "b")!r}, processors=("cpu", "gpu"), warmup=0, runs=3, cache=False)
value = np.random.default_rng(2).random((1, 8, 8, 4), np.float32)
wanted = _runners.cpu(mixed()).run([value])[0]
with Engine(workers="cpu,gpu") as engine:
    model = engine.add(bundle)
    for _ in range(20):
        made, = engine.request(model, [value]).values()
        assert np.abs(made - wanted).max() < 1e-3
    made, = engine.request(model, [value], worker=0).values()
    assert np.array_equal(made, wanted)
print("agrees")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "agrees", done.stderr[-2000:]


def test_an_accelerator_that_is_absent_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("VK_ICD_FILENAMES", "/dev/null")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(errors.UnavailableError, match="gpu runs no operator of net"):
        make_bundle(tiny.residual(), tmp_path / "b", name="net", processors=("cpu", "gpu"), runs=3, cache=False)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def child(monkeypatch, tmp_path):
    """Puts other code into the child's place."""

    def put(code: str, timeout: float = 60.0) -> _accelerators.Accelerator:
        script = tmp_path / "child.py"
        script.write_text("import sys, os, time\nfrom tf_ext.lite import _accelerators\n" + code)
        popen = subprocess.Popen
        start = "tf_ext.lite._accelerators.subprocess.Popen"
        monkeypatch.setattr(start, lambda command, **more: popen([command[0], str(script)], **more))
        return _accelerators.Accelerator("gpu", timeout=timeout)

    return put


def test_a_crash_is_told_and_the_next_call_starts_anew(child):
    with child("_accelerators.receive(sys.stdin.buffer)\nos.abort()") as accelerator:
        for _ in range(2):
            with pytest.raises(errors.UnavailableError, match="gpu crashed: .* ended with signal SIGABRT"):
                accelerator.run(b"", [], [])


def test_a_hang_is_ended(child):
    with (
        child("time.sleep(100)", timeout=1.0) as accelerator,
        pytest.raises(errors.UnavailableError, match=r"gpu did not answer within 1 s"),
    ):
        accelerator.run(b"", [], [])


def test_what_the_child_refuses_is_told(child):
    code = "_accelerators.receive(sys.stdin.buffer)\n_accelerators.send(sys.stdout.buffer, (False, 'no such driver'))\n"
    with child(code) as accelerator, pytest.raises(errors.UnavailableError, match="no such driver"):
        accelerator.run(b"", [], [])

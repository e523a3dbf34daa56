"""Programs of real GPU and NPU paths, WebGPU over SwiftShader's Vulkan and OpenVINO on its CPU back end; and their cache."""

import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import tf_ext.testing
from tf_ext.lite import _library

pytestmark = [
    pytest.mark.usefixtures("litert"),
    pytest.mark.skipif(_library.find() is None, reason=f"the library is not built: {_library.REPAIR}"),
]

ROOT = pathlib.Path(__file__).parents[2]
SWIFTSHADER = pathlib.Path("/usr/lib/chromium")
TOLERANCE = 1e-3


def gpu_environment():
    tf_ext.testing.require("chromium")
    driver = SWIFTSHADER / "vk_swiftshader_icd.json"
    if not driver.is_file():
        pytest.skip(f"this chromium has no {driver}")
    return {"LD_LIBRARY_PATH": str(SWIFTSHADER), "VK_ICD_FILENAMES": str(driver)}


def npu_environment():
    found = importlib.util.find_spec("openvino")
    if found is None or found.origin is None:
        pytest.skip("openvino is absent; to get it: pip install openvino==2026.3.1")
    return {
        "LD_LIBRARY_PATH": str(pathlib.Path(found.origin).parent / "libs"),
        # Else it computes in bfloat16 where the CPU has that.
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "TF_EXT_LITERT_NPU_OPTIONS": "intel_openvino: graph.-1.graph_backend = 0",
    }


@pytest.fixture(params=["gpu", "npu"])
def device(request, tmp_path):
    """Runs code in a process of its own, on a processor; returns what it prints as JSON, and what the drivers say."""
    environment = {"gpu": gpu_environment, "npu": npu_environment}[request.param]()
    prelude = f"""
        import json, sys
        import numpy as np
        from tests.lite import tiny
        from tf_ext.lite import Engine, _runners
        from tf_ext.lite._accelerator_child import bundle_of
        KIND = {request.param!r}
        random = np.random.default_rng(0)
        inputs = [random.random((1, 6, 6, 4), np.float32) for _ in range(2)]

        def far(engine, model, seed):
            wanted = _runners.cpu(tiny.residual(seed, half=False)).run(inputs)
            made = engine.request(model, inputs).values()
            return max(float(np.abs(a - b).max()) for a, b in zip(made, wanted, strict=True))
    """

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "TF_EXT_LITERT_LOG": "1",
                **environment,
            },
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    run.kind = request.param  # type: ignore[attr-defined]  # a function may carry what the tests ask about
    return run


def test_two_models_on_one_processor_while_both_are_open(device):
    """The second model failed while the first was open (LiteRT#5264)."""
    made, _ = device("""
        with Engine("fixed", KIND) as engine:
            models = [engine.add(bundle_of(tiny.residual(seed, half=False), KIND)) for seed in (1, 2)]
            distances = [far(engine, models[seed - 1], seed) for seed in (1, 2, 1, 2)]
            print(json.dumps([distances, engine.statistics()["workers"][0]["pieces"]]))
    """)
    distances, pieces = made
    assert max(distances) < TOLERANCE
    assert [(piece["accelerator"], piece["runs"]) for piece in pieces] == [(device.kind, 2)] * 2
    assert pieces[0]["precision"] == {"gpu": "float32", "npu": "chosen by the driver"}[device.kind]


def test_a_second_start_compiles_nothing(device, tmp_path):
    code = f"""
        with Engine("fixed", KIND, cache_dir={str(tmp_path / "kept")!r}) as engine:
            print(json.dumps(far(engine, engine.add(bundle_of(tiny.residual(3, half=False), KIND)), 3)))
    """
    said = {
        "gpu": "Initialized InferenceContext from serialized data",
        "npu": "Flatbuffer model initialized from cached model",
    }[device.kind]
    first, told = device(code)
    assert said not in told
    kept = {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert sorted(path.suffix == ".sha256" for path in kept) == [False, True]
    second, told = device(code)
    assert said in told
    assert second == first < TOLERANCE
    assert {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()} == kept


def test_another_model_never_gets_what_was_kept(device, tmp_path):
    code = """
        with Engine("fixed", KIND, cache_dir={folder!r}) as engine:
            print(json.dumps(far(engine, engine.add(bundle_of(tiny.residual({seed}, half=False), KIND)), {seed})))
    """
    for seed in (4, 5, 4):
        assert device(code.format(folder=str(tmp_path), seed=seed))[0] < TOLERANCE


@pytest.mark.parametrize("damage", ["cut", "flipped", "other", "seals"])
def test_what_was_kept_may_be_damaged(device, tmp_path, damage):
    code = f"""
        with Engine("fixed", KIND, cache_dir={str(tmp_path)!r}) as engine:
            print(json.dumps(far(engine, engine.add(bundle_of(tiny.residual(6, half=False), KIND)), 6)))
    """
    device(code)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert kept
    for path in kept:
        if path.suffix == ".sha256" and damage != "seals":
            continue
        data = path.read_bytes()
        flipped = bytearray(data)
        for place in range(0, len(data), 997):
            flipped[place] ^= 0xFF
        other = {"cut": data[: len(data) // 3], "flipped": bytes(flipped), "other": b"\x55" * 3000, "seals": b""}
        path.write_bytes(other[damage] if damage != "seals" or path.suffix == ".sha256" else data)
    assert device(code)[0] < TOLERANCE
    # It was compiled anew, and is whole again; compilers need not give the same bytes twice.
    for path in kept:
        if path.suffix != ".sha256":
            seal = path.with_name(path.name + ".sha256").read_text().strip()
            assert seal == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_gpu_may_compute_in_half_precision(tmp_path):
    """The option reaches LiteRT: what is kept for one precision is not taken for the other."""
    environment = gpu_environment()
    code = """
        import ctypes, json, sys
        from tests.lite import tiny
        from tests.lite.engine_c_test import App
        from tf_ext.lite._accelerator_child import bundle_of
        from tf_ext.lite.engine import runtime_library
        app = App(runtime=str(runtime_library()), workers="gpu", cache_dir=sys.argv[1], gpu_precision=sys.argv[2])
        open(sys.argv[1] + "/bundle", "wb").write(bundle_of(tiny.residual(3, half=False), "gpu"))
        assert app.add(sys.argv[1] + "/bundle") == 0, app.told()
        assert app.lib.TfExtLiteWarmUp(app.handle, app.model) == 0, app.told()
        (worker,) = app.text(app.lib.TfExtLiteStatistics(app.handle))["workers"]
        print(json.dumps(worker["pieces"][0]["precision"]))
        app.close()
    """
    said = []
    for precision in ("float32", "float16"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), precision],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(json.loads(done.stdout.splitlines()[-1]))
    assert said == ["float32", "float16 where the GPU has it"]
    assert len(list(tmp_path.rglob("*_program_cache.bin"))) == 2

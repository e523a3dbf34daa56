"""What apps take: the library for aarch64, its C interface, and the Java classes."""

import pathlib
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import tf_ext.testing
from tests.lite import faults, tiny
from tf_ext.lite import _runners, engine
from tf_ext.lite.bundle import make_bundle
from tf_ext.lite.model import Model

ROOT = pathlib.Path(__file__).parents[2]
ANDROID = ROOT / "android"

pytestmark = [
    pytest.mark.usefixtures("litert"),
    pytest.mark.skipif(not ANDROID.is_dir(), reason="the sources for apps are not here"),
]


def run(*command) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def build(folder: pathlib.Path, *definitions: str) -> pathlib.Path:
    bin_folder = pathlib.Path(sys.executable).parent
    cmake, ninja = (shutil.which(name, path=bin_folder) or shutil.which(name) for name in ("cmake", "ninja"))
    if cmake is None or ninja is None:
        pytest.skip("cmake and ninja are absent; to get them: pip install cmake ninja")
    run(cmake, "-S", ANDROID, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *definitions)
    run(cmake, "--build", folder, "--parallel", "2")
    return folder


class Made(NamedTuple):
    """A bundle, files with its inputs, and the outputs that plain LiteRT gives."""

    bundle: pathlib.Path
    inputs: list[pathlib.Path]
    outputs: list[np.ndarray]


def make(data: bytes, folder: pathlib.Path) -> Made:
    read = Model(data)
    values = _runners.random_inputs([read.tensors[index] for index in read.inputs], seed=7)
    files = [folder / f"input{index}" for index in range(len(values))]
    for file, value in zip(files, values, strict=True):
        file.write_bytes(value.tobytes())
    made = make_bundle(data, folder / "net.tfxlite", name="net", parts=2, warmup=0, runs=3, cache=False)
    return Made(made.path, files, _runners.cpu(data).run(values))


@pytest.fixture(scope="module")
def for_arm(tmp_path_factory):
    tf_ext.testing.require("aarch64")
    folder = tmp_path_factory.mktemp("arm")
    return build(folder, f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / 'aarch64-linux-gnu.cmake'}", "-DTF_EXT_JNI=OFF")


@pytest.fixture(scope="module")
def for_host(tmp_path_factory):
    tf_ext.testing.require("java")
    return build(tmp_path_factory.mktemp("host"))


def alignments(library: pathlib.Path) -> list[int]:
    lines = run("readelf", "-lW", library).splitlines()
    return [int(line.split()[-1], 16) for line in lines if line.split()[:1] == ["LOAD"]]


def test_libraries_load_on_phones_with_pages_of_16_kib(for_arm, for_host):
    libraries = [for_arm / "libtf_ext_lite.so", for_host / "libtf_ext_lite.so", for_host / "libtf_ext_lite_jni.so"]
    for library in libraries:
        found = alignments(library)
        assert found
        assert min(found) >= 0x4000, library


def test_only_the_interface_is_exported(for_arm):
    names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", for_arm / "libtf_ext_lite.so").splitlines()]
    assert {"TfExtLiteEngineCreate", "tflite_plugin_create_delegate"} <= set(names)
    assert [name for name in names if not name.startswith(("TfExtLite", "tflite_plugin_"))] == []


def test_an_app_in_c_runs_a_bundle_on_aarch64(for_arm, tmp_path):
    """With a runtime of the tests' own: LiteRT's for aarch64 crashes in qemu 7.2 while it compiles a model."""
    tf_ext.testing.require("qemu")
    bundle, runtime, program = faults.write_bundle(tmp_path / "sum"), tmp_path / "runtime.so", tmp_path / "run_bundle"
    compiler = ["aarch64-linux-gnu-gcc", "-std=c11", f"-I{ROOT}"]
    run(*compiler, "-shared", "-fPIC", "-o", runtime, faults.NATIVE / "fake_litert.c")
    run(*compiler, faults.NATIVE / "run_bundle.c", "-o", program, f"-L{for_arm}", "-ltf_ext_lite")
    value = np.arange(faults.SIZE, dtype=np.float32)
    (tmp_path / "input").write_bytes(value.tobytes())
    libraries = f"{for_arm}:/usr/aarch64-linux-gnu/lib"
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={libraries}"]
    run(*emulator, program, runtime, bundle, "20", tmp_path / "output", tmp_path / "input")
    assert np.array_equal(np.frombuffer((tmp_path / "output").read_bytes(), np.float32), value + 3)


def test_java_runs_a_bundle_and_makes_a_delegate(for_host, tmp_path):
    graph, _, y = tiny.adding(shape=(1, 64))
    made = make(graph.data(y), tmp_path)
    classes = tmp_path / "classes"
    sources = [*ANDROID.glob("compile_only/**/*.java"), *ANDROID.glob("java/**/*.java")]
    run("javac", "-Xlint:all", "-Werror", "-d", classes, *sources)
    run("javac", "-cp", classes, "-d", classes, pathlib.Path(__file__).parent / "java" / "Smoke.java")
    output = tmp_path / "output"
    java = ["java", f"-Djava.library.path={for_host}", "-cp", classes, "Smoke"]
    assert "all is well" in run(*java, engine.runtime_library(), made.bundle, made.inputs[0], output)
    assert output.read_bytes() == made.outputs[0].tobytes()

"""Layouts and names that other programs rely on: TFLite's structs, LiteRT's, our own, and what the library exports."""

import ctypes
import pathlib
import re
import shutil
import subprocess

import pytest

from tests.lite import faults
from tf_ext.lite import _library

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = ROOT / "custom_ops" / "lite_delegate"
HEADER = SOURCES / "tf_ext_lite.h"

pytestmark = pytest.mark.skipif(not SOURCES.is_dir(), reason="the C++ sources are not here")

# As compiled interpreters have them: offsets of all fields that the delegate touches, and sizes.
TFLITE = {
    "TfLiteIntArray": {"size": 0, "data": 4},
    "TfLiteTensor": {
        "type": 0,
        "data": 8,
        "dims": 16,
        "params": 24,
        "allocation_type": 32,
        "bytes": 40,
        "allocation": 48,
        "name": 56,
        "delegate": 64,
        "buffer_handle": 72,
        "data_is_stale": 76,
        "is_variable": 77,
        "quantization": 80,
        "sparsity": 96,
        "dims_signature": 104,
        "": 112,
    },
    "TfLiteNode": {
        "inputs": 0,
        "outputs": 8,
        "intermediates": 16,
        "temporaries": 24,
        "user_data": 32,
        "builtin_data": 40,
        "custom_initial_data": 48,
        "custom_initial_data_size": 56,
        "delegate": 64,
        "might_have_side_effect": 72,
        "": 80,
    },
    "TfLiteRegistration": {
        "init": 0,
        "free": 8,
        "prepare": 16,
        "invoke": 24,
        "profiling_string": 32,
        "builtin_code": 40,
        "custom_name": 48,
        "version": 56,
        "registration_external": 64,
        "async_kernel": 72,
        "inplace_operator": 80,
        "": 88,
    },
    "TfLiteContext": {
        "tensors_size": 0,
        "GetExecutionPlan": 8,
        "tensors": 16,
        "impl": 24,
        "ResizeTensor": 32,
        "ReportError": 40,
        "AddTensors": 48,
        "GetNodeAndRegistration": 56,
        "ReplaceNodeSubsetsWithDelegateKernels": 64,
    },
    "TfLiteDelegate": {
        "data": 0,
        "Prepare": 8,
        "CopyFromBufferHandle": 16,
        "CopyToBufferHandle": 24,
        "FreeBufferHandle": 32,
        "flags": 40,
        "opaque_delegate_builder": 48,
        "": 56,
    },
    "TfLiteDelegateParams": {"delegate": 0, "nodes_to_replace": 8, "input_tensors": 16, "output_tensors": 24, "": 32},
}


def compiled(folder, language, text):
    """Compiles and runs a program; returns what it prints."""
    compiler, standard = {"c": ("gcc", "-std=c11"), "cc": ("g++", "-std=c++17")}[language]
    source = folder / f"program.{language}"
    source.write_text(text)
    flags = [standard, "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{ROOT}"]
    program = folder / "program"
    command = [faults.compiler(compiler), *flags, str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=True).stdout


def test_tflite_s_structs(tmp_path):
    lines = [
        f'std::printf("{name} {field} %zu\\n", ' + (f"offsetof({name}, {field})" if field else f"sizeof({name})") + ");"
        for name, fields in TFLITE.items()
        for field in fields
    ]
    text = '#include <cstdio>\n#include "custom_ops/lite_delegate/tflite_abi.h"\nint main() {' + "\n".join(lines) + "}"
    found: dict[str, dict[str, int]] = {name: {} for name in TFLITE}
    for line in compiled(tmp_path, "cc", text).splitlines():
        name, field, offset = line.split(" ")
        found[name][field] = int(offset)
    assert found == TFLITE


def test_each_field_of_tflite_s_is_asserted_where_the_library_is_built():
    """So that a compiler for another device says so."""
    text = (SOURCES / "tflite_abi.h").read_text()
    for name, fields in TFLITE.items():
        for field, offset in fields.items():
            said = rf"offsetof\({name}, {field}\) == {offset}\b" if field else rf"sizeof\({name}\) == {offset}\b"
            assert re.search(said, text), f"{name}.{field or 'size'}"


def test_the_header_is_plain_c_and_python_has_its_layout(tmp_path):
    kinds = {
        "Tensor": _library.Tensor,
        "Buffer": _library.Buffer,
        "RequestOptions": _library.RequestOptions,
        "JobView": _library.JobView,
        "WorkerView": _library.WorkerView,
        "PieceView": _library.PieceView,
        "ModelView": _library.ModelView,
        "Snapshot": _library.Snapshot,
        "Decision": _library.Decision,
        "Event": _library.Event,
        "Simulation": _library.Simulation,
        "Run": _library.Run,
        "Simulated": _library.Simulated,
    }
    lines = ["#include <stdio.h>", "#include <stddef.h>", f'#include "{HEADER.relative_to(ROOT)}"', "int main(void) {"]
    expected = []
    for name, kind in kinds.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(TfExtLite{name}));')
        expected.append(f"{name} {ctypes.sizeof(kind)}")
        for field, *_ in kind._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof(TfExtLite{name}, {field}));')
            expected.append(f"{name}.{field} {getattr(kind, field).offset}")
    assert compiled(tmp_path, "c", "\n".join([*lines, "return 0; }"])).splitlines() == expected


def test_the_library_exports_the_header_s_functions_and_the_delegate_s_entries_alone():
    path = _library.find()
    if path is None:
        pytest.skip(f"the library is not built: {_library.REPAIR}")
    if shutil.which("nm") is None:
        pytest.skip("nm is absent; to get it: apt-get install binutils")
    listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    exported = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}
    declared = set(re.findall(r"TF_EXT_LITE_EXPORT [^(;]*?(TfExtLite\w+)\(", HEADER.read_text()))
    assert len(declared) > 20
    assert exported == declared | {"tflite_plugin_create_delegate", "tflite_plugin_destroy_delegate"}
    assert declared == set(_library._FUNCTIONS)


def test_litert_has_every_function_that_is_looked_up():
    litert = pytest.importorskip("ai_edge_litert")
    library = ctypes.CDLL(str(pathlib.Path(litert.__file__).with_name("libLiteRt.so")))
    names = set(re.findall(r'find\("(LiteRt\w+)"', (SOURCES / "litert.cc").read_text()))
    assert len(names) >= 15
    assert [name for name in sorted(names) if not hasattr(library, name)] == []

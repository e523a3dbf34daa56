"""A runtime that misbehaves on demand, and a bundle for it: for what no real processor does when a test wants it."""

from __future__ import annotations

import ctypes
import hashlib
import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

NATIVE = pathlib.Path(__file__).parent / "native"
SIZE = 16


def compiler(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is absent; to get it: apt-get install g++")
    return found


def build_runtime(folder: pathlib.Path) -> pathlib.Path:
    """Compiles `native/fake_litert.c`."""
    target = folder / "fake_litert.so"
    command = [compiler("gcc"), "-std=c11", "-O1", "-shared", "-fPIC", "-o", str(target), str(NATIVE / "fake_litert.c")]
    subprocess.run(command, check=True, timeout=120)
    return target


class Faults:
    """The runtime's switches."""

    def __init__(self, runtime: pathlib.Path) -> None:
        self.runtime = runtime
        self._library = ctypes.CDLL(str(runtime))
        self.reset()

    def reset(self) -> None:
        for name in ("hangs", "hang_ms", "fails", "no_compile", "run_us", "runs"):
            self[name] = 0

    def __getitem__(self, name: str) -> int:
        return ctypes.c_int.in_dll(self._library, f"fake_{name}").value

    def __setitem__(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self._library, f"fake_{name}").value = value


def _piece(folder: pathlib.Path, units: tuple[int, int], added: int, processors: tuple[str, ...]) -> dict[str, Any]:
    data, file = f"add {added}".encode(), f"sub/{units[0]}-{units[1]}.tflite"
    (folder / file).write_bytes(data)
    return {
        "units": list(units),
        "file": file,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "inputs": [units[0]],
        "outputs": [units[1]],
        "latency_us": dict.fromkeys(processors, 50.0),
    }


def plan(folder: pathlib.Path, processors: tuple[str, ...] = ("cpu",)) -> dict[str, Any]:
    """Writes the pieces of a model that adds 1 and then 2, and returns their plan."""
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    tensors = [{"id": i, "name": f"t{i}", "type": "float32", "shape": [SIZE], "bytes": 4 * SIZE} for i in range(3)]
    units = [
        {"operators": [i, i + 1], "inputs": [i], "outputs": [i + 1], "processors": list(processors)} for i in range(2)
    ]
    pieces = [((0, 1), 1), ((1, 2), 2), ((0, 2), 3)]
    return {
        "format": "tf_ext.lite",
        "version": 1,
        "model": {"name": "sum", "sha256": "0" * 64, "bytes": 8, "operators": 2, "tensors": 3, "codes_crc32": 1},
        "signature": {"name": None, "inputs": ["t0"], "outputs": ["t2"]},
        "tensors": tensors,
        "inputs": [0],
        "outputs": [2],
        "units": units,
        "processors": [{"name": name, "accelerator": name, "threads": 1} for name in processors],
        "pieces": [_piece(folder, ends, added, processors) for ends, added in pieces],
        "runtime": {"litert": "2.3.0"},
        "dropped": [],
    }


def write_bundle(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    """Writes the bundle; `changes` replace parts of its plan."""
    (folder / "plan.json").write_text(json.dumps({**plan(folder), **changes}))
    return folder


def pack(folder: pathlib.Path) -> bytes:
    """Returns a bundle in a folder as the bytes of one in a file."""
    made = json.loads((folder / "plan.json").read_text())
    blobs = [(folder / piece.pop("file")).read_bytes() for piece in made["pieces"]]
    offset = 4096
    for piece, blob in zip(made["pieces"], blobs, strict=True):
        piece["offset"] = offset
        offset += -(-len(blob) // 64) * 64
    text = json.dumps(made).encode()
    assert 16 + len(text) <= 4096
    packed = (b"TFXLITE1" + len(text).to_bytes(8, "little") + text).ljust(4096, b"\0")
    return packed + b"".join(blob.ljust(-(-len(blob) // 64) * 64, b"\0") for blob in blobs)

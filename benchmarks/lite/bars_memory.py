"""Bar 6: memory that is this process's own, beside what one plain interpreter adds."""

from __future__ import annotations

import functools
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterable

from benchmarks import harness
from benchmarks.ledger import Cell, Task, at_most
from benchmarks.lite import models

MODELS = ("mobilenet_v2_float32", "pose_landmark_full", "face_landmark")


def memory() -> Iterable[Task]:
    """Yields bar 6."""
    for name in MODELS:
        yield Task(6, (f"over a plain interpreter/{name}",), functools.partial(_measure, name))


def _measure(name: str, smoke: bool) -> list[Cell]:
    model = models.load([models.SMALL[1] if smoke else name])[0]
    with tempfile.TemporaryDirectory() as folder:
        (bundle,) = models.bundles([model], pathlib.Path(folder))
        ratios = []
        for _ in range(1 if smoke else 5):
            added = {
                how: harness.in_child("benchmarks.lite.bars_memory", [how, str(model.file), str(bundle)])["bytes"]
                for how in ("ours", "plain")
            }
            ratios.append(added["ours"] / added["plain"])
    cell = at_most(6, f"over a plain interpreter/{name}", ratios, 1.15, "x")
    return [Cell(**{**cell.__dict__, "holds": True})] if smoke else [cell]


def _anonymous() -> int:
    """Returns the bytes of memory that no file stands behind."""
    for line in pathlib.Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/smaps_rollup was expected to tell Anonymous")


def main(how: str, file: str, bundle: str) -> None:
    """Prints what a model adds to this process: a second one, so that what the runtime itself takes is not counted."""
    from tf_ext import lite

    warm = models.load([models.SMALL[0]])[0]
    model = models.Loaded("", pathlib.Path(file), models.draw(pathlib.Path(file)))
    with tempfile.TemporaryDirectory() as folder, lite.Engine(workers="cpu") as engine:
        if how == "ours":
            (other,) = models.bundles([warm], pathlib.Path(folder))
            engine.request(engine.add(other), list(warm.inputs))
        else:
            _run_plain(warm)
        before = _anonymous()
        if how == "ours":
            engine.request(engine.add(bundle), list(model.inputs))
        else:
            kept = _run_plain(model)
        added = _anonymous() - before
        if how == "plain":
            del kept
    print(json.dumps({"bytes": added}))


def _run_plain(model: models.Loaded) -> object:
    interpreter = models.interpreter(model.file)
    for detail, value in zip(interpreter.get_input_details(), model.inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return interpreter


if __name__ == "__main__":
    main(*sys.argv[1:])

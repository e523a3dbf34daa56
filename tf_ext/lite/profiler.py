"""How long a model takes on a processor: measured once, then kept (Band, section 3.2)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from tf_ext.lite import _runners, errors
from tf_ext.lite.model import Model

__all__ = ["Profile", "cache_folder", "measure", "profile"]

CACHE_VARIABLE = "TF_EXT_CACHE"
_VERSION = 1
_LEAST_RUNS = 3


@dataclasses.dataclass(frozen=True)
class Profile:
    """What runs of a model took, in microseconds.

    Attributes:
        processor: where.
        runs: how many were measured.
        mean_us, minimum_us, median_us, p90_us, p99_us: of them.
    """

    processor: str
    runs: int
    mean_us: float
    minimum_us: float
    median_us: float
    p90_us: float
    p99_us: float


def cache_folder() -> pathlib.Path:
    """Returns where measurements are kept: ``$TF_EXT_CACHE``, else ``tf_ext`` in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return pathlib.Path(named)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tf_ext"


def measure(processor: str, run: Callable[[], object], *, warmup: int, runs: int, seconds: float) -> Profile:
    """Measures some calls.

    Args:
        processor: what to call the place.
        run: what to measure.
        warmup: calls before measuring.
        runs: calls to measure.
        seconds: measure no longer than that, but three calls at least.

    Raises:
        InvalidArgumentError: a number is out of its range.
    """
    if warmup < 0 or runs < 1 or not seconds > 0:
        raise errors.InvalidArgumentError(
            f"expected warmup >= 0, runs >= 1, seconds > 0; got {warmup}, {runs} and {seconds}"
        )
    for _ in range(warmup):
        run()
    taken: list[float] = []
    begin = time.perf_counter()
    while len(taken) < runs and (len(taken) < _LEAST_RUNS or time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1e6)
    return _summary(processor, taken)


def profile(
    model: str | os.PathLike[str] | bytes | Model,
    processor: str = "cpu",
    *,
    warmup: int = 2,
    runs: int = 20,
    seconds: float = 2.0,
    core: int | None = None,
    cache: bool = True,
) -> Profile:
    """Measures a model on one thread, on one core or one accelerator.

    What was measured is kept in the user's cache (`cache_folder`), by the model's checksum, the processor, the machine,
    the version of the runtime and the numbers below, and not measured again.

    Args:
        model: a path, the bytes of a ``.tflite`` file, or a `Model`.
        processor: ``"cpu"``, ``"gpu"`` or ``"npu"``.
        warmup: runs before measuring.
        runs: runs to measure.
        seconds: measure no longer than that, but three runs at least.
        core: which core to stay on; else the last one that the process may use.
        cache: whether to look into the cache, and to keep what was measured.

    Returns:
        Percentiles.

    Raises:
        UnavailableError: the processor, or the runtime, is absent, or it cannot run the model.
        DataLossError: it is no TFLite model, or a damaged one.

    Example:
        >>> tf_ext.lite.profile("face_landmark.tflite").median_us
        1212.4
    """
    read = model if isinstance(model, Model) else Model(model)
    tensors = [read.tensors[index] for index in read.inputs]

    def run() -> Profile:
        if processor != "cpu":
            from tf_ext.lite import _accelerators

            with _accelerators.Accelerator(processor) as accelerator:
                return accelerator.measure(read.data, tensors, warmup=warmup, runs=runs, seconds=seconds)
        with _runners.pinned(default_core() if core is None else core):
            runner = _runners.cpu(read.data)
            runner.run(_runners.random_inputs(tensors))
            return measure(processor, runner.again, warmup=warmup, runs=runs, seconds=seconds)

    if not cache:
        return run()
    return remembered(read.sha256, processor, {"warmup": warmup, "runs": runs, "seconds": seconds, "core": core}, run)


def remembered(sha256: str, processor: str, numbers: dict[str, Any], run: Callable[[], Profile]) -> Profile:
    """Returns what the cache holds for a model, or what `run` measures, which is kept then.

    Args:
        sha256: of the model.
        processor: where it is measured.
        numbers: how.
        run: measures it.
    """
    file = _cache_file(sha256, processor, numbers)
    made = _look_up(file)
    if made is None:
        made = run()
        _keep(file, made)
    return made


def default_core() -> int | None:
    """Returns the last core that the process may use; None where the system does not tell."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the smallest value that at least `share` of all do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _summary(processor: str, taken: Sequence[float]) -> Profile:
    ordered = sorted(taken)
    mean = sum(ordered) / len(ordered)
    shares = (percentile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Profile(processor, len(ordered), mean, ordered[0], *shares)


def _cache_file(sha256: str, processor: str, numbers: dict[str, Any]) -> pathlib.Path:
    machine = [platform.system(), platform.machine(), _processor_name()]
    key = json.dumps([_VERSION, sha256, processor, machine, _runners.runtime_version(), numbers], sort_keys=True)
    return cache_folder() / "profiles" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _processor_name() -> str:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


def _look_up(file: pathlib.Path) -> Profile | None:
    """A file that cannot be understood counts as none: it is measured again."""
    try:
        made = Profile(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return made if isinstance(made.median_us, float) and made.median_us > 0 else None


def _keep(file: pathlib.Path, made: Profile) -> None:
    """Whole or not at all; a cache that cannot be written is done without."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".part", delete=False) as scratch:
            scratch.write(json.dumps(dataclasses.asdict(made)))
        os.replace(scratch.name, file)
    except OSError:
        return

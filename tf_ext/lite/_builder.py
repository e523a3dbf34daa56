"""Cuts, tries and measures the pieces of a bundle."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tf_ext.lite import _runners, cutter, errors, profiler
from tf_ext.lite.analyzer import Analysis, Candidate
from tf_ext.lite.model import Model
from tf_ext.lite.plan import Dropped, Piece, Plan, PlanUnit, Processor, TensorInfo
from tf_ext.lite.profiler import Profile

Track = Callable[[Iterable[Any], str], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class Effort:
    """How to try and measure pieces.

    Attributes:
        warmup, runs, seconds: see `tf_ext.lite.profile`.
        core: the core to measure on.
        tolerance: how far an accelerator's results may be from the CPU's, over the larger of 1 and the CPU's largest.
        cache: whether to use the cache of measurements.
    """

    warmup: int = 2
    runs: int = 15
    seconds: float = 1.0
    core: int | None = None
    tolerance: float = 1e-3
    cache: bool = True

    def numbers(self) -> dict[str, Any]:
        """What a measurement depends on."""
        return {"warmup": self.warmup, "runs": self.runs, "seconds": self.seconds, "core": self.core}

    def measuring(self) -> dict[str, Any]:
        """The arguments of `profiler.measure`."""
        return {"warmup": self.warmup, "runs": self.runs, "seconds": self.seconds}


class Builder:
    """Makes the pieces of a bundle, one processor after the other.

    Args:
        analysis: what to cut.
        effort: how to try and measure it.
        track: shows how far a loop has come.
    """

    def __init__(self, analysis: Analysis, effort: Effort, track: Track) -> None:
        self._analysis, self._model, self._effort, self._track = analysis, analysis.model, effort, track
        self.dropped: list[Dropped] = []
        self._latencies: dict[Candidate, dict[str, float | None]] = {}
        self._values: dict[int, np.ndarray] = {}
        cuts = track(analysis.candidates, "cutting")
        self._parts = {one: cutter.cut(self._model, *analysis.operators(one)) for one in cuts}

    def build(self) -> tuple[Plan, list[bytes]]:
        """Returns the plan, whose pieces have neither file nor offset yet, and the models of its pieces.

        Raises:
            InvalidArgumentError: the model cannot be cut without changing what it computes.
            UnavailableError: the runtime cannot run the model, or a processor is absent.
        """
        self._try_on_cpu()
        for processor in self._analysis.processors:
            if processor != "cpu":
                self._try_on(processor)
        kept = [one for one, latency in self._latencies.items() if any(v is not None for v in latency.values())]
        pieces = tuple(self._piece(one) for one in sorted(kept, key=lambda one: (one.begin, one.end)))
        self._refuse_gaps(pieces)
        return self._plan(pieces), [self._parts[one].data for one in sorted(kept, key=lambda one: (one.begin, one.end))]

    def _try_on_cpu(self) -> None:
        """Runs all pieces in order: each must hand on what the others do, and at the end what the whole model gives."""
        model = self._model
        inputs = _runners.random_inputs([model.tensors[index] for index in model.inputs])
        self._values = dict(zip(model.inputs, inputs, strict=True))
        with _runners.pinned(profiler.default_core() if self._effort.core is None else self._effort.core):
            whole = model.data if model.subgraph == 0 else self._whole().data
            outputs = _runners.cpu(whole).run(inputs)
            self._refuse_other_shapes(model.outputs, outputs)
            self._values.update(zip(model.outputs, outputs, strict=True))
            for candidate in self._track(self._analysis.candidates, "measuring on cpu"):
                self._try_candidate(candidate)

    def _try_candidate(self, candidate: Candidate) -> None:
        part = self._parts[candidate]
        runner = _runners.cpu(part.data)
        made = runner.run([self._values[index] for index in part.inputs])
        self._refuse_other_shapes(part.outputs, made)
        self._latencies[candidate] = dict.fromkeys(self._analysis.processors)
        for index, array in zip(part.outputs, made, strict=True):
            if not np.array_equal(self._values.setdefault(index, array), array, equal_nan=array.dtype.kind in "fc"):
                self._drop(candidate, "cpu", "differs from the whole model")
                return
        if "cpu" in candidate.processors:
            taken = self._measured(part.data, "cpu", lambda: self._measure(runner))
            self._latencies[candidate]["cpu"] = round(taken.median_us, 3)

    def _measure(self, runner: _runners.Runner) -> Profile:
        return profiler.measure("cpu", runner.again, **self._effort.measuring())

    def _measured(self, data: bytes, processor: str, run: Callable[[], Profile]) -> Profile:
        if not self._effort.cache:
            return run()
        digest = hashlib.sha256(data).hexdigest()
        return profiler.remembered(digest, processor, self._effort.numbers(), run)

    def _try_on(self, processor: str) -> None:
        from tf_ext.lite import _accelerators

        mine = [one for one in self._analysis.candidates if processor in one.processors and one in self._latencies]
        failed = {one.units for one in self.dropped}
        with _accelerators.Accelerator(processor) as accelerator:
            for candidate in self._track(mine, f"trying on {processor}"):
                if (candidate.begin, candidate.end) not in failed:
                    self._try_candidate_on(accelerator, candidate)

    def _try_candidate_on(self, accelerator: Any, candidate: Candidate) -> None:
        part, processor = self._parts[candidate], accelerator.processor
        tensors = {name: [self._model.tensors[i] for i in getattr(part, name)] for name in ("inputs", "outputs")}
        inputs = [self._values[index] for index in part.inputs]
        try:
            made = accelerator.run(part.data, inputs, tensors["outputs"])
        except errors.LiteError as error:
            self._drop(candidate, processor, f"does not run: {error}")
            return
        wanted = [self._values[index] for index in part.outputs]
        far = max(distance(one, reference) for one, reference in zip(made, wanted, strict=True))
        if not far <= self._effort.tolerance:
            told = f"differs from the CPU by {far:.3g}; the tolerance is {self._effort.tolerance:g}"
            self._drop(candidate, processor, told)
            return
        taken = self._measured(
            part.data,
            processor,
            lambda: accelerator.measure(part.data, tensors["inputs"], **self._effort.measuring()),
        )
        self._latencies[candidate][processor] = round(taken.median_us, 3)

    def _drop(self, candidate: Candidate, processor: str, reason: str) -> None:
        self.dropped.append(Dropped((candidate.begin, candidate.end), processor, reason))

    def _whole(self) -> cutter.SubModel:
        return cutter.cut(self._model, 0, len(self._model.operators))

    def _refuse_other_shapes(self, ids: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
        for tensor, array in zip((self._model.tensors[index] for index in ids), arrays, strict=True):
            if tensor.shape != array.shape:
                raise errors.InvalidArgumentError(
                    f"{self._model.name} cannot be made into a bundle: the shape of its tensor {tensor.name!r} is dynamic, "
                    f"{tensor.shape} in the file and {array.shape} when it runs; convert it with fixed shapes"
                )

    def _refuse_gaps(self, pieces: Sequence[Piece]) -> None:
        reached = {0}
        for piece in pieces:
            reached |= {piece.units[1]} if piece.units[0] in reached else set()
        if len(self._analysis.units) not in reached:
            told = "; ".join(f"units {one.units} on {one.processor}: {one.reason}" for one in self.dropped[:3])
            raise errors.InvalidArgumentError(
                f"no row of pieces covers {self._model.name}: {told}; add the processor cpu"
            )

    def _piece(self, candidate: Candidate) -> Piece:
        units = candidate.begin, candidate.end
        return piece_of(units, self._parts[candidate], self._latencies[candidate])

    def _plan(self, pieces: tuple[Piece, ...]) -> Plan:
        units = [(unit.begin, unit.end, unit.processors) for unit in self._analysis.units]
        return plan_of(self._model, units, self._analysis.processors, pieces, tuple(self.dropped))


def piece_of(units: tuple[int, int], part: cutter.SubModel, latency_us: dict[str, float | None]) -> Piece:
    """Returns a piece as a plan has it."""
    begin, end = units
    return Piece(
        units=units,
        bytes=len(part.data),
        sha256=hashlib.sha256(part.data).hexdigest(),
        inputs=part.inputs,
        outputs=part.outputs,
        latency_us=latency_us,
        file=f"sub/{begin}-{end}.tflite",
    )


def plan_of(
    model: Model,
    units: Sequence[tuple[int, int, tuple[str, ...]]],
    processors: Sequence[str],
    pieces: tuple[Piece, ...],
    dropped: tuple[Dropped, ...] = (),
) -> Plan:
    """Returns the plan of a bundle.

    Args:
        model: that it is for.
        units: first operator, last operator + 1, and processors of each.
        processors: by name.
        pieces: of the model.
        dropped: what was left out.
    """
    ends = [cutter.ends(model, begin, end) for begin, end, _ in units]
    used = dict.fromkeys([*model.inputs, *model.outputs, *(i for pair in ends for ids in pair for i in ids)])
    found = (model.tensors[index] for index in sorted(used))
    return Plan(
        name=model.name,
        sha256=model.sha256,
        bytes=len(model.data),
        operators=len(model.operators),
        tensor_count=len(model.tensors),
        codes_crc32=model.codes_crc32,
        signature=model.signature,
        input_names=model.input_names,
        output_names=model.output_names,
        tensors=tuple(TensorInfo(one.id, one.name, one.type, one.shape, one.bytes) for one in found),
        inputs=model.inputs,
        outputs=model.outputs,
        units=tuple(
            PlanUnit((begin, end), *pair, names) for (begin, end, names), pair in zip(units, ends, strict=True)
        ),
        processors=tuple(Processor(name, name) for name in processors),
        pieces=pieces,
        litert=_runners.runtime_version(),
        dropped=dropped,
    )


def distance(made: np.ndarray, wanted: np.ndarray) -> float:
    """Returns how far an array is from what was wanted.

    Args:
        made: of any shape and type.
        wanted: of the same.

    Returns:
        The largest difference over the larger of 1 and the largest wanted value; of quantised values half of it in
        steps over 255, so that one step is always within a thousandth; infinity where only one of them is no number.
    """
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    if not finite.any():
        return 0.0
    difference = float(np.abs(a - b)[finite].max())
    if wanted.dtype.kind in "iu":
        return difference / 1000 if difference <= 1 else difference
    return difference / max(1.0, float(np.abs(b)[finite].max()))

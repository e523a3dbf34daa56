"""The plan of a bundle: which pieces a model was cut into, and how long each takes where; see docs/design/lite.md."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from tf_ext.lite import errors

__all__ = ["FORMAT", "VERSION", "Dropped", "Piece", "Plan", "PlanUnit", "Processor", "TensorInfo"]

FORMAT, VERSION = "tf_ext.lite", 1
ACCELERATORS = ("cpu", "gpu", "npu")


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A tensor that the model takes, gives, or hands from one unit to another.

    Attributes:
        id: its index in the model's graph.
        name: its name in the graph.
        type: numpy's name of its type.
        shape: its sizes.
        bytes: what its data takes.
    """

    id: int
    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class PlanUnit:
    """Consecutive operators that the same processors support.

    Attributes:
        operators: [begin, end).
        inputs, outputs: ids of the tensors that it takes, and that later units or the model's user take.
        processors: by name.
    """

    operators: tuple[int, int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    processors: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Processor:
    """A kind of hardware that pieces were made for.

    Attributes:
        name: by which plan and workers refer to it.
        accelerator: ``"cpu"``, ``"gpu"`` or ``"npu"``.
        threads: with how many its latencies were measured.
    """

    name: str
    accelerator: str
    threads: int = 1


@dataclasses.dataclass(frozen=True)
class Piece:
    """Units [begin, end) as a model of their own.

    Attributes:
        units: [begin, end).
        bytes: the size of the model.
        sha256: its checksum.
        inputs, outputs: ids of tensors, in the order of the model's.
        latency_us: for each processor the median in microseconds, or None where the piece does not run there.
        file: in a folder: where the model lies.
        offset: in a single file: where the model begins.
    """

    units: tuple[int, int]
    bytes: int
    sha256: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    latency_us: Mapping[str, float | None]
    file: str | None = None
    offset: int | None = None


@dataclasses.dataclass(frozen=True)
class Dropped:
    """A piece that a processor does not run, although it supports its operators.

    Attributes:
        units: [begin, end).
        processor: by name.
        reason: why not.
    """

    units: tuple[int, int]
    processor: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan. Making one checks it.

    Attributes:
        name, sha256, bytes, operators, tensor_count, codes_crc32: of the model that it is for.
        signature: its name, or None.
        input_names, output_names: the signature's.
        tensors: what the model takes, gives, and hands from unit to unit.
        inputs, outputs: ids of tensors.
        units: in order; they cover the model's operators.
        processors: that pieces were made for.
        pieces: of which a request runs some, one after the other, from the first unit to the last.
        litert: the version of the runtime that the pieces were tried with.
        dropped: what was left out, and why.

    Raises:
        DataLossError: it contradicts itself.
    """

    name: str
    sha256: str
    bytes: int
    operators: int
    tensor_count: int
    codes_crc32: int
    signature: str | None
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    tensors: tuple[TensorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    units: tuple[PlanUnit, ...]
    processors: tuple[Processor, ...]
    pieces: tuple[Piece, ...]
    litert: str
    dropped: tuple[Dropped, ...] = ()

    def __post_init__(self) -> None:
        known = {tensor.id for tensor in self.tensors}
        count = len(self.units)
        names = {processor.name for processor in self.processors}
        _check(count > 0 and bool(self.pieces), "it has no units or no pieces")
        _check(len(known) == len(self.tensors), "a tensor is listed twice")
        _check(len(names) == len(self.processors), "a processor is listed twice")
        _check(all(one.accelerator in ACCELERATORS for one in self.processors), f"accelerators are {ACCELERATORS}")
        _check(len(self.inputs) == len(self.input_names), "inputs and their names differ in number")
        _check(len(self.outputs) == len(self.output_names), "outputs and their names differ in number")
        owners: tuple[Plan | PlanUnit | Piece, ...] = (self, *self.units, *self.pieces)
        used = {index for owner in owners for index in (*owner.inputs, *owner.outputs)}
        _check(known >= used, "it uses a tensor not listed")
        begins = [0, *(unit.operators[1] for unit in self.units)]
        rising = all(
            unit.operators == (a, b) and a < b for unit, a, b in zip(self.units, begins, begins[1:], strict=False)
        )
        _check(rising and begins[-1] == self.operators, "the units do not cover the operators")
        for begin, end in [one.units for one in self.pieces] + [one.units for one in self.dropped]:
            _check(0 <= begin < end <= count, f"units [{begin}, {end}) of {count}")
        for piece in self.pieces:
            _check(names.issuperset(piece.latency_us), "a latency is that of a processor not listed")
            _check((piece.file is None) != (piece.offset is None), "a piece needs either a file or an offset")
        reached = {0}
        for piece in sorted(self.pieces, key=lambda piece: piece.units):
            runs = any(latency is not None for latency in piece.latency_us.values())
            reached |= {piece.units[1]} if runs and piece.units[0] in reached else set()
        _check(count in reached, "no row of pieces leads from the first unit to the last")

    @property
    def tensor(self) -> dict[int, TensorInfo]:
        """The tensors by id."""
        return {tensor.id: tensor for tensor in self.tensors}

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns the plan as text."""
        model = {"name": self.name, "sha256": self.sha256, "bytes": self.bytes, "operators": self.operators}
        made = {
            "format": FORMAT,
            "version": VERSION,
            "model": {**model, "tensors": self.tensor_count, "codes_crc32": self.codes_crc32},
            "signature": {"name": self.signature, "inputs": self.input_names, "outputs": self.output_names},
            "tensors": [dataclasses.asdict(tensor) for tensor in self.tensors],
            "inputs": self.inputs,
            "outputs": self.outputs,
            "units": [dataclasses.asdict(unit) for unit in self.units],
            "processors": [dataclasses.asdict(processor) for processor in self.processors],
            "pieces": [_without_none(dataclasses.asdict(piece), "file", "offset") for piece in self.pieces],
            "runtime": {"litert": self.litert},
            "dropped": [dataclasses.asdict(one) for one in self.dropped],
        }
        return json.dumps(made, indent=indent, ensure_ascii=False, separators=None if indent else (",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads a plan.

        Raises:
            DataLossError: the text is no plan, one of another version, or one that contradicts itself.
        """
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise errors.DataLossError(f"the plan of the bundle is damaged: {error}; make the bundle anew") from error
        found = (raw.get("format"), raw.get("version")) if isinstance(raw, dict) else (type(raw).__name__, None)
        if found != (FORMAT, VERSION):
            raise errors.DataLossError(
                f"expected a plan of the format {FORMAT!r}, version {VERSION}, but got {found[0]!r}, version {found[1]}; "
                "make the bundle with this version of tf_ext"
            )
        from tf_ext.lite import _plan_reader

        return _plan_reader.read(raw)


def _without_none(made: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in made.items() if value is not None or name not in names}


def _check(fact: bool, told: str) -> None:
    if not fact:
        raise errors.DataLossError(f"the plan of the bundle contradicts itself: {told}; make the bundle anew")

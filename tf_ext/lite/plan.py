"""The plan of a bundle: which pieces a model was cut into, and how long each takes where; see docs/design/lite.md."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from tf_ext.lite import errors

__all__ = ["FORMAT", "VERSION", "Dropped", "Piece", "Plan", "PlanUnit", "Processor", "TensorInfo"]

FORMAT, VERSION = "tf_ext.lite", 1
ACCELERATORS = ("cpu", "gpu", "npu")
_MOST_INPUTS = 1 << 40  # bytes of one tensor: what is larger is damaged


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
        return _read(raw)


def _without_none(made: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in made.items() if value is not None or name not in names}


def _check(fact: bool, told: str) -> None:
    if not fact:
        raise errors.DataLossError(f"the plan of the bundle contradicts itself: {told}; make the bundle anew")


class _Fields:
    """The fields of an object of JSON, each of the type that is asked for."""

    def __init__(self, raw: Any, where: str) -> None:
        self._raw, self._where = raw, where
        if not isinstance(raw, dict):
            self._refuse("", "an object", raw)

    def _refuse(self, name: str, wanted: str, got: Any) -> None:
        place = ".".join(filter(None, [self._where, name]))
        shown = repr(got)
        raise errors.DataLossError(
            f"the plan of the bundle is damaged: expected {place} to be {wanted}, "
            f"got {shown if len(shown) < 60 else shown[:57] + '...'}; make the bundle anew"
        )

    def text(self, name: str) -> str:
        value = self._raw.get(name)
        if not isinstance(value, str):
            self._refuse(name, "a text", value)
        return str(value)

    def count(self, name: str) -> int:
        value = self._raw.get(name)
        if not _is_count(value):
            self._refuse(name, "a number from 0 on", value)
        return int(value)

    def counts(self, name: str, length: int | None = None) -> tuple[int, ...]:
        value = self._raw.get(name)
        fit = isinstance(value, list) and all(_is_count(one) for one in value)
        if not fit or length not in (None, len(value)):
            self._refuse(name, f"{length or 'some'} numbers from 0 on", value)
        return tuple(value)

    def pair(self, name: str) -> tuple[int, int]:
        begin, end = self.counts(name, 2)
        return begin, end

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._raw.get(name)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._refuse(name, "texts", value)
        return tuple(value)

    def fields(self, name: str) -> _Fields:
        return _Fields(self._raw.get(name), ".".join(filter(None, [self._where, name])))

    def each(self, name: str, make: Callable[[_Fields], Any]) -> tuple[Any, ...]:
        value = self._raw.get(name)
        if not isinstance(value, list):
            self._refuse(name, "a list", value)
        return tuple(make(_Fields(one, f"{name}[{index}]")) for index, one in enumerate(value))

    def latencies(self, name: str) -> dict[str, float | None]:
        value = self._raw.get(name)
        if not isinstance(value, dict) or not all(one is None or _is_time(one) for one in value.values()):
            self._refuse(name, "microseconds or null by processor", value)
        return {key: None if one is None else float(one) for key, one in value.items()}

    def has(self, name: str) -> bool:
        return self._raw.get(name) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_INPUTS


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


def _read(raw: dict[str, Any]) -> Plan:
    fields = _Fields(raw, "")
    model, signature = fields.fields("model"), fields.fields("signature")
    return Plan(
        name=model.text("name"),
        sha256=model.text("sha256"),
        bytes=model.count("bytes"),
        operators=model.count("operators"),
        tensor_count=model.count("tensors"),
        codes_crc32=model.count("codes_crc32"),
        signature=signature.text("name") if signature.has("name") else None,
        input_names=signature.texts("inputs"),
        output_names=signature.texts("outputs"),
        tensors=fields.each("tensors", _tensor),
        inputs=fields.counts("inputs"),
        outputs=fields.counts("outputs"),
        units=fields.each("units", _unit),
        processors=fields.each("processors", _processor),
        pieces=fields.each("pieces", _piece),
        litert=fields.fields("runtime").text("litert"),
        dropped=fields.each("dropped", _dropped),
    )


def _tensor(fields: _Fields) -> TensorInfo:
    shape = fields.counts("shape")
    return TensorInfo(fields.count("id"), fields.text("name"), fields.text("type"), shape, fields.count("bytes"))


def _unit(fields: _Fields) -> PlanUnit:
    ends = fields.counts("inputs"), fields.counts("outputs")
    return PlanUnit(fields.pair("operators"), *ends, fields.texts("processors"))


def _processor(fields: _Fields) -> Processor:
    return Processor(fields.text("name"), fields.text("accelerator"), fields.count("threads"))


def _dropped(fields: _Fields) -> Dropped:
    return Dropped(fields.pair("units"), fields.text("processor"), fields.text("reason"))


def _piece(fields: _Fields) -> Piece:
    file = fields.text("file") if fields.has("file") else None
    if file is not None and not re.fullmatch(r"sub/[0-9a-zA-Z._-]+", file):
        raise errors.DataLossError(f"the plan of the bundle names {file!r}, which is no file of its folder sub")
    return Piece(
        units=fields.pair("units"),
        bytes=fields.count("bytes"),
        sha256=fields.text("sha256"),
        inputs=fields.counts("inputs"),
        outputs=fields.counts("outputs"),
        latency_us=fields.latencies("latency_us"),
        file=file,
        offset=fields.count("offset") if fields.has("offset") else None,
    )

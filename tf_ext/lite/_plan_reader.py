"""Reads a plan from JSON, and says of what does not fit where it is and what was expected there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tf_ext.lite import errors
from tf_ext.lite.plan import Dropped, Piece, Plan, PlanUnit, Processor, TensorInfo

_MOST = 1 << 40  # of bytes, tensors, anything that is counted: what is larger is damaged


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
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


def read(raw: dict[str, Any]) -> Plan:
    """Returns the plan that an object of JSON tells.

    Raises:
        DataLossError: a field is absent, or of another kind; or they contradict each other.
    """
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

"""Models of phones and networks for the simulator, built from published figures (`data/phones.json` names the sources).

Nothing here was measured on a phone by this project: what is simulated with these tables is a simulation, and is to be
called one.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from typing import Any

from tf_ext.lite import errors
from tf_ext.lite.simulator import Model, Piece

__all__ = ["Network", "Phone", "Processor", "networks", "phones"]


@dataclasses.dataclass(frozen=True)
class Processor:
    """One processor of a phone.

    Attributes:
        name: E.g. `"cpu_big"`.
        kind: `"cpu"`, `"gpu"` or `"npu"`: what decides which operators it supports.
        overhead_ms: What each run of a piece takes beyond its work, milliseconds.
        rates: Millions of multiply-adds per millisecond, by precision; a precision that is absent cannot run.
    """

    name: str
    kind: str
    overhead_ms: float
    rates: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Network:
    """A network, in units of consecutive operators that the same processors support.

    Attributes:
        name: E.g. `"pose_landmark"`.
        macs: Millions of multiply-adds.
        precision: `"float"` or `"int8"`.
        units: The share of the work of each unit, and the kinds of processors that support it.
    """

    name: str
    macs: float
    precision: str
    units: tuple[tuple[float, frozenset[str]], ...]


@dataclasses.dataclass(frozen=True)
class Phone:
    """A phone, as the simulator sees it: one worker for each processor.

    Example:
        >>> phone = phones()["pixel_4"]
        >>> model = phone.model(networks()["mobilenet_v1"])
        >>> [round(us / 1e3, 1) for us in model.pieces[0].latency_us]
        [15.0, 52.8, 9.0, 9.1]
    """

    name: str
    processors: tuple[Processor, ...]

    def model(self, network: Network) -> Model:
        """Returns a network's pieces, every run of consecutive units, and what each takes on each processor.

        Args:
            network: The network to cut.

        Returns:
            The model, with one latency per piece and processor, None where the processor lacks an operator.
        """
        units = len(network.units)
        bounds = [(begin, end) for begin in range(units) for end in range(begin + 1, units + 1)]
        return Model(network.name, units, tuple(self._piece(network, begin, end) for begin, end in bounds))

    def _piece(self, network: Network, begin: int, end: int) -> Piece:
        covered = network.units[begin:end]
        macs = network.macs * sum(share for share, _ in covered)
        kinds = frozenset.intersection(*(kinds for _, kinds in covered))
        latency: list[float | None] = []
        for processor in self.processors:
            rate = processor.rates.get(network.precision)
            able = rate is not None and processor.kind in kinds
            latency.append(1e3 * (processor.overhead_ms + macs / rate) if able and rate is not None else None)
        return Piece(begin, end, tuple(latency))


@functools.cache
def _data() -> dict[str, Any]:
    text = importlib.resources.files("tf_ext.lite").joinpath("data/phones.json").read_text(encoding="utf-8")
    data = json.loads(text)
    if not isinstance(data, dict):
        raise errors.DataLossError("data/phones.json was expected to hold an object: install tf_ext anew.")
    return data


@functools.cache
def phones() -> dict[str, Phone]:
    """Returns the phones, by name."""
    result = {}
    for name, phone in _data()["phones"].items():
        processors = []
        for processor, values in phone["processors"].items():
            rates = {p: values[p] for p in ("float", "int8") if values[p] is not None}
            processors.append(Processor(processor, values["kind"], values["overhead_ms"], rates))
        result[name] = Phone(name, tuple(processors))
    return result


@functools.cache
def networks() -> dict[str, Network]:
    """Returns the networks, by name."""
    return {
        name: Network(
            name,
            values["macs"],
            values["precision"],
            tuple((share, frozenset(kinds)) for share, kinds in values["units"]),
        )
        for name, values in _data()["networks"].items()
    }

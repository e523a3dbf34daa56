"""Cuts a run of operators out of a TFLite model, as a TFLite model of its own (Band, section 3.1: subgraphs)."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

from tf_ext.lite import _flatbuffer, errors
from tf_ext.lite.model import Model

__all__ = ["SubModel", "chain", "cut"]

# Tells what the inputs and outputs of a whole model mean; a part has others.
_OF_THE_WHOLE = b"TFLITE_METADATA"


@dataclasses.dataclass(frozen=True)
class SubModel:
    """A part of a model.

    Attributes:
        begin, end: the operators [begin, end) of the model.
        data: the bytes of the ``.tflite`` file; it has no signature.
        inputs, outputs: ids of the model's tensors, in the order of the sub-model's inputs and outputs.
    """

    begin: int
    end: int
    data: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def cut(model: Model, begin: int, end: int) -> SubModel:
    """Cuts the operators [begin, end) out of a model.

    Quantisation, sparsity, custom operators and their options stay as they are. Operators that compute from constants
    alone (unpacking weights, say) come along wherever they are needed, even from before `begin`, so that no constant has
    to be handed from one part to the next. Run one after the other, parts that cover the model compute what the model
    computes, bit for bit.

    Args:
        model: what to cut; not changed.
        begin: the first operator.
        end: the operator after the last one.

    Returns:
        The part.

    Raises:
        InvalidArgumentError: the range is not one of operators, or the model must not be cut there.

    Example:
        >>> model = Model("face_landmark.tflite")
        >>> first, second = cut(model, 0, 50), cut(model, 50, len(model.operators))
        >>> second.inputs == first.outputs
        True
    """
    count = len(model.operators)
    if not 0 <= begin < end <= count:
        raise errors.InvalidArgumentError(f"expected operators [begin, end) within [0, {count}), got [{begin}, {end})")
    for boundary in (begin, end):
        if boundary not in (0, count) and not model.cuttable(boundary):
            raise errors.InvalidArgumentError(f"{model.name} must not be cut before operator {boundary}: {_why(model)}")
    operators = _needed(model, begin, end)
    inputs, outputs = ends(model, begin, end)
    data = _flatbuffer.pack(_assemble(model, operators, inputs, outputs))
    return SubModel(begin, end, data, inputs, outputs)


def single(model: Model, index: int) -> SubModel | None:
    """Cuts one operator out, wherever it stands, with what it needs of constants, to see who supports it.

    Args:
        model: what to cut.
        index: the operator.

    Returns:
        The part; None where the operator takes nothing but constants, or calls other graphs.
    """
    operator = model.operators[index]
    inputs = tuple(dict.fromkeys(tensor for tensor in operator.inputs if tensor not in model.fixed_tensors))
    if not inputs or not operator.outputs or model.whole is not None:
        return None
    data = _flatbuffer.pack(_assemble(model, _needed(model, index, index + 1), inputs, operator.outputs))
    return SubModel(index, index + 1, data, inputs, operator.outputs)


def chain(model: Model, boundaries: Iterable[int]) -> list[SubModel]:
    """Cuts a model at all boundaries: parts that cover it, in order.

    Args:
        model: what to cut.
        boundaries: operators before which to cut, in rising order, without 0 and the number of operators.
    """
    ends = [*boundaries, len(model.operators)]
    return [cut(model, begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _why(model: Model) -> str:
    return model.whole or "what crosses there is no tensor whose shape and type are fixed"


def _needed(model: Model, begin: int, end: int) -> list[int]:
    """The operators of the part, and those before or among them whose constant results they use."""
    own = [index for index in range(begin, end) if index not in model.constant_operators]
    found, open_ = set(own), list(own)
    while open_:
        for tensor in model.operators[open_.pop()].inputs:
            producer = model.producers.get(tensor)
            if producer in model.constant_operators and producer not in found:
                found.add(producer)
                open_.append(producer)
    return sorted(found)


def ends(model: Model, begin: int, end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids of what goes into a part and comes out; a whole model's inputs and outputs keep their order."""
    own = [model.operators[index] for index in range(begin, end) if index not in model.constant_operators]
    used = {tensor for operator in own for tensor in operator.inputs}
    made = {tensor for operator in own for tensor in operator.outputs}
    inputs = [tensor for tensor in model.crossing(begin) if tensor in used and tensor not in model.inputs]
    outputs = [tensor for tensor in model.crossing(end) if tensor in made and tensor not in model.outputs]
    whole = (begin, end) == (0, len(model.operators))
    return (
        tuple([tensor for tensor in model.inputs if tensor in used or whole] + inputs),
        tuple(outputs + [tensor for tensor in model.outputs if tensor in made]),
    )


def _assemble(model: Model, operators: list[int], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Any:
    made = copy.copy(model.schema)
    made.signatureDefs = None  # their names and order would have to be those of the part
    made.metadataBuffer = None
    whole = len(operators) == len(model.operators)
    made.metadata = [one for one in model.schema.metadata or [] if whole or one.name != _OF_THE_WHOLE]
    if model.whole is None:
        made.subgraphs = [_graph(model, operators, inputs, outputs)]
        _renumber_codes(made)
    else:
        made.subgraphs = _all_graphs(model)
    _renumber_buffers(made)
    return made


def _all_graphs(model: Model) -> list[Any]:
    """Graphs refer to each other by number: they stay where they are."""
    if model.subgraph:
        raise errors.InvalidArgumentError(
            f"{model.name}: signature {model.signature!r} runs graph {model.subgraph}, and {model.whole}; "
            "convert the signature into a model of its own"
        )
    return [
        _without_debug(graph, [copy.copy(one) for one in graph.operators or []]) for graph in model.schema.subgraphs
    ]


def _graph(model: Model, operators: list[int], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Any:
    numbers: dict[int, int] = {}

    def renumber(ids: Any) -> list[int] | None:
        if ids is None:
            return None
        return [-1 if one < 0 else numbers.setdefault(int(one), len(numbers)) for one in ids]

    own_inputs, chosen = renumber(inputs), []
    for index in operators:
        operator = copy.copy(model.graph.operators[index])
        operator.inputs, operator.outputs = renumber(operator.inputs), renumber(operator.outputs)
        operator.intermediates = renumber(operator.intermediates)
        chosen.append(operator)
    graph = _without_debug(model.graph, chosen)
    graph.inputs, graph.outputs = own_inputs, renumber(outputs)
    graph.tensors = [copy.copy(model.graph.tensors[index]) for index in numbers]
    _tell_apart([graph.tensors[index] for index in (*graph.inputs, *graph.outputs)])
    return graph


def _without_debug(graph: Any, operators: list[Any]) -> Any:
    """The debug metadata counts the operators of the whole model."""
    made = copy.copy(graph)
    made.operators = operators
    made.debugMetadataIndex = -1
    for operator in operators:
        operator.debugMetadataIndex = -1
    return made


def _tell_apart(tensors: list[Any]) -> None:
    """A runtime that makes up a signature wants names, each another one."""
    seen: set[bytes] = set()
    for index, tensor in enumerate(tensors):
        if not tensor.name or tensor.name in seen:
            tensor.name = (tensor.name or b"tensor") + b":%d" % index
        seen.add(tensor.name)


def _renumber_codes(made: Any) -> None:
    numbers: dict[int, int] = {}
    for operator in made.subgraphs[0].operators:
        operator.opcodeIndex = numbers.setdefault(operator.opcodeIndex, len(numbers))
    made.operatorCodes = [made.operatorCodes[index] for index in numbers]


def _renumber_buffers(made: Any) -> None:
    """Keeps what is used; buffer 0 is empty by definition."""
    numbers = {0: 0}
    for graph in made.subgraphs:
        graph.tensors = [copy.copy(tensor) for tensor in graph.tensors or []]
        for tensor in graph.tensors:
            tensor.buffer = numbers.setdefault(tensor.buffer, len(numbers))
    made.metadata = [copy.copy(one) for one in made.metadata]
    for entry in made.metadata:
        entry.buffer = numbers.setdefault(entry.buffer, len(numbers))
    made.buffers = [_flatbuffer.aligned_buffer(made.buffers[index].data) for index in numbers]

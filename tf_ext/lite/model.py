"""A TFLite model as the rest of `tf_ext.lite` sees it: operators in a row, and the tensors between them."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import os
import pathlib
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tf_ext.lite import _flatbuffer, errors

__all__ = ["Model", "Operator", "Tensor"]

# Operators that look up, keep or call something outside of the row of operators.
_STATE = frozenset(
    "VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE CALL_ONCE".split()
)
_SHAPES = frozenset({"SHAPE", "RANK"})


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of the model's graph.

    Attributes:
        id: its index in the graph.
        name: as the model has it.
        type: numpy's name of its type, or TFLite's in small letters where numpy has none.
        shape: its sizes.
        bytes: what its data takes; 0 where the type has no fixed size.
        constant: whether the file holds its data.
        variable: whether it keeps its data from one run to the next.
        known: whether its shape is the same in each run, as far as the file tells. A first size, the batch, that the
            file leaves open counts as the one that it holds.
    """

    id: int
    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int
    constant: bool
    variable: bool
    known: bool


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator of the model's graph.

    Attributes:
        id: its index in the graph.
        name: the builtin operator's, such as ``"CONV_2D"``; a custom operator's own.
        code: the builtin code; 32 for custom operators.
        version: of the builtin operator.
        inputs: ids of tensors; optional ones that are absent are left out.
        outputs: ids of tensors.
        calls: whether it calls another graph of the model, as ``IF`` and ``WHILE`` do.
    """

    id: int
    name: str
    code: int
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    calls: bool

    @property
    def custom(self) -> bool:
        """Whether it is a custom operator."""
        return self.code == _flatbuffer.CUSTOM


class Model:
    """A TFLite model, read and checked.

    Args:
        source: a path, or the bytes of a ``.tflite`` file.
        signature: which of several signatures is meant; needed only where the model has several.
        name: what it is called; else the file's name without its ending, or ``"model"``.

    Attributes:
        name: see above.
        data: the bytes of the file.
        signature: the signature's name, or None where the model has none.
        input_names, output_names: the signature's names of inputs and outputs, else the tensors'.
        tensors: of the graph, by id.
        operators: of the graph, in the order in which they run.
        inputs, outputs: ids of tensors.

    Raises:
        NotFoundError: there is no such file, or no such signature.
        DataLossError: it is no TFLite model, or a damaged one.
        InvalidArgumentError: the model cannot be shared among workers, for a reason that is told by name.
        UnavailableError: the runtime, whose schema is needed, is not installed.

    Example:
        >>> model = Model("face_landmark.tflite")
        >>> len(model.operators), model.tensors[model.inputs[0]].shape
        (97, (1, 192, 192, 3))
    """

    def __init__(
        self, source: str | os.PathLike[str] | bytes, *, signature: str | None = None, name: str | None = None
    ) -> None:
        self.data = source if isinstance(source, bytes) else _read(source)
        self.name = name or ("model" if isinstance(source, bytes) else pathlib.Path(source).stem)
        self.schema = _flatbuffer.parse(self.data, self.name)
        self._check(self.schema.subgraphs, "it has no graph")
        entry = _signature(self.schema, signature, self.name)
        self.signature: str | None = entry and _text(entry.signatureKey)
        self.subgraph: int = entry.subgraphIndex if entry else 0
        self._check(0 <= self.subgraph < len(self.schema.subgraphs), f"it has no graph {self.subgraph}")
        self.graph = self.schema.subgraphs[self.subgraph]
        self.tensors = tuple(self._tensor(index, one) for index, one in enumerate(_listed(self.graph.tensors)))
        self.inputs = self._ids(self.graph.inputs, "an input of the graph")
        self.outputs = self._ids(self.graph.outputs, "an output of the graph")
        self.operators = tuple(self._operator(index, one) for index, one in enumerate(_listed(self.graph.operators)))
        self._check_order()
        self.input_names = self._names(entry.inputs if entry else None, self.inputs)
        self.output_names = self._names(entry.outputs if entry else None, self.outputs)
        self._refuse_unfit()

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {len(self.operators)} operators, {len(self.data)} bytes)"

    @functools.cached_property
    def sha256(self) -> str:
        """The checksum of the file."""
        return hashlib.sha256(self.data).hexdigest()

    @functools.cached_property
    def codes_crc32(self) -> int:
        """The CRC-32 of the operators' builtin codes, which tells an interpreter's graph from another model's."""
        return zlib.crc32(np.array([operator.code for operator in self.operators], "<i4").tobytes())

    @functools.cached_property
    def producers(self) -> dict[int, int]:
        """The operator that makes a tensor, by the tensor's id."""
        return {tensor: operator.id for operator in self.operators for tensor in operator.outputs}

    @functools.cached_property
    def constant_operators(self) -> frozenset[int]:
        """Operators that compute from constants alone, such as those that unpack weights of half precision.

        One whose result is an output of the model is not among them.
        """
        found: set[int] = set()
        fixed = {tensor.id for tensor in self.tensors if tensor.constant}
        for operator in self.operators:
            pure = operator.inputs and not operator.calls and fixed.issuperset(operator.inputs)
            if pure and not set(operator.outputs) & set(self.outputs):
                found.add(operator.id)
                fixed.update(operator.outputs)
        return frozenset(found)

    @functools.cached_property
    def ordinary(self) -> tuple[int, ...]:
        """The other operators: those that have to run each time."""
        return tuple(operator.id for operator in self.operators if operator.id not in self.constant_operators)

    @functools.cached_property
    def fixed_tensors(self) -> frozenset[int]:
        """Constants, and what is computed from them alone: no piece hands them to another."""
        made = (tensor for index in self.constant_operators for tensor in self.operators[index].outputs)
        return frozenset([*(tensor.id for tensor in self.tensors if tensor.constant), *made])

    @functools.cached_property
    def shape_tensors(self) -> frozenset[int]:
        """What is computed from shapes and constants alone, and tells other operators their shapes."""
        found: set[int] = set()
        for operator in self.operators:
            rest = set(operator.inputs) - self.fixed_tensors
            if operator.name in _SHAPES or (rest and rest <= found):
                found.update(operator.outputs)
        return frozenset(found)

    @functools.cached_property
    def whole(self) -> str | None:
        """Why the model must not be cut, or None if it may be."""
        calling = [operator.name for operator in self.operators if operator.calls]
        return f"{calling[0]} calls another graph of the model" if calling else None

    def crossing(self, boundary: int) -> tuple[int, ...]:
        """Returns the ids of the tensors that are needed from operator `boundary` on and are there before it."""
        return self._crossings[boundary]

    def cuttable(self, boundary: int) -> bool:
        """Whether the model may be cut before operator `boundary`.

        What crosses there must have a shape that is known. Before an operator that computes from constants alone, it may not:
        that belongs to the operators that use it.
        """
        if self.whole is not None or boundary not in self._beginnings:
            return False
        crossing = self.crossing(boundary)
        fit = all(self._may_cross(self.tensors[tensor]) for tensor in crossing)
        return fit and bool(crossing) and not self.shape_tensors.intersection(crossing)

    @functools.cached_property
    def _beginnings(self) -> frozenset[int]:
        return frozenset(self.ordinary[1:])

    @functools.cached_property
    def _crossings(self) -> list[tuple[int, ...]]:
        """For each boundary from 0 to the number of operators."""
        last = {tensor: len(self.operators) for tensor in self.outputs}
        for operator in reversed(self.operators):
            if operator.id not in self.constant_operators:
                for tensor in operator.inputs:
                    last.setdefault(tensor, operator.id)
        alive = {tensor: None for tensor in self.inputs if tensor in last}
        found = [tuple(alive)]
        for operator in self.operators:
            if operator.id not in self.constant_operators:
                for tensor in operator.outputs:
                    if last.get(tensor, -1) > operator.id:
                        alive[tensor] = None
            for tensor in operator.inputs:
                if last.get(tensor) == operator.id:
                    alive.pop(tensor, None)
            found.append(tuple(alive))
        return found

    def _may_cross(self, tensor: Tensor) -> bool:
        return tensor.bytes > 0 and tensor.known and not tensor.variable

    def _check(self, fact: Any, told: str) -> None:
        if not fact:
            raise errors.DataLossError(f"{self.name} is damaged: {told}; get the file anew")

    def _ids(self, indices: Any, role: str) -> tuple[int, ...]:
        ids = tuple(int(index) for index in _listed(indices))
        count = len(_listed(self.graph.tensors))
        for index in ids:
            self._check(0 <= index < count, f"{role} is tensor {index} of {count}")
        return ids

    def _tensor(self, index: int, tensor: Any) -> Tensor:
        buffers = self.schema.buffers or []
        self._check(tensor is not None, f"tensor {index} is absent")
        self._check(0 <= tensor.buffer < len(buffers), f"tensor {index} refers to buffer {tensor.buffer}")
        shape = tuple(int(size) for size in _listed(tensor.shape))
        signature = [int(size) for size in _listed(tensor.shapeSignature)] or list(shape)
        kind = _flatbuffer.type_names().get(tensor.type, f"type {tensor.type}")
        self._check(all(size >= 0 for size in shape), f"tensor {index} has the shape {shape}")
        data = buffers[tensor.buffer].data
        constant = tensor.buffer > 0 and data is not None and len(data) > 0
        size = _bytes(shape, tensor.type)
        if constant and size and tensor.sparsity is None:
            self._check(len(data) == size, f"tensor {index} of {size} bytes has {len(data)} bytes of data")
        known = len(signature) == len(shape) and all(shape) and -1 not in signature[1:]
        return Tensor(index, _text(tensor.name), kind, shape, size, constant, bool(tensor.isVariable), known)

    def _operator(self, index: int, operator: Any) -> Operator:
        codes = self.schema.operatorCodes or []
        self._check(operator is not None, f"operator {index} is absent")
        self._check(0 <= operator.opcodeIndex < len(codes), f"operator {index} has the code {operator.opcodeIndex}")
        code = _flatbuffer.code_of(codes[operator.opcodeIndex])
        known = _flatbuffer.operator_names().get(code)
        self._check(known is not None, f"operator {index} is of the kind {code}, which the schema does not know")
        custom = _text(codes[operator.opcodeIndex].customCode) if code == _flatbuffer.CUSTOM else ""
        inputs = [one for one in _listed(operator.inputs) if one != -1]
        return Operator(
            id=index,
            name=custom or str(known),
            code=code,
            version=int(codes[operator.opcodeIndex].version),
            inputs=self._ids(inputs, f"an input of operator {index}"),
            outputs=self._ids(operator.outputs, f"an output of operator {index}"),
            calls=any(_calls(options) for options in (operator.builtinOptions, operator.builtinOptions2)),
        )

    def _check_order(self) -> None:
        ready = {*self.inputs, *(one.id for one in self.tensors if one.constant or one.variable)}
        made: set[int] = set()
        # Tensors that nothing makes and the file does not hold are read as zeros by some operators (empty constants).
        produced = {tensor for operator in self.operators for tensor in operator.outputs}
        for operator in self.operators:
            late = [tensor for tensor in operator.inputs if tensor in produced and tensor not in ready]
            self._check(not late, f"operator {operator.id} ({operator.name}) reads tensor {late} before it is made")
            twice = made.intersection(operator.outputs) or set(operator.outputs).intersection(self.inputs)
            self._check(not twice, f"operator {operator.id} ({operator.name}) makes tensor {sorted(twice)} again")
            made.update(operator.outputs)
            ready.update(operator.outputs)

    def _names(self, maps: Any, ids: Sequence[int]) -> tuple[str, ...]:
        named = {int(one.tensorIndex): _text(one.name) for one in _listed(maps)}
        names = [named.get(index) or self.tensors[index].name for index in ids]
        count = collections.Counter(names)
        # A dictionary of inputs needs names that differ.
        alike = [not name or count[name] > 1 for name in names]
        return tuple(f"{n or 'tensor'}:{i}" if a else n for n, i, a in zip(names, ids, alike, strict=True))

    def _refuse_unfit(self) -> None:
        """What works in one interpreter, but not where each run may go to another worker, or piece by piece."""
        for reason in self._unfit():
            raise errors.InvalidArgumentError(
                f"{self.name} cannot be made into a bundle: {reason}. Run it in an interpreter of its own"
            )

    def _unfit(self) -> Iterator[str]:
        kept = [one for one in self.tensors if one.variable]
        if kept:
            yield f"its variable {kept[0].name!r} keeps a state from one run to the next, and any worker may run the next"
        for operator in self.operators:
            if operator.name in _STATE:
                yield f"{operator.name} (operator {operator.id}) keeps a state outside of the graph"
        if not self.operators or not self.inputs or not self.outputs:
            counts = f"{len(self.operators)} operators, {len(self.inputs)} inputs and {len(self.outputs)} outputs"
            yield f"expected at least one of each, but it has {counts}"
        made = set(self.producers)
        for role, ids in (("input", self.inputs), ("output", self.outputs)):
            for tensor in (self.tensors[index] for index in ids):
                if tensor.type not in _flatbuffer.TYPES.values():
                    yield f"its {role} {tensor.name!r} has the type {tensor.type}, which has no fixed size"
                if not tensor.known:
                    shape = "x".join(str(size) for size in tensor.shape) or "unknown"
                    yield (
                        f"the shape of its {role} {tensor.name!r} is dynamic ({shape} in the file); "
                        "convert it with fixed shapes"
                    )
            if len(set(ids)) < len(ids):
                yield f"one tensor is two of its {role}s"
        for index in self.outputs:
            if index not in made:
                yield f"no operator makes its output {self.tensors[index].name!r}"


def _read(source: str | os.PathLike[str]) -> bytes:
    try:
        return pathlib.Path(source).read_bytes()
    except OSError as error:
        raise errors.NotFoundError(f"{source} cannot be read: {error.strerror}") from error


def _signature(schema: Any, name: str | None, model: str) -> Any:
    signatures = {_text(entry.signatureKey): entry for entry in _listed(schema.signatureDefs)}
    names = ", ".join(sorted(signatures)) or "none"
    if name is not None and name not in signatures:
        raise errors.NotFoundError(f"{model} has no signature {name!r}; it has {names}")
    if name is None and len(signatures) > 1:
        raise errors.InvalidArgumentError(f"{model} has several signatures, tell which one is meant: {names}")
    return signatures[name] if name is not None else next(iter(signatures.values()), None)


def _listed(vector: Any) -> Any:
    """A vector that is absent is None."""
    return () if vector is None else vector


def _text(data: Any) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data or "")


def _bytes(shape: Sequence[int], kind: int) -> int:
    name = _flatbuffer.TYPES.get(kind)
    size = np.dtype(name).itemsize if name else 0
    for one in shape:
        size *= one  # in Python's integers, which do not overflow
    return size


def _calls(options: Any) -> bool:
    """Options that name a graph of the model."""
    return any(name.lower().endswith("subgraphindex") for name in vars(options)) if options is not None else False

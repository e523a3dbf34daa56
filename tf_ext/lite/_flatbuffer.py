"""Reads and writes the flatbuffer of a `.tflite` file, through the schema that comes with the runtime.

Reading checks nothing but that the bytes can be read; `tf_ext.lite.model` checks what they say.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from tf_ext.lite import errors

IDENTIFIER = b"TFL3"
CUSTOM = 32
"""The builtin code of custom operators."""
_PLACEHOLDER = 127
"""What the old field of one byte holds where a code does not fit."""
_ALIGNMENT = 16
_MOST_OPERATORS = 1_000_000

# What a damaged buffer makes flatbuffers' Python raise: offsets out of the buffer, of the wrong sign, or into a table of
# another kind. `RecursionError` cannot come: tables of this schema do not hold their own kind.
_ODD = (struct.error, IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError)

# What comes after `flatbuffers.Builder` has no more to grow: names, tables, padding.
_SLACK = 1 << 16

TYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    6: "bool",
    7: "int16",
    8: "complex64",
    9: "int8",
    10: "float64",
    11: "complex128",
    12: "uint64",
    15: "uint32",
    16: "uint16",
}
"""Tensor types that numpy has, by its names."""


@functools.cache
def schema() -> Any:
    """Returns the generated module.

    Raises:
        UnavailableError: the runtime is not installed.
    """
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError as error:
        raise errors.UnavailableError(
            f"TFLite models cannot be read: {error}. Install the runtime: pip install 'tf_ext[lite]'"
        ) from error
    return schema_py_generated


@functools.cache
def operator_names() -> dict[int, str]:
    """Returns the names of the builtin operators by their codes."""
    return {code: name for name, code in vars(schema().BuiltinOperator).items() if not name.startswith("_")}


@functools.cache
def type_names() -> dict[int, str]:
    """Returns the names of all tensor types by their codes: numpy's where it has them."""
    own = {code: name.lower() for name, code in vars(schema().TensorType).items() if not name.startswith("_")}
    return {**own, **TYPES}


def parse(data: bytes, name: str) -> Any:
    """Returns the `ModelT` of a file; constants are views of `data`.

    Args:
        data: The whole file.
        name: What errors call it.

    Raises:
        DataLossError: it is no TFLite model, or a damaged one.
    """
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        found = f"{data[4:8]!r}" if len(data) >= 8 else f"{len(data)} bytes in all"
        raise errors.DataLossError(
            f"{name} was expected to be a TFLite model, with {IDENTIFIER!r} at bytes 4 to 7, but there is {found}"
        )
    try:
        root = schema().Model.GetRootAsModel(data, 0)
        _refuse_impossible_lengths(root, len(data))
        model = schema().ModelT.InitFromObj(root)
        _resolve_offsets(model, data)
    except _ODD as error:
        raise errors.DataLossError(
            f"{name} is damaged: its flatbuffer cannot be read ({type(error).__name__}: {error}); get the file anew"
        ) from error
    return model


def _refuse_impossible_lengths(root: Any, size: int) -> None:
    """A damaged length of some milliards would be read for minutes, element by element."""
    counts = [root.OperatorCodesLength(), root.SubgraphsLength(), root.BuffersLength(), root.SignatureDefsLength()]
    for index in range(min(root.SubgraphsLength(), size)):
        graph = root.Subgraphs(index)
        counts += [graph.TensorsLength(), graph.OperatorsLength(), graph.InputsLength(), graph.OutputsLength()]
        for place in range(min(graph.OperatorsLength(), _MOST_OPERATORS)):
            operator = graph.Operators(place)
            counts += [operator.InputsLength(), operator.OutputsLength(), operator.IntermediatesLength()]
        if sum(counts) * 4 > size:
            break
    if sum(counts) * 4 > size:
        raise ValueError(f"vectors of {sum(counts)} elements in {size} bytes")


def _resolve_offsets(model: Any, data: bytes) -> None:
    """Constants and options of models over two gigabytes lie behind the flatbuffer."""
    for buffer in model.buffers or ():
        if buffer.offset > 1:
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    for graph in model.subgraphs or ():
        for operator in graph.operators or ():
            if operator.largeCustomOptionsOffset > 1:
                place = operator.largeCustomOptionsOffset
                operator.customOptions = np.frombuffer(data, np.uint8, operator.largeCustomOptionsSize, place)
                operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0


def pack(model: Any) -> bytes:
    """Returns a `ModelT` as a file; its constants are aligned as the schema wants them."""
    import flatbuffers  # type: ignore[import-untyped]

    size = sum(0 if buffer.data is None else len(buffer.data) + 2 * _ALIGNMENT for buffer in model.buffers)
    builder = flatbuffers.Builder(size + _SLACK)
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def aligned_buffer(data: Any) -> Any:
    """Returns a `BufferT` whose bytes come to lie at a multiple of 16.

    The generated code leaves them at any byte: it does not know ``force_align``.
    """
    made = _aligned_buffer_type()()
    made.data = data
    return made


@functools.cache
def _aligned_buffer_type() -> Any:
    generated = schema()

    class AlignedBufferT(generated.BufferT):  # type: ignore[name-defined]
        def Pack(self, builder: Any) -> Any:  # noqa: N802
            """Writes the bytes, then the table."""
            place = None
            if self.data is not None:
                place = _aligned_vector(builder, np.ascontiguousarray(self.data, np.uint8))
            generated.BufferStart(builder)
            if place is not None:
                generated.BufferAddData(builder, place)
            return generated.BufferEnd(builder)

    return AlignedBufferT


def _aligned_vector(builder: Any, data: np.ndarray) -> Any:
    builder.StartVector(1, data.size, _ALIGNMENT)
    begin = builder.Head() - data.size
    builder.head = begin
    builder.Bytes[begin : begin + data.size] = data.tobytes()
    return builder.EndVector()


def code_of(operator_code: Any) -> int:
    """Returns the builtin code, which old files hold in a field of one byte."""
    old = operator_code.deprecatedBuiltinCode
    return int(operator_code.builtinCode if old == _PLACEHOLDER else max(operator_code.builtinCode, old))

"""Programs of `TfExtFusedRows`: straight-line arithmetic on lanes of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_ext import graph as graphs

# Numbered as RowOp in custom_ops/recursion/fused_rows.h.
_COPY, _ADD = 0, 1
ARITHMETIC = {
    "Add": 1,
    "AddV2": 1,
    "AddN": 1,
    "Sub": 2,
    "Mul": 3,
    "RealDiv": 4,
    "Maximum": 5,
    "Minimum": 6,
    "Neg": 7,
    "Square": 8,
    "Abs": 9,
    "Relu": 10,
    "Sqrt": 11,
    "Exp": 12,
    "Sigmoid": 13,
    "Tanh": 14,
    "SigmoidGrad": 15,
    "TanhGrad": 16,
    "ReluGrad": 17,
}
# Operators that hand their input on; gradients have been taken when this runs.
ALIASES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})

_ROW, _SAME_ROW, _SCALAR, _LOOKED_UP = 0, 1, 2, 3


def resolve(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor that `tensor` is another name of."""
    while tensor.op.type in ALIASES:
        tensor = tensor.op.inputs[0]
    return tensor


def _is_last_axis(op: tf.Operation, axis: tf.Tensor, rank: int | None) -> bool:
    value = graphs.constant_value(axis)
    return value is not None and rank is not None and int(value) % rank == rank - 1


def _split_fits(op: tf.Operation) -> bool:
    return _is_last_axis(op, op.inputs[0], op.inputs[1].shape.rank) and op.inputs[1].shape.as_list()[-1] is not None


def _split_v_fits(op: tf.Operation) -> bool:
    sizes = graphs.constant_value(op.inputs[1])
    return sizes is not None and _is_last_axis(op, op.inputs[2], op.inputs[0].shape.rank)


def _concat_fits(op: tf.Operation) -> bool:
    parts = [t.shape.as_list() if t.shape.rank else [None] for t in op.inputs[:-1]]
    same = all(part[:-1] == op.outputs[0].shape.as_list()[:-1] and part[-1] is not None for part in parts)
    return (
        same
        and all((part[-1] or 0) > 1 for part in parts)
        and _is_last_axis(op, op.inputs[-1], op.outputs[0].shape.rank)
    )


def _row_at_fits(op: tf.Operation) -> bool:
    table, indices = op.inputs
    return table.shape.rank == 2 and indices.shape.rank is not None and op.outputs[0].shape.rank in (1, 2)


STRUCTURAL: dict[str, Callable[[tf.Operation], bool]] = {
    "Split": _split_fits,
    "SplitV": _split_v_fits,
    "ConcatV2": _concat_fits,
    "TfExtRowAt": _row_at_fits,
}


@dataclasses.dataclass(eq=False)
class _Lane:
    """An operand: a view of an input or output row, or a scratch row; `number` is given at the end."""

    view: tuple[int, int, int, int] | None = None  # input, offset, kind, number of the indices or -1
    number: int = -1


class LaneProgram:
    """Collects the instructions of one group of operators."""

    def __init__(self, width: int, leading: list[int | None]) -> None:
        self._width = width
        self._leading = leading
        self._lanes: dict[object, list[_Lane]] = {}
        self._inputs: dict[object, tf.Tensor] = {}
        self._indices: dict[object, tuple[tf.Tensor, bool]] = {}
        self._views: dict[tuple[int, int, int, int], _Lane] = {}
        self._code: list[tuple[int, _Lane, _Lane, _Lane]] = []
        self._output_views: list[tuple[int, int]] = []
        self._num_scratch = 0
        self.outputs: list[tf.Tensor] = []

    @property
    def has_rows(self) -> bool:
        """Whether some input tells the number of rows."""
        return any(kind in (_ROW, _LOOKED_UP) for _, _, kind, _ in self._views)

    @property
    def index_types(self) -> set[tf.DType]:
        """The types of the indices of rows that are looked up."""
        return {tensor.dtype for tensor, _ in self._indices.values()}

    def add(self, op: tf.Operation) -> None:
        """Adds an operator; its operands come from outside or were added before."""
        if op.type in ("Split", "SplitV"):
            lanes = self._operand(op.inputs[1 if op.type == "Split" else 0], len_of=None)
            begin = 0
            for part in op.outputs:
                end = begin + part.shape.as_list()[-1] // self._width
                self._lanes[part.ref()] = lanes[begin:end]
                begin = end
            return
        if op.type == "ConcatV2":
            parts = [self._operand(t, len_of=None) for t in op.inputs[:-1]]
            self._lanes[op.outputs[0].ref()] = [lane for part in parts for lane in part]
            return
        if op.type == "TfExtRowAt":
            self._lanes[op.outputs[0].ref()] = self._look_up(op)
            return
        count = op.outputs[0].shape.as_list()[-1] // self._width
        operands = [self._operand(t, len_of=count) for t in op.inputs]
        self._lanes[op.outputs[0].ref()] = [
            self._arithmetic(ARITHMETIC[op.type], [operand[i] for operand in operands]) for i in range(count)
        ]

    def _arithmetic(self, code: int, operands: list[_Lane]) -> _Lane:
        result = operands[0]
        for other in operands[1:] or [operands[0]]:  # more than two: a sum
            target = _Lane()
            self._code.append((code, target, result, other))
            result = target
        return result

    def _operand(self, tensor: tf.Tensor, len_of: int | None) -> list[_Lane]:
        tensor = resolve(tensor)
        known = self._lanes.get(tensor.ref())
        if known is not None:
            return known
        number = self._input(tensor)
        shape = tensor.shape.as_list()
        if len_of is not None and tensor.shape.num_elements() == 1 and (len_of * self._width > 1 or not shape):
            return [self._view(number, 0, _SCALAR)] * len_of
        kind = _ROW if shape[:-1] == self._leading else _SAME_ROW
        return [self._view(number, offset, kind) for offset in range(0, shape[-1], self._width)]

    def _look_up(self, op: tf.Operation) -> list[_Lane]:
        table, indices = (resolve(t) for t in op.inputs)
        key = (indices.ref(), op.get_attr("wrap"))
        self._indices.setdefault(key, (indices, op.get_attr("wrap")))
        number, index = self._input(table), list(self._indices).index(key)
        width = table.shape.as_list()[-1]
        return [self._view(number, offset, _LOOKED_UP, index) for offset in range(0, width, self._width)]

    def _input(self, tensor: tf.Tensor) -> int:
        self._inputs.setdefault(tensor.ref(), tensor)
        return list(self._inputs).index(tensor.ref())

    def _view(self, number: int, offset: int, kind: int, index: int = -1) -> _Lane:
        key = (number, offset, kind, index)
        return self._views.setdefault(key, _Lane(key))

    def finish(self, outputs: list[tf.Tensor]) -> None:
        """Decides where every lane lives: in an output if it is part of one, else in a scratch row."""
        self.outputs = outputs
        for number, lane in enumerate(self._views.values()):
            lane.number = number
        homes: list[_Lane] = []
        for index, tensor in enumerate(outputs):
            for i, lane in enumerate(self._lanes[tensor.ref()]):
                if lane.number >= 0:  # an input, or written to another place already
                    copy = _Lane()
                    self._code.append((_COPY, copy, lane, lane))
                    lane = copy
                lane.number = len(self._views) + len(homes)
                homes.append(lane)
                self._output_views.append((index, i * self._width))
        self._drop_unused()
        self._place_scratch(len(self._views) + len(homes))

    def _drop_unused(self) -> None:
        used: set[_Lane] = set()
        kept = []
        for instruction in reversed(self._code):
            _, target, a, b = instruction
            if target.number >= 0 or target in used:
                used.update((a, b))
                kept.append(instruction)
        self._code = kept[::-1]

    def _place_scratch(self, first: int) -> None:
        """Scratch rows are used again when nobody reads them any more, so that all fit into the cache."""
        last_read = {lane: i for i, (_, _, a, b) in enumerate(self._code) for lane in (a, b)}
        free: list[int] = []
        scratch: set[_Lane] = set()
        for i, (_, target, a, b) in enumerate(self._code):
            if target.number < 0:
                target.number = free.pop() if free else first + self._num_scratch
                self._num_scratch = max(self._num_scratch, target.number - first + 1)
                scratch.add(target)
            free.extend(lane.number for lane in {a, b} & scratch if last_read[lane] == i)

    def node(self, name: str) -> Any:
        """The operator as a `NodeDef`."""
        node = tf.compat.v1.NodeDef(op="TfExtFusedRows", name=name)
        node.input.extend(tensor.name for tensor in self._inputs.values())
        node.input.extend(tensor.name for tensor, _ in self._indices.values())
        node.attr["num_indices"].i = len(self._indices)
        node.attr["Tindices"].type = next(iter(self.index_types), tf.int32).as_datatype_enum
        node.attr["wrap"].list.b.extend(wrap for _, wrap in self._indices.values())
        node.attr["code"].list.SetInParent()
        node.attr["num_inputs"].i = len(self._inputs)
        node.attr["num_outputs"].i = len(self.outputs)
        node.attr["width"].i = self._width
        node.attr["num_scratch"].i = self._num_scratch
        node.attr["input_views"].list.i.extend(int(n) for n in np.ravel(list(self._views)))
        node.attr["output_views"].list.i.extend(int(n) for n in np.ravel(self._output_views))
        node.attr["output_shapes"].list.shape.extend(t.shape.as_proto() for t in self.outputs)
        for code, target, a, b in self._code:
            node.attr["code"].list.i.extend((code, target.number, a.number, b.number))
        return node


__all__ = ["ALIASES", "ARITHMETIC", "STRUCTURAL", "LaneProgram", "resolve"]

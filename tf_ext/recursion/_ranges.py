"""Recognises consecutive rows of a captured tensor.

`tree.map(children[node])`, with a ragged tensor `children`, leaves a strided slice of the ragged tensor's values in the
graph, of another length for each call: nothing that can be computed for many calls at once. As "rows start to limit of
that table" it needs no computation at all: the runtime hands the rows to the calls directly, and their number is a
subtraction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._effects import CALLS
from tf_ext.recursion._environment import Environment
from tf_ext.recursion._lookups import dynamic_index


@dataclasses.dataclass(frozen=True)
class RowSlice:
    """`table[start:limit]`, where `start` and `limit` are scalar tensors of a body; no table: the numbers themselves."""

    start: tf.Tensor
    limit: tf.Tensor
    table: tf.Tensor | None


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows that a map call goes over, and per mapped operand the table (None: the numbers themselves)."""

    start: tf.Tensor
    limit: tf.Tensor
    tables: dict[int, tf.Tensor | None]


class Ranges:
    """The row slices of one trace."""

    def __init__(
        self,
        all_graphs: Iterable[tf.Graph],
        environment: Environment,
        is_split: Callable[[tf.Operation], bool],
    ) -> None:
        """Looks for slices in all graphs.

        Args:
          all_graphs: the bodies and the branches in them.
          environment: tells which tensors are captured.
          is_split: whether the branches of a conditional are lowered, rather than run as a whole.
        """
        self._environment = environment
        self._resolve = environment.resolve
        self._is_split = is_split
        self._known: dict[object, RowSlice] = {}
        for graph in all_graphs:
            for op in graph.get_operations():
                found = self._slice(op)
                if found is not None:
                    self._known[op.outputs[0].ref()] = found

    def slice_of(self, tensor: tf.Tensor) -> RowSlice | None:
        """The slice that a tensor of a body is."""
        return self._known.get(self._resolve(tensor).ref())

    def bind(self, inner: tf.Tensor, rows: RowSlice) -> None:
        """Says that a branch's placeholder, or what it is another name of, stands for a slice."""
        self._known[self._resolve(inner).ref()] = rows

    def of_call(self, op: tf.Operation) -> Rows | None:
        """The rows that a map goes over, if all its mapped operands are the same rows of captured tensors."""
        if op.type not in CALLS or not any(op.get_attr("mapped")):
            return None
        mapped = [i for i, flag in enumerate(op.get_attr("mapped")) if flag]
        found = {i: self.slice_of(op.inputs[i]) for i in mapped}
        first = found[mapped[0]]
        if first is None:
            return None
        tables = {}
        for i, one in found.items():
            if one is None or one.start is not first.start or one.limit is not first.limit:
                return None
            tables[i] = one.table
        return Rows(first.start, first.limit, tables)

    def of_size(self, op: tf.Operation) -> RowSlice | None:
        """The slice whose length `op` asks for."""
        if op.type not in ("Size", "Shape"):
            return None
        rows = self.slice_of(op.inputs[0])
        if rows is None or (rows.table is not None and not rows.table.shape[1:].is_fully_defined()):
            return None
        return rows

    def operands(self, op: tf.Operation) -> list[tf.Tensor]:
        """What has to be computed before `op`: its inputs, but for slices only where they begin and end."""
        size = self.of_size(op)
        if size is not None:
            return [self._resolve(size.start), self._resolve(size.limit)]
        rows = self.of_call(op)
        if rows is not None:
            others = [t for i, t in enumerate(op.inputs) if i not in rows.tables]
            return [self._resolve(t) for t in [rows.start, rows.limit, *others]]
        found = []
        for i, tensor in enumerate(op.inputs):
            one = self.slice_of(tensor) if i > 0 and graphs.is_conditional(op) and self._is_split(op) else None
            if one is not None and all(self.only_sliced(g.inputs[i - 1]) for g in graphs.branch_graphs(op)):
                found += [one.start, one.limit]
            else:
                found.append(tensor)
        return [self._resolve(t) for t in found]

    def only_sliced(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor is used for nothing that needs its values: in maps over rows, and for its length."""
        for op in tensor.consumers():
            if op.type in ("Identity", "StridedSlice"):
                if graphs.read_through(op.outputs[0]) is not graphs.read_through(tensor):
                    return False
                fits = self.only_sliced(op.outputs[0])
            elif graphs.is_conditional(op):
                places = [i for i, t in enumerate(op.inputs) if t is tensor]
                inner = [g.inputs[i - 1] for g in graphs.branch_graphs(op) for i in places if i > 0]
                fits = 0 not in places and all(self.only_sliced(t) for t in inner)
            else:
                mapped = op.get_attr("mapped") if op.type in CALLS else []
                fits = op.type in ("Size", "Shape") or all(
                    i < len(mapped) and mapped[i] for i, t in enumerate(op.inputs) if t is tensor
                )
            if not fits:
                return False
        return all(tensor is not output for output in getattr(tensor.graph, "outputs", []))

    def _slice(self, op: tf.Operation) -> RowSlice | None:
        if op.type == "Range":
            whole = op.outputs[0].dtype in (tf.int32, tf.int64) and graphs.constant_value(op.inputs[2]) == 1
            return RowSlice(op.inputs[0], op.inputs[1], None) if whole else None
        if op.type != "StridedSlice" or op.inputs[1].shape.as_list() != [1]:
            return None
        if any(op.get_attr(f"{mask}_mask") for mask in ("ellipsis", "new_axis", "shrink_axis")):
            return None
        table, begin, end, strides = op.inputs
        stride = graphs.constant_value(strides)
        if stride is None or stride.tolist() != [1] or table.dtype == tf.string:
            return None
        if graphs.constant_value(begin) is not None and graphs.constant_value(end) is not None:
            return None
        table = self._origin(table)
        bounds = [bound for bound in (_only_element(begin), _only_element(end)) if bound is not None]
        if len(bounds) != 2 or not self._environment.is_invariant(table):
            return None
        if all(bound.op.type in ("StridedSlice", "GatherV2") and dynamic_index(bound.op) for bound in bounds):
            # Row splits, or what looks like them: the runtime checks that they are within the table.
            return RowSlice(bounds[0], bounds[1], self._environment.outer(table))
        return RowSlice(*_clamped(op, *bounds), self._environment.outer(table))

    def _origin(self, tensor: tf.Tensor) -> tf.Tensor:
        """What a branch has captured from the graphs around it."""
        while True:
            tensor = self._resolve(tensor)
            if self._environment.is_invariant(tensor) or tensor.op.type != "Placeholder":
                return tensor
            outer = [outer for outer, inner in tensor.graph.captures if inner is tensor]
            if not outer:
                return tensor
            tensor = outer[0]


def _only_element(tensor: tf.Tensor) -> tf.Tensor | None:
    """x, where `tensor` is [x]."""
    tensor = graphs.read_through(tensor)
    if tensor.op.type == "Pack" and len(tensor.op.inputs) == 1 and tensor.op.inputs[0].shape.rank == 0:
        return graphs.read_through(tensor.op.inputs[0])
    value = graphs.constant_value(tensor)
    if value is None:
        return None
    with tensor.graph.as_default(), tf.control_dependencies(None):
        return tf.constant(value[0], tensor.dtype)


def _clamped(op: tf.Operation, start: tf.Tensor, limit: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The bounds as Python has them: negative ones count from the end, and none reaches beyond it."""
    with op.graph.as_default(), tf.control_dependencies(None):
        size = tf.shape(op.inputs[0], out_type=start.dtype)[0]

        def clamp(bound: tf.Tensor) -> tf.Tensor:
            return tf.minimum(tf.maximum(tf.where(bound < 0, bound + size, bound), 0), size)

        start = tf.zeros_like(start) if op.get_attr("begin_mask") else clamp(start)
        return start, size if op.get_attr("end_mask") else clamp(limit)

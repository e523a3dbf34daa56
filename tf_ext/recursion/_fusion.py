"""Turns chains of elementwise operators into single passes over memory.

The gates of an LSTM are some twenty elementwise operators, splits and concatenations on rows of a few hundred floats. Run
one by one, each reads and writes all rows and is dispatched on its own, which for small batches costs more than its
arithmetic. Here they become one operator, `TfExtFusedRows`: a straight-line program on *lanes*, parts of rows of one width
(custom_ops/recursion/fused_rows.h). A split is then a choice of lanes, and a concatenation a choice of where to write.

Operators of one group have the same *level*, which grows along every edge that leaves a group and never falls: so no path
leaves a group and comes back.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow as tf

from tf_ext.recursion._lanes import ALIASES, ARITHMETIC, STRUCTURAL, LaneProgram, resolve

_MIN_WIDTH = 4
_MAX_LANES = 64


def fuse(graph_def: Any, graph: tf.Graph, batched: bool, fetches: list[tf.Tensor]) -> list[str]:
    """Fuses what can be fused in a `GraphDef`.

    Args:
      graph_def: part of `graph`; changed in place.
      graph: tells the shapes.
      batched: whether an unknown leading dimension is the number of rows of the batch.
      fetches: tensors that have to stay available.

    Returns:
      The names of `fetches` afterwards.
    """
    present = {node.name for node in graph_def.node}
    ops = [op for op in graph.get_operations() if op.name in present]
    new_names: dict[str, str] = {}
    removed: set[str] = set()
    for number, group in enumerate(_groups(ops, batched)):
        program = _compile(group, ops, fetches)
        if program is None:
            continue
        node = program.node(f"fused_rows_{number}")
        new_names.update((t.name, f"{node.name}:{i}") for i, t in enumerate(program.outputs))
        removed.update(op.name for op in group)
        graph_def.node.append(node)
    if not removed:
        return [t.name for t in fetches]
    _rewire(graph_def, graph, new_names, removed)
    return [_renamed(t, new_names) for t in fetches]


@dataclasses.dataclass(frozen=True)
class _Place:
    """What operators of one group have in common."""

    level: int
    leading: tuple[int | None, ...]


def _groups(ops: list[tf.Operation], batched: bool) -> list[list[tf.Operation]]:
    """Sets of operators worth fusing, each in the order of the graph."""
    levels: dict[tf.Operation, int] = {}
    places: dict[tf.Operation, _Place] = {}
    for op in ops:
        leading = _leading(op)
        fusible = leading is not None and (batched or None not in leading)
        level = max((levels.get(before, 0) + (before in places) for before in op.control_inputs), default=0)
        for tensor in map(resolve, op.inputs):
            before = places.get(tensor.op)
            joins = fusible and before is not None and before.leading == leading and tensor.shape.num_elements() != 1
            level = max(level, levels.get(tensor.op, 0) + (before is not None and not joins))
        levels[op] = level
        if leading is not None and fusible:
            places[op] = _Place(level, leading)
    leader = {op: op for op in places}

    def find(op: tf.Operation) -> tf.Operation:
        while leader[op] is not op:
            op = leader[op]
        return op

    readers: dict[tuple[object, _Place], tf.Operation] = {}
    for op, place in places.items():
        for tensor in map(resolve, op.inputs):
            if tensor.dtype != tf.float32 or tensor.shape.num_elements() == 1:
                continue  # sharing a constant, or indices, does not make a group
            if places.get(tensor.op) == place:
                leader[find(op)] = find(tensor.op)
            other = readers.setdefault((tensor.ref(), place), op)
            leader[find(op)] = find(other)
    groups: dict[tf.Operation, list[tf.Operation]] = {}
    for op in places:
        groups.setdefault(find(op), []).append(op)
    return [group for group in groups.values() if _worth_it(group)]


def _worth_it(group: list[tf.Operation]) -> bool:
    arithmetic = sum(op.type in ARITHMETIC for op in group)
    return arithmetic >= 1 and len(group) >= 2


def _leading(op: tf.Operation) -> tuple[int | None, ...] | None:
    """The dimensions before the last of a fusible operator's results; None if it is not fusible."""
    if op.type not in ARITHMETIC and op.type not in STRUCTURAL:
        return None
    if op.control_inputs or len(op.inputs) == (op.type == "AddN") or any(t.dtype != tf.float32 for t in op.outputs):
        return None
    shapes = [t.shape for t in op.outputs]
    if any(shape.rank in (None, 0) or (shape.as_list()[-1] or 0) < 2 for shape in shapes):
        return None  # single numbers have no rows to speak of, and look like constants
    leading = tuple(shapes[0].as_list()[:-1])
    if None in leading and leading != (None,):
        return None
    if op.type in STRUCTURAL:
        return leading if STRUCTURAL[op.type](op) else None
    width = shapes[0].as_list()[-1]
    fits = [_fits(t, leading, width) for t in op.inputs]
    return leading if all(fits) and any(kind == "row" for kind in fits) else None


def _fits(tensor: tf.Tensor, leading: tuple[int | None, ...], width: int) -> str | None:
    """How an operand goes with rows of the result: as rows, as one row for all, or as one number."""
    shape = tensor.shape
    if tensor.dtype != tf.float32 or shape.rank is None:
        return None
    if shape.rank and tuple(shape.as_list()[:-1]) == leading and shape.as_list()[-1] == width:
        return "row"
    if shape.num_elements() == 1:
        return "scalar"
    if shape.num_elements() == width and shape.as_list()[-1] == width:
        return "same"
    return None


def _compile(group: list[tf.Operation], ops: list[tf.Operation], fetches: list[tf.Tensor]) -> LaneProgram | None:
    """The program of a group, or None if its lanes would be too narrow or too many."""
    members = set(group)
    widths = [t.shape.as_list()[-1] for op in group for t in op.outputs]
    inputs = [resolve(t) for op in group for t in op.inputs if t.dtype == tf.float32]
    widths += [t.shape.as_list()[-1] for t in inputs if t.shape.rank]
    widths = [width for width in widths if width > 1] or [1]
    width = math.gcd(*widths)
    if width < min(_MIN_WIDTH, max(widths)) or max(widths) // width > _MAX_LANES:
        return None
    needed = {resolve(t).ref() for op in ops if op not in members and op.type not in ALIASES for t in op.inputs}
    needed |= {resolve(t).ref() for t in fetches}
    outputs = [t for op in group for t in op.outputs if t.ref() in needed]
    program = LaneProgram(width, group[0].outputs[0].shape.as_list()[:-1])
    for op in group:
        program.add(op)
    program.finish(outputs)
    return program if program.has_rows and len(program.index_types) <= 1 else None


def _rewire(graph_def: Any, graph: tf.Graph, new_names: dict[str, str], removed: set[str]) -> None:
    """Lets readers of fused tensors read the fused operators, and drops what was fused."""
    kept = []
    for node in graph_def.node:
        if node.name in removed:
            continue
        if node.op in ALIASES and _is_gone(node.input[0], graph, new_names, removed):
            removed.add(node.name)  # only what was fused has read it
            continue
        kept.append(node)
        inputs = []
        for text in node.input:
            if text.startswith("^"):
                if text[1:] not in removed:
                    inputs.append(text)
                continue
            name, _, index = text.partition(":")
            full = f"{name}:{index or 0}"
            if name in removed or full in new_names:
                full = _renamed(graph.get_tensor_by_name(full), new_names)
            inputs.append(full)
        del node.input[:]
        node.input.extend(inputs)
    del graph_def.node[:]
    graph_def.node.extend(kept)


def _is_gone(text: str, graph: tf.Graph, new_names: dict[str, str], removed: set[str]) -> bool:
    name, _, index = text.partition(":")
    full = f"{name}:{index or 0}"
    return name in removed and _renamed(graph.get_tensor_by_name(full), new_names) == full


def _renamed(tensor: tf.Tensor, new_names: dict[str, str]) -> str:
    return new_names.get(tensor.name) or new_names.get(resolve(tensor).name) or tensor.name

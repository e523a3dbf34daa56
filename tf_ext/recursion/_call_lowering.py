"""Turns call operators, and conditionals beside other calls, into call records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._ir import RETURN, Block, Call, Exit, Function, Slot
from tf_ext.recursion._ranges import RowSlice

if TYPE_CHECKING:
    from tf_ext.recursion._lowering import Lowering


class CallLowering:
    """The calls of one lowering; numbers their sites."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._sites = 0

    def lower(self, function: Function, block: Block, op: tf.Operation) -> Call:
        """The record of a call that `block` issues; its results get slots."""
        self._sites += 1
        make = self._branch_call if graphs.is_conditional(op) else self._plain_call
        call = make(block, op, self._sites)
        for tensor in op.outputs:
            slot = Slot(function.new_slot(tensor.dtype, tensor.shape), listed=call.mode != "one")
            self._lowering.places.hold(tensor, slot)
            call.results.append(slot.index)
        return call

    def _plain_call(self, block: Block, op: tf.Operation, site: int) -> Call:
        slot_for = self._lowering.places.slot_for
        mapped = list(op.get_attr("mapped"))
        call = Call([op.get_attr("callee")], [], [], site)
        rows = self._lowering.ranges.of_call(op)
        if mapped:
            call.mode, call.mapped = "map", mapped
            call.reduce = op.get_attr("reduce").decode()
        if rows is None:
            call.args = [slot_for(t, block) for t in op.inputs]
            return call
        call.mode = "range"
        call.start, call.limit = slot_for(rows.start, block), slot_for(rows.limit, block)
        for i, tensor in enumerate(op.inputs):
            if i in rows.tables:
                table = rows.tables[i]
                call.tables.append(-1 if table is None else self._lowering.environment.number(table))
                call.args.append(-1)
            else:
                call.tables.append(-2)
                call.args.append(slot_for(tensor, block))
        return call

    def _branch_call(self, block: Block, op: tf.Operation, site: int) -> Call:
        """A conditional beside other calls: its branches become functions, so that siblings stay parallel."""
        lowering = self._lowering
        call = Call([], [], [], site, selector=lowering.places.slot_for(op.inputs[0], block))
        branches = list(graphs.branch_graphs(op))
        passed: list[list[tf.Tensor]] = [[] for _ in branches]
        for i, tensor in enumerate(op.inputs[1:]):
            inner = [graph.inputs[i] for graph in branches]
            outer = lowering.environment.lookup(lowering.environment.resolve(tensor))
            if outer is not None:
                for one in inner:
                    lowering.environment.bind(one, outer.tensor)
                continue
            rows = lowering.ranges.slice_of(tensor)
            if rows is not None and all(map(lowering.ranges.only_sliced, inner)):
                call.args += [lowering.places.slot_for(t, block) for t in (rows.start, rows.limit)]
                for one, arguments in zip(inner, passed, strict=True):
                    arguments += self._bounds(one, rows)
                continue
            call.args.append(lowering.places.slot_for(tensor, block))
            for one, arguments in zip(inner, passed, strict=True):
                arguments.append(one)
        name = f"{lowering.functions[block.function].name}/{op.name}"
        for graph, arguments in zip(branches, passed, strict=True):
            call.callees.append(self._branch(name, graph, arguments))
        return call

    def _bounds(self, inner: tf.Tensor, rows: RowSlice) -> list[tf.Tensor]:
        """Placeholders of a branch for where a slice begins and ends."""
        start, limit = (graphs.placeholder(inner.graph, t.dtype, t.shape) for t in (rows.start, rows.limit))
        self._lowering.ranges.bind(inner, RowSlice(start, limit, rows.table))
        return [start, limit]

    def _branch(self, name: str, graph: tf.Graph, arguments: list[tf.Tensor]) -> int:
        """Makes a branch a function and returns its number."""
        lowering = self._lowering
        function = Function(name, len(lowering.functions), is_branch=True)
        lowering.functions.append(function)
        for tensor in arguments:
            lowering.places.hold(tensor, Slot(function.new_slot(tensor.dtype, tensor.shape)))
        function.num_args = len(arguments)
        function.results = [function.new_slot(t.dtype, t.shape) for t in graph.outputs]
        leave = Exit(RETURN, [(slot, i) for i, slot in enumerate(function.results)])
        function.entry = lowering.lower_region(function, graph, graph.outputs, leave, after_calls=False)
        return function.index

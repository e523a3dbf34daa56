"""Cuts traced bodies into blocks at their calls.

stage(op) is the number of calls on the longest path of dependencies that leads to it. The operators of one stage are a
block; the calls of one stage are issued together. A conditional whose branches call is a call with a dynamic callee; where
it is alone in its stage it becomes a jump inside the frame instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion import _effects
from tf_ext.recursion._environment import Environment
from tf_ext.recursion._ir import JOIN, RETURN, Block, Call, Function, Outer, Slot
from tf_ext.recursion._ranges import range_of
from tf_ext.recursion._sinking import sink
from tf_ext.recursion._stages import HEAVY, Stages
from tf_ext.recursion._tracing import Body, Trace


@dataclasses.dataclass
class Exit:
    """Where a region goes when it is done: a block, or RETURN, and the slots that its outputs are moved to.

    `moves` pairs a slot with the number of one of the region's outputs, `fixed` with another slot.
    """

    next: int
    moves: list[tuple[int, int]]
    fixed: list[tuple[int, int]] = dataclasses.field(default_factory=list)


class Lowering:
    """Functions and blocks of a traced recursion."""

    def __init__(self, trace: Trace, environment: Environment, effects: _effects.Effects) -> None:
        self.environment = environment
        self.effects = effects
        self.functions: list[Function] = []
        self.blocks: list[Block] = []
        self._slots: dict[object, Slot] = {}  # the frame slot that holds a body's tensor
        self._producer: dict[object, Block] = {}  # the block that computes it
        self._order: dict[tf.Operation, int] = {}  # of the program, dependencies first
        self._sites = 0
        for body in trace.bodies:
            self.functions.append(Function(body.subgraph.name, len(self.functions), is_branch=False))
        for body, function in zip(trace.bodies, list(self.functions), strict=True):
            self._lower_body(body, function)
        self._drop_unreachable()
        for block in self.blocks:
            block.ops.sort(key=self._order.__getitem__)
            self._settle(block)

    def _settle(self, block: Block) -> None:
        """Finds out what a block reads from slots, and lets the blocks that compute it write it there."""
        operands = [t for op in block.ops for t in op.inputs] + list(block.writes.values())
        for tensor in operands:
            source = self.note_read(tensor, block)
            if isinstance(source, Slot):
                block.reads[source.index] = self.environment.resolve(tensor)

    def _drop_unreachable(self) -> None:
        """Numbers the blocks anew without those that nothing leads to."""
        reached, stack = set(), [function.entry for function in self.functions]
        while stack:
            index = stack.pop()
            if index >= 0 and index not in reached:
                reached.add(index)
                block = self.blocks[index]
                stack += [block.next, block.side, *block.targets]
        kept = [block for block in self.blocks if block.index in reached]
        numbers = {block.index: i for i, block in enumerate(kept)} | {RETURN: RETURN, JOIN: JOIN}
        for block in kept:
            block.index, block.next = numbers[block.index], numbers[block.next]
            block.side = numbers[block.side]
            block.targets = [numbers[target] for target in block.targets]
        for function in self.functions:
            function.entry = numbers[function.entry]
        self.blocks = kept

    def slot_of(self, tensor: tf.Tensor) -> Slot | None:
        """The slot that holds a tensor when it is not computed in the block that reads it."""
        return self._slots.get(tensor.ref())

    def _lower_body(self, body: Body, function: Function) -> None:
        for tensor in body.arguments:
            self._slots[tensor.ref()] = Slot(function.new_slot(tensor.dtype, tensor.shape))
        function.num_args = len(body.arguments)
        outputs = body.graph.outputs
        specs = tf.nest.flatten(body.subgraph.output_signature)
        function.results = [function.new_slot(spec.dtype, spec.shape) for spec in specs]
        leave = Exit(RETURN, [(slot, i) for i, slot in enumerate(function.results)])
        function.entry = self._lower_region(function, body.graph, outputs, leave, after_calls=False)

    def _lower_region(
        self, function: Function, graph: tf.Graph, outputs: Sequence[tf.Tensor], leave: Exit, after_calls: bool
    ) -> int:
        """Lowers one graph to blocks and returns the first of them."""
        region = Stages(self, graph, outputs)
        for op in region.order:
            self._order[op] = len(self._order)
        blocks = [self._new_block(function) for _ in range(region.num_stages)]
        for block, ops in zip(blocks, region.stage_ops, strict=True):
            block.ops = list(ops)
            self._producer.update((t.ref(), block) for op in ops for t in op.outputs)
        for stage, block in enumerate(blocks):
            continuation = after_calls or stage > 0
            block.rank = 3 if continuation else 0
            calls = region.stage_calls[stage]
            if stage == len(blocks) - 1:
                self._leave(block, outputs, leave)
                if not continuation and leave.next == RETURN:
                    block.rank = 1
            elif len(calls) == 1 and graphs.is_conditional(calls[0]):
                onward = self._exit_of_branches(block, calls[0], blocks[stage + 1 :], outputs, leave)
                leaves = onward.next != blocks[stage + 1].index
                if leaves:
                    self._sink_into_branches(block, calls[0])
                self._switch(block, calls[0], onward, continuation)
                if leaves:
                    break
            else:
                block.next = blocks[stage + 1].index
                self._split_side(block, calls, blocks[stage + 1])
                for op in calls:
                    block.calls.append(self._call(function, block, op))
        return blocks[0].index

    def _new_block(self, function: Function) -> Block:
        block = Block(len(self.blocks), function.index)
        self.blocks.append(block)
        return block

    def _leave(self, block: Block, outputs: Sequence[tf.Tensor], leave: Exit) -> None:
        """Ends a region: its outputs go where the exit says."""
        block.next = leave.next
        block.moves += [(to, self.slot_for(outputs[i], block)) for to, i in leave.moves]
        block.moves += leave.fixed

    def slot_for(self, tensor: tf.Tensor, block: Block) -> int:
        """A slot that holds `tensor` once `block` has run, for use by calls, moves and switches."""
        tensor = self.environment.resolve(tensor)
        slot = self._slots.get(tensor.ref())
        if slot is not None and not slot.listed:
            return slot.index
        if slot is not None or self.environment.is_invariant(tensor) or self._producer.get(tensor.ref()) is None:
            # A map's result, a captured tensor or a constant: made a value of the frame by copying it here.
            function = self.functions[block.function]
            index = function.new_slot(tensor.dtype, tensor.shape)
            block.writes[index] = tensor
            return index
        return self._slot_of_produced(tensor)

    def _slot_of_produced(self, tensor: tf.Tensor) -> int:
        block = self._producer[tensor.ref()]
        index = self.functions[block.function].new_slot(tensor.dtype, tensor.shape)
        block.writes[index] = tensor
        self._slots[tensor.ref()] = Slot(index)
        return index

    def note_read(self, tensor: tf.Tensor, block: Block) -> Outer | Slot | None:
        """How `block` gets `tensor`: from outside, from a slot, or (None) by computing it itself."""
        tensor = self.environment.resolve(tensor)
        slot = self._slots.get(tensor.ref())
        if slot is not None and self._producer.get(tensor.ref()) is not block:
            return slot
        outer = self.environment.lookup(tensor)
        if outer is not None:
            return outer
        producer = self._producer.get(tensor.ref())
        if producer is None or producer is block or self.environment.is_invariant(tensor):
            return None
        return Slot(self._slot_of_produced(tensor))

    def _split_side(self, block: Block, calls: Sequence[tf.Operation], following: Block) -> None:
        """Moves what the calls do not need out of their way: heavy work to a side block, the rest to where it is read."""
        if any(self.effects.is_ordered(op) for op in block.ops):
            return
        needed = graphs.ancestors(
            [t.op for call in calls for t in self.call_operands(call)], lambda op: [t.op for t in op.inputs]
        )
        spare = [op for op in block.ops if op not in needed]
        if not spare:
            return
        if any(op.type in HEAVY for op in spare):
            target = self._new_block(self.functions[block.function])
            target.rank, target.next = 2, JOIN
            block.side = target.index
        else:
            target = following
        block.ops = [op for op in block.ops if op in needed]
        target.ops = spare + target.ops
        self._producer.update((t.ref(), target) for op in spare for t in op.outputs)

    def call_operands(self, op: tf.Operation) -> list[tf.Tensor]:
        """What has to be computed before a call is made; rows of a captured tensor are handed over as they are."""
        operands = []
        rows = range_of(op, self.environment)
        if rows is not None:
            operands += [rows.start, rows.limit]
        for i, tensor in enumerate(op.inputs):
            if rows is None or i not in rows.tables:
                operands.append(tensor)
        return [self.environment.resolve(t) for t in operands]

    def _switch(self, block: Block, op: tf.Operation, onward: Exit, after_calls: bool) -> None:
        """Makes a conditional that is alone in its stage a jump of the frame."""
        block.switch = self.slot_for(op.inputs[0], block)
        function = self.functions[block.function]
        for graph in graphs.branch_graphs(op):
            self._bind_branch(op, graph, block)
            block.targets.append(self._lower_region(function, graph, graph.outputs, onward, after_calls))

    def _exit_of_branches(
        self, block: Block, op: tf.Operation, following: list[Block], outputs: Sequence[tf.Tensor], leave: Exit
    ) -> Exit:
        """Where the branches of a lone conditional go: to the next block, or straight out if that has nothing to do."""
        results = {t.ref(): i for i, t in enumerate(op.outputs)}
        if len(following) > 1 or following[0].ops:
            function = self.functions[block.function]
            moves = []
            for i, tensor in enumerate(op.outputs):
                slot = Slot(function.new_slot(tensor.dtype, tensor.shape))
                self._slots[tensor.ref()] = slot
                moves.append((slot.index, i))
            return Exit(following[0].index, moves)
        moves, fixed = [], list(leave.fixed)
        for to, i in leave.moves:
            output = self.environment.resolve(outputs[i])
            if output.ref() in results:
                moves.append((to, results[output.ref()]))
            else:
                fixed.append((to, self.slot_for(output, block)))
        return Exit(leave.next, moves, fixed)

    def _bind_branch(self, op: tf.Operation, graph: tf.Graph, block: Block) -> None:
        """Lets a branch that runs inside its parent's frame read its inputs where the parent has them."""
        for inner, tensor in zip(graph.inputs, op.inputs[1:], strict=True):
            if not self.environment.is_renamed(inner):
                self.bind(inner, tensor, block)

    def bind(self, inner: tf.Tensor, tensor: tf.Tensor, block: Block) -> None:
        """Lets `inner`, a placeholder, stand for `tensor` as it is after `block`."""
        outer = self.environment.lookup(self.environment.resolve(tensor))
        if outer is not None:
            self.environment.bind(inner, outer.tensor)
            return
        slot = self._slots.get(self.environment.resolve(tensor).ref())
        index = slot.index if slot is not None else self.slot_for(tensor, block)
        self._slots[inner.ref()] = slot or Slot(index)

    def _sink_into_branches(self, block: Block, op: tf.Operation) -> None:
        """Lets heavy work that the condition does not need wait until it is known which branch needs it."""
        if any(self.effects.is_ordered(other) for other in block.ops):
            return
        kept = [slot_tensor for slot_tensor in block.writes.values()]
        spare = sink(self, block, op, kept)
        block.ops = [other for other in block.ops if other not in spare]
        for other in spare:
            for tensor in other.outputs:
                self._producer.pop(tensor.ref(), None)

    def _call(self, function: Function, block: Block, op: tf.Operation) -> Call:
        self._sites += 1
        site = self._sites
        if graphs.is_conditional(op):
            call = self._branch_call(block, op, site)
        else:
            call = self._plain_call(block, op, site)
        listed = call.mode != "one"
        for tensor in op.outputs:
            slot = Slot(function.new_slot(tensor.dtype, tensor.shape), listed)
            self._slots[tensor.ref()] = slot
            call.results.append(slot.index)
        return call

    def _plain_call(self, block: Block, op: tf.Operation, site: int) -> Call:
        mapped = list(op.get_attr("mapped"))
        call = Call([op.get_attr("callee")], [], [], site)
        if not mapped:
            call.args = [self.slot_for(t, block) for t in op.inputs]
            return call
        call.mode, call.mapped = "map", mapped
        call.reduce = op.get_attr("reduce").decode()
        rows = range_of(op, self.environment)
        if rows is None:
            call.args = [self.slot_for(t, block) for t in op.inputs]
            return call
        call.mode = "range"
        call.start, call.limit = self.slot_for(rows.start, block), self.slot_for(rows.limit, block)
        for i, tensor in enumerate(op.inputs):
            if i in rows.tables:
                table = rows.tables[i]
                call.tables.append(-1 if table is None else self.environment.number(table))
                call.args.append(-1)
            else:
                call.tables.append(-2)
                call.args.append(self.slot_for(tensor, block))
        return call

    def _branch_call(self, block: Block, op: tf.Operation, site: int) -> Call:
        """A conditional beside other calls: its branches become functions, so that siblings stay parallel."""
        call = Call([], [], [], site, selector=self.slot_for(op.inputs[0], block))
        branches = list(graphs.branch_graphs(op))
        passed: list[int] = []
        for i, tensor in enumerate(op.inputs[1:]):
            outer = self.environment.lookup(self.environment.resolve(tensor))
            if outer is None:
                passed.append(i)
                call.args.append(self.slot_for(tensor, block))
                continue
            for graph in branches:
                self.environment.bind(graph.inputs[i], outer.tensor)
        for graph in branches:
            function = Function(f"{self.functions[block.function].name}/{op.name}", len(self.functions), is_branch=True)
            self.functions.append(function)
            for i in passed:
                inner = graph.inputs[i]
                self._slots[inner.ref()] = Slot(function.new_slot(inner.dtype, inner.shape))
            function.num_args = len(passed)
            function.results = [function.new_slot(t.dtype, t.shape) for t in graph.outputs]
            leave = Exit(RETURN, [(slot, i) for i, slot in enumerate(function.results)])
            function.entry = self._lower_region(function, graph, graph.outputs, leave, after_calls=False)
            call.callees.append(function.index)
        return call

"""Cuts traced bodies into blocks at their calls.

stage(op) is the number of calls on the longest path of dependencies that leads to it. The operators of one stage are a
block; the calls of one stage are issued together. A conditional whose branches call is a call with a dynamic callee; where
it is alone in its stage it becomes a jump inside the frame instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion import _effects
from tf_ext.recursion._call_lowering import CallLowering
from tf_ext.recursion._custom_gradients import CustomGradients
from tf_ext.recursion._environment import Environment
from tf_ext.recursion._ir import JOIN, RETURN, Block, Exit, Function, Slot
from tf_ext.recursion._places import Places
from tf_ext.recursion._ranges import Ranges
from tf_ext.recursion._sinking import sink
from tf_ext.recursion._stages import HEAVY, Stages
from tf_ext.recursion._tracing import Body, Trace


class Lowering:
    """Functions and blocks of a traced recursion."""

    def __init__(self, trace: Trace, environment: Environment, effects: _effects.Effects) -> None:
        self.environment = environment
        self.effects = effects
        self.functions: list[Function] = []
        self.blocks: list[Block] = []
        self.places = Places(environment, self.functions)
        self.custom_gradients = CustomGradients(environment)
        all_graphs = _effects.all_graphs(trace.bodies)
        self.ranges = Ranges(all_graphs, environment, effects.is_split)
        self._inline_choices(all_graphs)
        self._calls = CallLowering(self)
        self._order: dict[tf.Operation, int] = {}  # of the program, dependencies first
        for body in trace.bodies:
            self.functions.append(Function(body.subgraph.name, len(self.functions), is_branch=False))
        for body, function in zip(trace.bodies, list(self.functions), strict=True):
            self._lower_body(body, function)
        self._drop_unreachable()
        for block in self.blocks:
            block.ops.sort(key=self._order.__getitem__)
        for block in self.blocks:
            # Blocks that compute what this one reads are told now to write it to slots.
            for tensor in [t for op in block.ops for t in self.operands(op)] + list(block.writes.values()):
                self.places.note_read(tensor, block)

    def operands(self, op: tf.Operation) -> list[tf.Tensor]:
        """What has to be computed before `op`, for its gradient too."""
        resolve = self.environment.resolve
        if graphs.is_conditional(op) and self.effects.is_choice(op):
            branches = graphs.branch_graphs(op)
            inner = [t for graph in branches for other in graph.get_operations() for t in self.operands(other)]
            inner += [resolve(t) for graph in branches for t in graph.outputs]
            return [resolve(op.inputs[0]), *(t for t in inner if not any(t.graph is graph for graph in branches))]
        captured = self.custom_gradients.captures(op)
        return self.ranges.operands(op) + [resolve(t) for t in captured]

    def _inline_choices(self, all_graphs: list[tf.Graph]) -> None:
        """Lets the operators of branches that are computed where their conditional stands read what is around it."""
        for graph in all_graphs:
            for op in graph.get_operations():
                if graphs.is_conditional(op) and self.effects.is_choice(op):
                    for branch in graphs.branch_graphs(op):
                        for inner, tensor in zip(branch.inputs, op.inputs[1:], strict=True):
                            self.rename(inner, tensor)

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

    def _lower_body(self, body: Body, function: Function) -> None:
        for tensor in body.arguments:
            self.places.hold(tensor, Slot(function.new_slot(tensor.dtype, tensor.shape)))
        function.num_args = len(body.arguments)
        outputs = body.graph.outputs
        specs = tf.nest.flatten(body.subgraph.output_signature)
        function.results = [function.new_slot(spec.dtype, spec.shape) for spec in specs]
        leave = Exit(RETURN, [(slot, i) for i, slot in enumerate(function.results)])
        function.entry = self.lower_region(function, body.graph, outputs, leave, after_calls=False)

    def lower_region(
        self, function: Function, graph: tf.Graph, outputs: Sequence[tf.Tensor], leave: Exit, after_calls: bool
    ) -> int:
        """Lowers one graph to blocks and returns the first of them."""
        stages = Stages(graph, outputs, self.places, self.effects, self.operands)
        for op in stages.order:
            self._order[op] = len(self._order)
        blocks = [self._new_block(function) for _ in range(stages.count)]
        for block, ops in zip(blocks, stages.ops, strict=True):
            block.ops = list(ops)
            for op in ops:
                self.places.produce(op, block)
        for stage, block in enumerate(blocks):
            continuation = after_calls or stage > 0
            block.rank = 3 if continuation else 0
            calls = stages.calls[stage]
            if stage == len(blocks) - 1:
                self._leave(block, outputs, leave)
                if not continuation and leave.next == RETURN:
                    block.rank = 1
            elif len(calls) == 1 and graphs.is_conditional(calls[0]):
                onward = self._exit_of_branches(block, calls[0], blocks[stage + 1 :], outputs, leave)
                leaves = onward.next != blocks[stage + 1].index
                later = [] if leaves else self._postpone(block, calls[0], blocks[stage + 1 :], stages, outputs)
                self._sink_into_branches(block, calls[0], later)
                self._switch(block, calls[0], onward, continuation)
                if leaves:
                    break
            else:
                block.next = blocks[stage + 1].index
                self._split_side(block, calls, blocks[stage + 1])
                for op in calls:
                    block.calls.append(self._calls.lower(function, block, op))
        return blocks[0].index

    def _new_block(self, function: Function) -> Block:
        block = Block(len(self.blocks), function.index)
        self.blocks.append(block)
        return block

    def _leave(self, block: Block, outputs: Sequence[tf.Tensor], leave: Exit) -> None:
        """Ends a region: its outputs go where the exit says."""
        block.next = leave.next
        block.moves += [(to, self.places.slot_for(outputs[i], block)) for to, i in leave.moves]
        block.moves += leave.fixed

    def _split_side(self, block: Block, calls: Sequence[tf.Operation], following: Block) -> None:
        """Moves what the calls do not need out of their way: heavy work to a side block, the rest to where it is read."""
        if any(self.effects.is_ordered(op) for op in block.ops):
            return
        operands = [t.op for call in calls for t in self.operands(call)]
        needed = graphs.ancestors(operands, lambda op: [t.op for t in self.operands(op)])
        spare = [op for op in block.ops if op not in needed]
        if not spare:
            return
        if any(op.type in HEAVY for op in spare):
            target = self._new_block(self.functions[block.function])
            target.rank, target.next = 2, JOIN
            block.side = target.index
        else:
            target = following
        self._move(spare, block, target)

    def _move(self, ops: list[tf.Operation], block: Block, to: Block) -> None:
        """Makes operators of `block` those of another block that follows it."""
        moved = set(ops)
        block.ops = [op for op in block.ops if op not in moved]
        to.ops = ops + to.ops
        for op in ops:
            self.places.produce(op, to)

    def _postpone(
        self,
        block: Block,
        conditional: tf.Operation,
        following: list[Block],
        stages: Stages,
        outputs: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """Moves what is read only after a conditional there; returns all tensors that are read there."""
        first = stages.count - len(following)
        later = [t for ops in (*stages.ops[first:], *stages.calls[first:]) for op in ops for t in self.operands(op)]
        later += [self.environment.resolve(t) for t in outputs]
        if any(self.effects.is_ordered(op) for op in block.ops):
            return later

        def closure(tensors: Sequence[tf.Tensor]) -> set[tf.Operation]:
            return graphs.ancestors([t.op for t in tensors], lambda op: [t.op for t in self.operands(op)])

        early = closure([self.environment.resolve(t) for t in (*conditional.inputs, *block.writes.values())])
        wanted = closure(later)
        self._move([op for op in block.ops if op in wanted and op not in early], block, following[0])
        return later

    def _switch(self, block: Block, op: tf.Operation, onward: Exit, after_calls: bool) -> None:
        """Makes a conditional that is alone in its stage a jump of the frame."""
        block.switch = self.places.slot_for(op.inputs[0], block)
        function = self.functions[block.function]
        for graph in graphs.branch_graphs(op):
            for inner, tensor in zip(graph.inputs, op.inputs[1:], strict=True):
                if not self.environment.is_renamed(inner) and self.ranges.slice_of(inner) is None:
                    self.rename(inner, tensor)
            block.targets.append(self.lower_region(function, graph, graph.outputs, onward, after_calls))

    def rename(self, inner: tf.Tensor, tensor: tf.Tensor) -> None:
        """Lets `inner`, a placeholder of a branch that runs inside its parent's frame, stand for `tensor` of that."""
        outer = self.environment.lookup(self.environment.resolve(tensor))
        if outer is not None:
            self.environment.bind(inner, outer.tensor)
        else:
            self.environment.rename(inner, tensor)

    def _sink_into_branches(self, block: Block, op: tf.Operation, later: Sequence[tf.Tensor]) -> None:
        """Lets heavy work that the condition does not need wait until it is known which branch needs it."""
        if any(self.effects.is_ordered(other) for other in block.ops):
            return
        spare = sink(self, block, op, later)
        block.ops = [other for other in block.ops if other not in spare]
        for other in spare:
            self.places.drop(other)

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
                self.places.hold(tensor, slot)
                moves.append((slot.index, i))
            return Exit(following[0].index, moves)
        moves, fixed = [], list(leave.fixed)
        for to, i in leave.moves:
            output = self.environment.resolve(outputs[i])
            if output.ref() in results:
                moves.append((to, results[output.ref()]))
            else:
                fixed.append((to, self.places.slot_for(output, block)))
        return Exit(leave.next, moves, fixed)

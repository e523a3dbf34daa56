"""Where the tensors of bodies are kept while a recursion runs: in the environment, in a slot of the frame, in a block."""

from __future__ import annotations

import tensorflow as tf

from tf_ext.recursion._environment import Environment
from tf_ext.recursion._ir import Block, Function, Outer, Slot


class Places:
    """Answers for all tensors of one trace while it is lowered and emitted."""

    def __init__(self, environment: Environment, functions: list[Function]) -> None:
        self.environment = environment
        self._functions = functions
        self._slots: dict[object, Slot] = {}  # the frame slot that holds a body's tensor
        self._producer: dict[object, Block] = {}  # the block that computes it

    def hold(self, tensor: tf.Tensor, slot: Slot) -> None:
        """Says that a slot holds a tensor."""
        self._slots[tensor.ref()] = slot

    def produce(self, op: tf.Operation, block: Block) -> None:
        """Says which block computes an operator."""
        self._producer.update((t.ref(), block) for t in op.outputs)

    def drop(self, op: tf.Operation) -> None:
        """Says that no block computes an operator any more."""
        for tensor in op.outputs:
            self._producer.pop(tensor.ref(), None)

    def is_at_hand(self, tensor: tf.Tensor) -> bool:
        """Whether nothing has to be computed before `tensor` (resolved) can be read."""
        return tensor.ref() in self._slots or self.environment.is_invariant(tensor)

    def slot_for(self, tensor: tf.Tensor, block: Block) -> int:
        """A slot that holds `tensor` once `block` has run, for use by calls, moves and switches."""
        tensor = self.environment.resolve(tensor)
        slot = self._slots.get(tensor.ref())
        if slot is not None and not slot.listed:
            return slot.index
        if slot is not None or self.environment.is_invariant(tensor) or self._producer.get(tensor.ref()) is None:
            # A map's result, a captured tensor or a constant: made a value of the frame by copying it here.
            index = self._functions[block.function].new_slot(tensor.dtype, tensor.shape)
            block.writes[index] = tensor
            return index
        return self._slot_of_produced(tensor)

    def _slot_of_produced(self, tensor: tf.Tensor) -> int:
        block = self._producer[tensor.ref()]
        index = self._functions[block.function].new_slot(tensor.dtype, tensor.shape)
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

"""What a recursion is lowered to: functions of blocks, with calls in between.

docs/design/recursion.md says what each field means to the runtime; `_encoding.py` writes it down.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

RETURN = -1
JOIN = -2


@dataclasses.dataclass(frozen=True)
class Outer:
    """A value of the caller's graph: the same for all calls of one run."""

    tensor: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Slot:
    """A value that a frame holds. `listed`: the result of a map, readable by graphs only."""

    index: int
    listed: bool = False


@dataclasses.dataclass(eq=False)
class Call:
    """Calls issued when a block has run; see the design page."""

    callees: list[int]
    args: list[int]
    results: list[int]
    site: int
    selector: int = -1
    mode: str = "one"
    mapped: list[bool] = dataclasses.field(default_factory=list)
    reduce: str = "stack"
    start: int = -1
    limit: int = -1
    tables: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Block:
    """Operators of a body that run together, and what follows them."""

    index: int
    function: int
    ops: list[tf.Operation] = dataclasses.field(default_factory=list)
    writes: dict[int, tf.Tensor] = dataclasses.field(default_factory=dict)  # slot -> the body's tensor
    moves: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    calls: list[Call] = dataclasses.field(default_factory=list)
    side: int = -1
    next: int = RETURN
    switch: int = -1
    targets: list[int] = dataclasses.field(default_factory=list)
    rank: int = 0


@dataclasses.dataclass(eq=False)
class Function:
    """A body, or the branch of a conditional that runs as a call of its own."""

    name: str
    index: int
    is_branch: bool
    num_args: int = 0
    entry: int = -1
    slot_types: list[tf.DType] = dataclasses.field(default_factory=list)
    slot_shapes: list[tf.TensorShape] = dataclasses.field(default_factory=list)
    results: list[int] = dataclasses.field(default_factory=list)

    def new_slot(self, dtype: tf.DType, shape: tf.TensorShape) -> int:
        """Adds a slot and returns its number."""
        self.slot_types.append(dtype)
        self.slot_shapes.append(shape)
        return len(self.slot_types) - 1


@dataclasses.dataclass
class Exit:
    """Where a region goes when it is done: a block, or RETURN, and the slots that its outputs are moved to.

    `moves` pairs a slot with the number of one of the region's outputs, `fixed` with another slot.
    """

    next: int
    moves: list[tuple[int, int]]
    fixed: list[tuple[int, int]] = dataclasses.field(default_factory=list)

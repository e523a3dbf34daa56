"""The level schedule that the hand-written batched peer precomputes on the host."""

import dataclasses

import numpy as np

from benchmarks.recursion.data import Forest, Ints


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A forest by depth: the roots are level 0, and level d + 1 holds the children of level d, in their order.

    So the rows of level d + 1 *are* the gathered children of level d, and no other gather is needed. All leaves are
    computed at once and put among the inner nodes of their level.

    Attributes:
        leaf_tokens: `[leaves]` in level order.
        inner_tokens: `[inner nodes]` in level order.
        leaves: For each level, how many leaves.
        inner: For each level, how many inner nodes.
        leaf_rows: For each level, the rows of its leaves.
        inner_rows: For each level, the rows of its inner nodes.
        parents: For each level, which inner node of the level *above* each row belongs to; empty for level 0.
    """

    leaf_tokens: Ints
    inner_tokens: Ints
    leaves: Ints
    inner: Ints
    leaf_rows: list[Ints]
    inner_rows: list[Ints]
    parents: list[Ints]

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.leaves)


def by_level(forest: Forest) -> Schedule:
    """Sorts a forest by depth."""
    arity = forest.arity
    level, above = forest.roots, np.zeros(0, np.int32)
    nodes: list[Ints] = []
    parents: list[Ints] = []
    while len(level):
        nodes.append(level)
        parents.append(above)
        inner = level[arity[level] > 0]
        above = np.repeat(np.arange(len(inner), dtype=np.int32), arity[inner])
        # Rows of `children` that belong to `inner`: each start, plus 0, 1, 2, ... within the parent.
        starts = np.cumsum(arity[inner]) - arity[inner]
        offsets = np.arange(len(above)) - starts[above]
        level = forest.children[forest.first[inner][above] + offsets]
    is_leaf = [arity[level] == 0 for level in nodes]

    def rows(masks: list[np.ndarray]) -> list[Ints]:
        return [np.flatnonzero(mask).astype(np.int32) for mask in masks]

    leaf_rows, inner_rows = rows(is_leaf), rows([~mask for mask in is_leaf])

    def tokens(chosen: list[Ints]) -> Ints:
        return np.concatenate([forest.tokens[n[r]] for n, r in zip(nodes, chosen, strict=True)]).astype(np.int32)

    return Schedule(
        tokens(leaf_rows),
        tokens(inner_rows),
        np.asarray([len(r) for r in leaf_rows], np.int32),
        np.asarray([len(r) for r in inner_rows], np.int32),
        leaf_rows,
        inner_rows,
        parents,
    )

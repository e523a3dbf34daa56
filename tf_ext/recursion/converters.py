"""Nested Python lists and arrays of parents to trees. Treebank lines are in `sexpr`, Python sources in `syntax`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_ext.recursion.forest import Array, Forest
from tf_ext.recursion.forest_builder import ForestBuilder, as_node_array, assemble, several
from tf_ext.recursion.vocabulary import Vocabulary, lookup


def from_nested(
    trees: Iterable[Any], *, vocabulary: Vocabulary | Mapping[str, int] | None = None, inner: Any = None
) -> Forest:
    """Trees from nested Python lists.

    A tree is one of

    - `[child, child, ...]`, a list: a node without a value of its own, which gets `inner`;
    - `(value, [child, ...])`, a tuple of two: a node with a value;
    - anything else: a leaf with that value. A feature vector is a numpy array, since a list would be a node.

    Example:
        >>> forest = from_nested([[[1, 2], 3], ("+", [1, 2])], vocabulary={"+": 9})
        >>> to_nested(forest)
        [(0, [(0, [1, 2]), 3]), (9, [1, 2])]

    Args:
        trees: the trees, so that `[[1, 2]]` is one tree of two leaves and `[1, 2]` is two trees of one node.
        vocabulary: what turns string values into integers.
        inner: the value of nodes written as lists; 0, or a vector of zeros, when left out.

    Returns:
        The forest; `source` is a node's place in pre-order.

    Raises:
        ValueError: for an empty list, a tuple that is not `(value, [child, ...])`, a string without a vocabulary, or
            values of different shapes.
    """
    builder = ForestBuilder()
    for tree in several(trees, "trees"):
        stack: list[tuple[Any, int]] = [(tree, -1)]
        while stack:
            node, parent = stack.pop()
            value, children = _split_node(node, f"tree {builder.num_trees}")
            if isinstance(value, str):
                value = _token(vocabulary, value, f"tree {builder.num_trees}")
            index = builder.add(value, parent)
            stack.extend((child, index) for child in reversed(children))
        builder.end_tree()
    builder.fill_values(inner)
    return builder.build()


def _split_node(node: Any, where: str) -> tuple[Any, list[Any]]:
    if isinstance(node, list):
        if node:
            return None, node
        raise ValueError(f"{where}: expected at least one child in a list, got []. Write a leaf as its value.")
    if isinstance(node, tuple):
        if len(node) == 2 and isinstance(node[1], list) and not isinstance(node[0], list | tuple):
            return node
        kinds = ", ".join(type(part).__name__ for part in node)
        raise ValueError(
            f"{where}: expected a tuple to be (value, [child, ...]), got ({kinds}). "
            "Write a node without a value as a list: [child, ...]."
        )
    if node is None:
        raise ValueError(f"{where}: expected a value, a list or a tuple (value, [child, ...]), got None.")
    return node, []


def _token(vocabulary: Vocabulary | Mapping[str, int] | None, token: str, where: str) -> int:
    if vocabulary is None:
        raise ValueError(
            f"{where}: expected numbers, since no vocabulary is given, got {token!r}. "
            "Pass vocabulary=tf_ext.recursion.Vocabulary()."
        )
    return lookup(vocabulary, token, where)


def to_nested(forest: Forest) -> list[Any]:
    """The trees as nested Python lists, which `from_nested` reads back.

    Example:
        >>> to_nested(from_nested([[1, 2], 3]))
        [(0, [1, 2]), 3]

    Args:
        forest: the trees; labels are left out.

    Returns:
        For each tree, a value for a leaf (a Python number or a numpy vector) and `(value, [child, ...])` for others.
    """
    values = forest.values.tolist() if forest.values.ndim == 1 else list(forest.values)
    nodes: list[Any] = []
    children = iter(forest.child_index.tolist())
    for value, arity in zip(values, forest.arity.tolist(), strict=True):
        nodes.append((value, [nodes[next(children)] for _ in range(arity)]) if arity else value)
    return [nodes[root] for root in forest.roots.tolist()]


def from_parents(
    parents: Sequence[npt.ArrayLike],
    values: Sequence[npt.ArrayLike] | None = None,
    *,
    labels: Sequence[npt.ArrayLike] | None = None,
) -> Forest:
    """Trees from the parent of each node.

    Example:
        >>> forest = from_parents([[-1, 0, 0], [1, -1]], [[10, 11, 12], [20, 21]])
        >>> to_nested(forest)
        [(10, [11, 12]), (21, [20])]
        >>> forest.source.tolist()  # the row of each node: results in the order of the rows are result[argsort(source)]
        [1, 2, 0, 0, 1]

    Args:
        parents: for each tree, int [nodes]: the row of each node's parent within the tree, -1 for the root. Rows may
            come in any order; siblings keep theirs.
        values: for each tree, [nodes, ...]; 0 for every node when left out.
        labels: for each tree, [nodes, ...], or None.

    Returns:
        The forest; `source` is a node's row.

    Raises:
        ValueError: if a tree has no root, several, a parent out of range or a cycle, or if lengths differ; it names the
            tree and the row.
    """
    arrays = [_checked_parents(np.asarray(tree), f"tree {i}") for i, tree in enumerate(several(parents, "parents"))]
    sizes = [len(tree) for tree in arrays]
    splits = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    joined = np.concatenate([*arrays, np.zeros(0, np.int64)])
    whole = np.where(joined < 0, -1, joined + np.repeat(splits[:-1], sizes))
    per_node = np.zeros(len(joined), np.int32) if values is None else _joined(values, sizes, "values")
    return assemble(whole, splits, per_node, None if labels is None else _joined(labels, sizes, "labels"))


def _checked_parents(parents: Array, where: str) -> npt.NDArray[np.int64]:
    if parents.ndim != 1 or not parents.size or parents.dtype.kind not in "iu":
        raise ValueError(
            f"{where}: expected a vector of at least one integer parent, got {parents.dtype} {list(parents.shape)}."
        )
    outside = np.flatnonzero((parents < -1) | (parents >= len(parents)))
    if outside.size:
        row = int(outside[0])
        raise ValueError(
            f"{where}: expected parents from -1 to {len(parents) - 1}, got parents[{row}] = {parents[row]}."
        )
    roots = np.flatnonzero(parents == -1)
    if roots.size > 1:
        raise ValueError(
            f"{where}: expected one root (parent -1), got {roots.size}, the first at rows {roots[0]} and {roots[1]}. "
            "Split it into several trees, or give the roots a common parent."
        )
    return parents.astype(np.int64)


def _joined(parts: Sequence[Any], sizes: list[int], what: str) -> Array:
    arrays = [as_node_array(part, f"tree {tree}: {what}") for tree, part in enumerate(several(parts, what))]
    if len(arrays) != len(sizes):
        raise ValueError(f"{what}: expected one array for each of {len(sizes)} trees, got {len(arrays)}.")
    for tree, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
        if array.ndim == 0 or len(array) != size:
            raise ValueError(f"tree {tree}: expected {what} for {size} nodes, got shape {list(array.shape)}.")
        if array.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                f"tree {tree}: expected {what} of shape {list(arrays[0].shape[1:])} a node, as tree 0 has, "
                f"got {list(array.shape[1:])}."
            )
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int32)

"""From parents, in whatever order a converter meets the nodes, to a `Forest` in level order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_ext.recursion.forest import Array, Forest
from tf_ext.recursion.ordering import IntArray, level_order


def assemble(parents: IntArray, node_splits: IntArray, values: Array, labels: Array | None = None) -> Forest:
    """A forest from the parent of each node, the nodes in any order.

    Example:
        >>> assemble(np.array([-1, 0, 0]), np.array([0, 3]), np.array([7, 8, 9])).values.tolist()
        [8, 9, 7]

    Args:
        parents: [num_nodes], the index of each node's parent among all nodes, -1 for the one root of each tree.
        node_splits: [num_trees + 1], where each tree starts.
        values: [num_nodes, ...].
        labels: [num_nodes, ...] or None.

    Returns:
        The forest; siblings stand in the order of their indices.

    Raises:
        ValueError: on a cycle.
    """
    order = level_order(parents, node_splits)
    tree_starts = np.repeat(node_splits[:-1], np.diff(node_splits))
    return Forest(
        arity=np.bincount(parents[parents >= 0], minlength=len(parents))[order],
        values=values[order],
        node_splits=node_splits,
        labels=None if labels is None else labels[order],
        source=(order - tree_starts).astype(np.int32),
    )


def several(given: Any, what: str) -> Iterable[Any]:
    """Passes on what can be walked through, to be used where Python's own complaint would not say what is wanted.

    Example:
        >>> several(3, "trees")
        Traceback (most recent call last):
        TypeError: trees: expected a list or another iterable, got int.

    Args:
        given: what a caller gave.
        what: its name, for the error.

    Returns:
        `given`.

    Raises:
        TypeError: if it cannot be walked through, or only character by character.
    """
    if isinstance(given, str | bytes | Mapping) or not (hasattr(given, "__iter__") or hasattr(given, "__getitem__")):
        raise TypeError(f"{what}: expected a list or another iterable, got {type(given).__name__}.")
    return given


def as_node_array(entries: Sequence[Any] | Array, what: str) -> Array:
    """One array of what the nodes carry: integers as int32, Python floats as float32, arrays of floats as they are.

    Example:
        >>> as_node_array([1, 2], "values").dtype
        dtype('int32')

    Args:
        entries: one per node, all of one shape.
        what: their name, for the error.

    Returns:
        [num_nodes, ...].

    Raises:
        ValueError: if shapes differ, an entry is no number, or an integer does not fit into 32 bits.
    """
    try:
        array = np.asarray(entries)
    except ValueError:
        shapes = sorted({np.shape(entry) for entry in entries}, key=str)
        raise ValueError(f"{what}: expected one shape for all nodes, got {shapes}.") from None
    if not array.size:
        return array.astype(np.float32 if array.dtype.kind == "f" and array.ndim > 1 else np.int32)
    if array.dtype.kind == "O" and all(isinstance(entry, int) for entry in entries):
        raise ValueError(f"{what}: expected integers of 32 bits, got {min(entries)} to {max(entries)}.")
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{what}: expected numbers, got {array.dtype}. "
            "Give tokens a vocabulary, e.g. tf_ext.recursion.Vocabulary()."
        )
    if array.dtype.kind in "iu":
        low, high = int(array.min()), int(array.max())
        if low < -(2**31) or high >= 2**31:
            raise ValueError(f"{what}: expected integers of 32 bits, got {low} to {high}.")
        return array.astype(np.int32)
    from_numpy = isinstance(entries, np.ndarray) or isinstance(entries[0], np.ndarray | np.generic)
    return array if from_numpy or array.dtype.kind != "f" else array.astype(np.float32)


class ForestBuilder:
    """Collects the nodes of trees one by one, each after its parent.

    Example:
        >>> builder = ForestBuilder()
        >>> root = builder.add(7)
        >>> _ = builder.add(8, root)
        >>> builder.end_tree()
        >>> builder.build().values.tolist()
        [8, 7]
    """

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._values: list[Any] = []
        self._labels: list[int] = []
        self._splits: list[int] = [0]

    @property
    def num_trees(self) -> int:
        """How many trees are complete."""
        return len(self._splits) - 1

    def add(self, value: Any, parent: int = -1, label: int | None = None) -> int:
        """Adds a node after its parent and its earlier siblings, and returns its index.

        Args:
            value: what the node carries.
            parent: the index of its parent, -1 for a root.
            label: its label; all nodes have one or none has.

        Returns:
            The index by which its children name it.
        """
        self._parents.append(parent)
        self._values.append(value)
        if label is not None:
            self._labels.append(label)
        return len(self._parents) - 1

    def set_value(self, index: int, value: Any) -> None:
        """Gives a node its value, where that comes after the node.

        Args:
            index: the node.
            value: what it carries.
        """
        self._values[index] = value

    def fill_values(self, filler: Any = None) -> None:
        """Gives a value to the nodes whose value is None.

        Args:
            filler: the value; 0, or a vector of zeros where other nodes have vectors, when left out.
        """
        if filler is None:
            example = next((value for value in self._values if value is not None), 0)
            filler = np.zeros_like(example) if isinstance(example, np.ndarray) else 0
        self._values = [filler if value is None else value for value in self._values]

    def end_tree(self) -> None:
        """What was added since the last call is one tree."""
        self._splits.append(len(self._parents))

    def build(self, *, labelled: bool = False) -> Forest:
        """The forest of all trees that were ended.

        Args:
            labelled: whether nodes have labels (no node tells, in a forest of no trees).

        Returns:
            The forest.
        """
        labels = as_node_array(self._labels, "labels") if labelled else None
        parents, splits = np.asarray(self._parents, np.int64), np.asarray(self._splits, np.int64)
        return assemble(parents, splits, as_node_array(self._values, "values"), labels)

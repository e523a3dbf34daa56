"""Trees on the host: numpy arrays that the converters make, and that turn into what tf.data and Keras can carry."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tf_ext.recursion.ordering import IntArray, node_depths

if TYPE_CHECKING:
    import tensorflow as tf

Array = npt.NDArray[Any]
_PER_NODE = ("arity", "values", "labels", "source")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Forest:
    """A number of trees, as a sequence: `len`, slices, lists of indices, iteration, `+`.

    The nodes of all trees stand one after the other; within a tree the deepest level comes first and the root last, and
    siblings stand together in their order. Children so come before their parents, and `arity` alone tells the
    structure: from the first node to the last, each node that is not a root is the next child of the next parent. The
    converters (`from_nested`, `from_sexpr`, `from_parents`, `from_ast`) bring nodes into this order; `source` tells
    where each was.

    `tensors` is what `tf.data` batches and Keras takes as `x`; in a model, `Trees.from_batched` makes one flat
    structure of a batch.

    Example:
        >>> from tf_ext.recursion.converters import from_nested
        >>> forest = from_nested([[3, [4, 5]], 6])
        >>> len(forest), forest.sizes.tolist(), forest.arity.tolist(), forest.values.tolist()
        (2, [5, 1], [0, 0, 0, 2, 2, 0], [4, 5, 3, 0, 0, 6])
        >>> forest[1].values.tolist()
        [6]

    Args:
        arity: int [num_nodes], how many children each node has.
        values: [num_nodes, ...], token integers or feature vectors.
        node_splits: int [num_trees + 1], where each tree starts; the last entry is the number of nodes.
        labels: [num_nodes, ...], a target for each node, or None.
        source: int [num_nodes], the place of each node within the tree that the converter was given: its row in
            `from_parents`, its place in pre-order for the others. As the nodes stand here when left out.

    Raises:
        ValueError: if the arrays do not describe trees of at least one node each; it names the tree.
    """

    arity: IntArray
    values: Array
    node_splits: IntArray
    labels: Array | None = None
    source: IntArray = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        for name, dtype in (("arity", np.int32), ("node_splits", np.int64)):
            array = np.asarray(getattr(self, name))
            if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
                raise ValueError(f"{name}: expected a vector of integers, got {array.dtype} {list(array.shape)}.")
            object.__setattr__(self, name, array.astype(dtype, copy=False))
        _check_structure(self.arity, self.node_splits)
        here = np.arange(self.num_nodes) - np.repeat(self.node_splits[:-1], self.sizes)
        object.__setattr__(self, "source", np.asarray(here if self.source is None else self.source, np.int32))
        for name in ("values", "labels", "source"):
            array = getattr(self, name)
            if array is not None and (np.ndim(array) == 0 or len(array) != self.num_nodes):
                raise ValueError(
                    f"{name}: expected one entry for each of {self.num_nodes} nodes, got {np.shape(array)}."
                )

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all trees."""
        return len(self.arity)

    @property
    def sizes(self) -> IntArray:
        """[num_trees], the number of nodes of each tree."""
        return np.diff(self.node_splits)

    @property
    def roots(self) -> IntArray:
        """[num_trees], the index of each tree's root."""
        return self.node_splits[1:] - 1

    @property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        """[num_nodes], whether a node has no children."""
        leaves: npt.NDArray[np.bool_] = self.arity == 0
        return leaves

    @property
    def child_index(self) -> npt.NDArray[np.int64]:
        """[num_nodes - num_trees], the children of the first node, then of the second, and so on."""
        return np.delete(np.arange(self.num_nodes), self.roots)

    @property
    def row_splits(self) -> npt.NDArray[np.int64]:
        """[num_nodes + 1], node `i` has the children `child_index[row_splits[i]:row_splits[i + 1]]`."""
        return np.concatenate([[0], np.cumsum(self.arity, dtype=np.int64)])

    @property
    def parents(self) -> npt.NDArray[np.int64]:
        """[num_nodes], the index of each node's parent, -1 for roots."""
        parents = np.full(self.num_nodes, -1)
        parents[self.child_index] = np.repeat(np.arange(self.num_nodes), self.arity)
        return parents

    @property
    def depth(self) -> npt.NDArray[np.int64]:
        """[num_nodes], the number of edges between each node and its root."""
        return node_depths(self.parents, self.node_splits)

    @property
    def root_labels(self) -> Array:
        """[num_trees, ...], the label of each tree's root."""
        return self.required_labels[self.roots]

    def __len__(self) -> int:
        return len(self.node_splits) - 1

    def __getitem__(self, index: int | slice | Sequence[int] | Array) -> Forest:
        chosen = np.atleast_1d(np.arange(len(self))[index])
        sizes = self.sizes[chosen]
        splits = np.concatenate([[0], np.cumsum(sizes)])
        nodes = np.arange(splits[-1]) + np.repeat(self.node_splits[chosen] - splits[:-1], sizes)
        return self._with(lambda array: array[nodes], splits)

    def __iter__(self) -> Iterator[Forest]:
        return (self[i] for i in range(len(self)))

    def __add__(self, other: Forest) -> Forest:
        return concatenate([self, other])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Forest):
            return NotImplemented
        names = [field.name for field in dataclasses.fields(self)]
        pairs = [(getattr(self, name), getattr(other, name)) for name in names]
        return all((a is None) == (b is None) and (a is None or np.array_equal(a, b)) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        labels = "" if self.labels is None else f", labels {self.labels.dtype}{list(self.labels.shape[1:])}"
        values = f"values {self.values.dtype}{list(self.values.shape[1:])}"
        return f"Forest({len(self)} trees, {self.num_nodes} nodes, {values}{labels})"

    @property
    def tensors(self) -> dict[str, tf.RaggedTensor]:
        """`{"arity", "values"}`, each a `tf.RaggedTensor` [num_trees, None, ...]: for tf.data, and as `x`."""
        return {"arity": self._ragged(self.arity), "values": self._ragged(self.values)}

    @property
    def node_labels(self) -> tf.RaggedTensor:
        """The labels as a `tf.RaggedTensor` [num_trees, None, ...]: `y` of a model with an output for every node."""
        return self._ragged(self.required_labels)

    @property
    def spec(self) -> dict[str, tf.RaggedTensorSpec]:
        """The type of a batch of any number of such trees, for the `input_signature` of a `tf.function`."""
        import tensorflow as tf

        shape = [None, None, *self.values.shape[1:]]
        return {
            "arity": tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1),
            "values": tf.RaggedTensorSpec(shape, self.values.dtype, ragged_rank=1),
        }

    def padded(self, max_nodes: int | None = None) -> dict[str, Array]:
        """The trees as dense arrays, for what does not know ragged tensors (`tf.distribute`, a served model).

        Example:
            >>> from tf_ext.recursion.converters import from_nested
            >>> from_nested([[3, 4], 6]).padded()["arity"].tolist()
            [[0, 0, 2], [0, -1, -1]]

        Args:
            max_nodes: how many nodes a row has room for; those of the largest tree when left out.

        Returns:
            `{"arity": int32 [num_trees, max_nodes], "values": [num_trees, max_nodes, ...]}`; where there is no node the
            arity is -1 and the value 0.

        Raises:
            ValueError: if a tree has more nodes than `max_nodes`.
        """
        largest = int(self.sizes.max(initial=0))
        width = largest if max_nodes is None else max_nodes
        if largest > width:
            tree = int(self.sizes.argmax())
            raise ValueError(f"max_nodes: expected at least {largest}, the nodes of tree {tree}, got {width}.")
        there = np.arange(width) < self.sizes[:, None]
        arity = np.full(there.shape, -1, np.int32)
        values = np.zeros((*there.shape, *self.values.shape[1:]), self.values.dtype)
        arity[there], values[there] = self.arity, self.values
        return {"arity": arity, "values": values}

    def dataset(self, y: Any = None, *, dense: Mapping[str, Any] | None = None) -> tf.data.Dataset:
        """One element a tree, ready for `.shuffle(n).batch(25).prefetch(1)` and `model.fit`.

        Example::

            forest.dataset(forest.root_labels).shuffle(1000).batch(25).prefetch(1)   # a target for each tree
            forest.dataset(forest.node_labels).batch(25).map(pad_targets)            # a target for each node

        Args:
            y: [num_trees, ...], the targets, or None for `predict`.
            dense: more inputs by name, each [num_trees, ...]; the trees then come under the name `trees`.

        Returns:
            A dataset of `x`, or `(x, y)`; `x` is `tensors`, or `{"trees": tensors, **dense}`.

        Raises:
            ValueError: if one of `dense` is named `trees`.
        """
        import tensorflow as tf

        if dense is not None and "trees" in dense:
            raise ValueError(f"dense: expected names other than 'trees', which the trees have, got {sorted(dense)}.")
        x = self.tensors if dense is None else {"trees": self.tensors, **dense}
        return tf.data.Dataset.from_tensor_slices(x if y is None else (x, y))

    def _ragged(self, array: Array) -> tf.RaggedTensor:
        import tensorflow as tf

        return tf.RaggedTensor.from_row_splits(array, self.node_splits, validate=False)

    @property
    def required_labels(self) -> Array:
        """`labels`, or an error where there are none."""
        if self.labels is None:
            raise ValueError("expected trees with labels, got none. from_sexpr reads them; from_parents takes them.")
        return self.labels

    def _with(self, change: Any, node_splits: IntArray) -> Forest:
        """The same kind of forest with every per-node array changed alike."""
        arrays = {name: getattr(self, name) for name in _PER_NODE}
        changed: dict[str, Any] = {name: None if a is None else change(a) for name, a in arrays.items()}
        return Forest(node_splits=node_splits, **changed)


def concatenate(forests: Sequence[Forest]) -> Forest:
    """One forest of the trees of several.

    Example:
        >>> from tf_ext.recursion.converters import from_nested
        >>> concatenate([from_nested([1]), from_nested([[2, 3]])])
        Forest(2 trees, 4 nodes, values int32[])

    Args:
        forests: at least one; all with labels or all without.

    Returns:
        The trees in the order given.

    Raises:
        ValueError: if there is no forest, or only some have labels.
    """
    if not forests or len({forest.labels is None for forest in forests}) > 1:
        raise ValueError(f"expected at least one forest, all with labels or all without, got {list(forests)}.")
    splits = np.concatenate([[0], np.cumsum(np.concatenate([forest.sizes for forest in forests]))])
    arrays: dict[str, Any] = {
        name: None if getattr(forests[0], name) is None else np.concatenate([getattr(f, name) for f in forests])
        for name in _PER_NODE
    }
    return Forest(node_splits=splits, **arrays)


def _check_structure(arity: IntArray, node_splits: IntArray) -> None:
    if not len(node_splits) or node_splits[0] != 0 or node_splits[-1] != len(arity):
        raise ValueError(
            f"node_splits: expected to run from 0 to {len(arity)}, the number of nodes, got {node_splits}."
        )
    sizes = np.diff(node_splits)
    _refuse(sizes < 1, lambda tree: f"expected at least one node, got {sizes[tree]}. Leave empty trees out.")
    trees = np.repeat(np.arange(len(sizes)), sizes)
    negative = np.bincount(trees, arity < 0, len(sizes)) > 0
    _refuse(negative, lambda tree: "expected arities of 0 or more, got a negative one.")
    children = np.bincount(trees, arity, len(sizes)).astype(np.int64)
    _refuse(
        children != sizes - 1,
        lambda tree: f"expected arities that sum to {sizes[tree] - 1}, the nodes but the root, got {children[tree]}.",
    )
    last_child = np.cumsum(arity) + trees - 1
    early = np.bincount(trees, (arity > 0) & (last_child >= np.arange(len(arity))), len(sizes)) > 0
    _refuse(early, lambda tree: "expected children before their parents, got a parent first. Use from_parents.")


def _refuse(bad: npt.NDArray[np.bool_], say: Any) -> None:
    if bad.any():
        tree = int(bad.argmax())
        raise ValueError(f"tree {tree}: {say(tree)}")

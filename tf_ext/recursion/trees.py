"""A batch of trees inside a model: one flat structure of tensors, made of what tf.data batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf


class Trees(NamedTuple):
    """The nodes of a batch of trees, one after the other, children before their parents.

    A tuple of plain tensors, so that `tf.function`, `tf.while_loop` and Keras carry it as they carry any nest.

    Between the host and the model, trees travel as the dict `Forest.tensors` (ragged) or `Forest.padded()` (dense),
    which `from_batched` understands. They do not travel as a `tf.experimental.ExtensionType`, since Keras' `fit`
    refuses those.

    Example:
        >>> from tf_ext.recursion.converters import from_nested
        >>> batch = from_nested([[[1, 2], 3], 4]).tensors
        >>> trees = Trees.from_batched(batch)
        >>> trees.child_index.numpy().tolist(), trees.row_splits.numpy().tolist(), trees.roots.numpy().tolist()
        ([0, 1, 2, 3], [0, 0, 0, 2, 2, 4, 4], [4, 5])

    Attributes:
        values: [num_nodes, ...], token integers or feature vectors.
        child_index: int32 [num_nodes - num_trees], the children of the first node, then of the second, and so on. As
            `from_batched` makes it, siblings are neighbours and the indices rise throughout.
        row_splits: int32 [num_nodes + 1], node `i` has the children `child_index[row_splits[i]:row_splits[i + 1]]`.
        roots: int32 [num_trees], the index of each tree's root.
        node_splits: int32 [num_trees + 1], tree `t` has the nodes from `node_splits[t]` to `node_splits[t + 1] - 1`.
    """

    values: tf.Tensor
    child_index: tf.Tensor
    row_splits: tf.Tensor
    roots: tf.Tensor
    node_splits: tf.Tensor

    @classmethod
    def from_batched(cls, batch: Mapping[str, Any]) -> Trees:
        """The flat structure of a batch.

        Args:
            batch: `{"arity", "values"}`, where both are ragged [num_trees, None, ...] (elements of `Forest.dataset`
                after `batch`, or vectors after `ragged_batch`), or both dense [num_trees, max_nodes, ...] with an arity
                of -1 where there is no node (`Forest.padded`, or vectors after `padded_batch` with
                `padding_values={"arity": -1, "values": 0}`). No trees at all is a batch as well.

        Returns:
            The trees, in the order of the batch.

        Raises:
            ValueError: if the batch has other parts, ranks or types.
            tf.errors.InvalidArgumentError: when run, if the arities of a row describe no tree.
        """
        arity, values, sizes, agree = _flat_parts(batch)
        node_splits = _with_zero(tf.cumsum(sizes))
        row_splits = _with_zero(tf.cumsum(arity))
        with tf.control_dependencies(_checks(arity, sizes, row_splits, node_splits, agree)):
            # All nodes but the roots, in turn: the k-th has as many roots before it as there are trees before it.
            trees = tf.range(tf.size(sizes))
            child_index = tf.range(tf.reduce_sum(sizes - 1)) + tf.repeat(trees, sizes - 1)
            return cls(tf.identity(values), child_index, tf.identity(row_splits), node_splits[1:] - 1, node_splits)

    @staticmethod
    def inputs(value_shape: tuple[int, ...] = (), dtype: str = "int32", name: str | None = None) -> dict[str, Any]:
        """The inputs of a functional Keras model that takes trees.

        Example::

            inputs = {"trees": Trees.inputs(), "dense": keras.Input((8,))}
            outputs = keras.layers.Dense(1)(keras.layers.Concatenate()([tree_layer(inputs["trees"]), inputs["dense"]]))
            model = keras.Model(inputs, outputs)
            model.fit(forest.dataset(y, dense={"dense": features}).batch(25))

        Args:
            value_shape: the shape of one node's value.
            dtype: the type of the values.
            name: what the names of the inputs start with; to be given where a model has several such inputs.

        Returns:
            `{"arity", "values"}`; a model made of them takes ragged and padded batches.
        """
        import keras

        # Keras warns of inputs whose names are not their keys in the dict.
        start = "" if name is None else f"{name}_"
        return {
            "arity": keras.Input((None,), dtype="int32", name=f"{start}arity"),
            "values": keras.Input((None, *value_shape), dtype=dtype, name=f"{start}values"),
        }

    @property
    def num_nodes(self) -> tf.Tensor:
        """int32 scalar, the number of nodes of all trees."""
        return tf.size(self.row_splits) - 1

    @property
    def num_trees(self) -> tf.Tensor:
        """int32 scalar, the number of trees."""
        return tf.size(self.roots)

    @property
    def sizes(self) -> tf.Tensor:
        """int32 [num_trees], the number of nodes of each tree."""
        return self.node_splits[1:] - self.node_splits[:-1]

    @property
    def arity(self) -> tf.Tensor:
        """int32 [num_nodes], how many children each node has."""
        return self.row_splits[1:] - self.row_splits[:-1]

    @property
    def is_leaf(self) -> tf.Tensor:
        """Boolean [num_nodes], whether a node has no children."""
        return tf.equal(self.arity, 0)

    @property
    def tree_index(self) -> tf.Tensor:
        """int32 [num_nodes], the tree that each node belongs to."""
        return tf.repeat(tf.range(self.num_trees), self.sizes)

    @property
    def parents(self) -> tf.Tensor:
        """int32 [num_nodes], the index of each node's parent, -1 for roots."""
        parent = tf.repeat(tf.range(self.num_nodes), self.arity)
        return tf.tensor_scatter_nd_update(tf.fill([self.num_nodes], -1), self.child_index[:, None], parent)

    @property
    def depth(self) -> tf.Tensor:
        """int32 [num_nodes], the number of edges between each node and its root, in log2(depth) steps."""
        parents = self.parents
        is_root = parents < 0
        ancestor = tf.where(is_root, tf.range(self.num_nodes), parents)
        depth, _ = tf.while_loop(
            lambda _, ancestor: tf.logical_not(tf.reduce_all(tf.gather(is_root, ancestor))),
            lambda depth, ancestor: (depth + tf.gather(depth, ancestor), tf.gather(ancestor, ancestor)),
            (tf.cast(tf.logical_not(is_root), tf.int32), ancestor),
        )
        return depth

    def child(self, k: int | tf.Tensor) -> tf.Tensor:
        """int32 [num_nodes], the index of each node's child number `k` (from 0), -1 where there is none."""
        there = self.arity > k
        # One more entry, so that a batch without any child has something to gather from.
        candidates = tf.concat([self.child_index, [-1]], 0)
        return tf.where(there, tf.gather(candidates, tf.where(there, self.row_splits[:-1] + k, 0)), -1)

    @property
    def left(self) -> tf.Tensor:
        """int32 [num_nodes], the first child of each node, -1 where there is none."""
        return self.child(0)

    @property
    def right(self) -> tf.Tensor:
        """int32 [num_nodes], the second child of each node, -1 where there is none."""
        return self.child(1)

    @property
    def mask(self) -> tf.Tensor:
        """Boolean [num_trees, largest tree], where a padded array has a node."""
        return tf.sequence_mask(self.sizes)

    def pad(self, per_node: tf.Tensor, width: int | None = None) -> tf.Tensor:
        """[num_nodes, ...] to [num_trees, width, ...], with zeros after the last node of each tree.

        Args:
            per_node: what to pad.
            width: room for how many nodes; those of the largest tree of the batch when left out. Larger trees are cut.

        Returns:
            The padded tensor.
        """
        return _padded(self.ragged(per_node), width)

    def ragged(self, per_node: tf.Tensor) -> tf.RaggedTensor:
        """[num_nodes, ...] to a ragged [num_trees, None, ...]."""
        return tf.RaggedTensor.from_row_splits(per_node, tf.cast(self.node_splits, tf.int64), validate=False)

    def unpad(self, padded: tf.Tensor) -> tf.Tensor:
        """[num_trees, largest tree, ...], nodes in the order of the trees, to [num_nodes, ...]."""
        return tf.boolean_mask(padded, self.mask)


def flat_targets(
    x: Any, y: tf.RaggedTensor, sample_weight: tf.Tensor | None = None
) -> tuple[Any, tf.Tensor, tf.Tensor]:
    """Targets for a model that gives [num_nodes, ...], an output for every node: for `Dataset.map` after `batch`.

    Losses and metrics are means over nodes, and `predict` gives the nodes of all trees one after the other.

    Example:
        >>> _, y, weights = flat_targets(None, tf.ragged.constant([[3, -1, 2], [1]]))
        >>> y.numpy().tolist(), weights.numpy().tolist()
        ([3, 0, 2, 1], [1.0, 0.0, 1.0, 1.0])

    Args:
        x: passed on.
        y: ragged [num_trees, None, ...], as `Forest.node_labels` comes out of `batch`; a negative integer stands for a
            node without a target.
        sample_weight: [num_trees], a weight for each tree.

    Returns:
        `x`; the targets [num_nodes, ...], 0 where there was none; float32 weights [num_nodes], 0 where there was none.

    Raises:
        ValueError: if `y` is not ragged.
    """
    if not isinstance(y, tf.RaggedTensor):
        raise ValueError(f"targets: expected a ragged one for each node (Forest.node_labels after batch), got {y!r}.")
    targets = y.flat_values
    weights = tf.ones(tf.shape(targets)[:1], tf.float32)
    if targets.dtype.is_integer:
        given = tf.reduce_all(targets >= 0, axis=list(range(1, targets.shape.rank)))
        weights, targets = tf.cast(given, tf.float32), tf.maximum(targets, 0)
    if sample_weight is not None:
        weights *= tf.repeat(tf.cast(sample_weight, tf.float32), y.row_lengths())
    return x, targets, weights


def pad_targets(
    x: Any, y: tf.RaggedTensor, sample_weight: tf.Tensor | None = None, *, width: int | None = None
) -> tuple[Any, tf.Tensor, tf.Tensor]:
    """Targets for a model that gives [num_trees, width, ...], as `Trees.pad` does: for `Dataset.map` after `batch`.

    Keras' metrics take the mean over a row before the one over rows, so that with a width that differs from batch to
    batch they weigh nodes differently: give a fixed `width`, here and to `Trees.pad`, or use `flat_targets`.

    Example:
        >>> _, y, weights = pad_targets(None, tf.ragged.constant([[3, -1, 2], [1]]))
        >>> y.numpy().tolist(), weights.numpy().tolist()
        ([[3, 0, 2], [1, 0, 0]], [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])

    Args:
        x: passed on.
        y: as in `flat_targets`.
        sample_weight: [num_trees], a weight for each tree.
        width: as in `Trees.pad`.

    Returns:
        `x`; the targets, dense [num_trees, width, ...]; float32 weights [num_trees, width]; both 0 in the gaps.

    Raises:
        ValueError: if `y` is not ragged.
    """
    x, targets, weights = flat_targets(x, y, sample_weight)
    return x, _padded(y.with_flat_values(targets), width), _padded(y.with_flat_values(weights), width)


def _padded(ragged: tf.RaggedTensor, width: int | None) -> tf.Tensor:
    return ragged.to_tensor(shape=[None, width, *ragged.flat_values.shape[1:]])


def _flat_parts(batch: Mapping[str, Any]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The arity and value of each node, the nodes of each tree, and whether there are as many values as arities."""
    if not isinstance(batch, Mapping) or not {"arity", "values"} <= set(batch):
        came = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
        raise ValueError(f"trees: expected a dict with 'arity' and 'values', as Forest.tensors, got {came}.")
    arity, values = batch["arity"], batch["values"]
    ragged = isinstance(arity, tf.RaggedTensor)
    if ragged != isinstance(values, tf.RaggedTensor):
        raise ValueError(
            f"trees: expected arity and values to be both ragged or both dense, got {type(arity).__name__} and "
            f"{type(values).__name__}."
        )
    if not ragged:
        arity, values = tf.convert_to_tensor(arity), tf.convert_to_tensor(values)
    if arity.shape.rank != 2 or not _is_number(arity.dtype) or (ragged and values.ragged_rank != 1):
        raise ValueError(
            "trees: expected an arity of whole numbers [num_trees, nodes] and values that are ragged over the nodes "
            f"only, got {arity.dtype.name} {arity.shape} and {values.dtype.name} {values.shape}. After Dataset.batch a "
            "batch has the dimension of trees; a single tree is a batch of one."
        )
    # Keras builds a model under tf.distribute with the mean of the replicas' batches, which is a float: whole numbers
    # will do, whatever their type.
    counts = tf.cast(arity, tf.int32)
    agree = tf.constant(True)
    if arity.dtype.is_floating:
        agree = tf.reduce_all(tf.equal(tf.cast(counts, arity.dtype), arity))
    if ragged:
        sizes = tf.cast(arity.row_lengths(), tf.int32)
        agree &= tf.reduce_all(tf.equal(sizes, tf.cast(values.row_lengths(), tf.int32)))
        return counts.flat_values, values.flat_values, sizes, agree
    there = counts >= 0
    sizes = tf.reduce_sum(tf.cast(there, tf.int32), 1)
    # boolean_mask compares the shapes itself.
    return tf.boolean_mask(counts, there), tf.boolean_mask(values, there), sizes, agree


def _is_number(dtype: tf.DType) -> bool:
    return bool(dtype.is_integer or dtype.is_floating)


def _with_zero(sums: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], sums], 0)


def _checks(
    arity: tf.Tensor, sizes: tf.Tensor, row_splits: tf.Tensor, node_splits: tf.Tensor, agree: tf.Tensor
) -> list[tf.Operation]:
    """Refuses what would make an operator read outside the batch or mix two trees."""
    num_nodes = tf.size(arity)
    counts = agree & tf.reduce_all(sizes > 0) & tf.reduce_all((arity >= 0) & (arity < num_nodes))
    children = tf.gather(row_splits, node_splits[1:]) - tf.gather(row_splits, node_splits[:-1])
    trees_before = tf.repeat(tf.range(tf.size(sizes)), sizes)
    last_child = row_splits[1:] - 1 + trees_before
    in_order = tf.reduce_all((last_child < tf.range(num_nodes)) | tf.equal(arity, 0))
    message = (
        "trees: expected each row of 'arity' to be a tree of at least one node in level order, deepest level first, "
        "with one value a node; got other arities or numbers of values. Make batches of Forest.tensors or "
        "Forest.padded(). Nodes of each tree, and arities: "
    )
    check = tf.debugging.Assert(
        counts & tf.reduce_all(tf.equal(children, sizes - 1)) & in_order, [message, sizes, arity]
    )
    return [] if check is None else [check]

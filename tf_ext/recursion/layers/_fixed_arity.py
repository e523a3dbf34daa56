"""Nodes with a fixed number of places for children, some of which may be empty."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tf_ext.recursion.trees import Trees


class Places:
    """The children of every node by place.

    An empty place is filled by a node that is none, number `num_nodes`: so a node with any child calls all its places
    alike, which batches best, and trees whose nodes have all children or none never make such a call.

    Args:
        layer: its name, for the message.
        trees: the batch.
        arity: the number of places.
    """

    def __init__(self, layer: str, trees: Trees, arity: int) -> None:
        most = tf.reduce_max(tf.concat([trees.arity, [0]], 0))
        message = (
            f"{layer}: expected nodes of at most {arity} children; set arity to the most there are, or use a layer "
            "that takes any number. The most are:"
        )
        fits = tf.debugging.Assert(most <= arity, [message, most])
        with tf.control_dependencies([] if fits is None else [fits]):
            places = tf.stack([trees.child(k) for k in range(arity)], 1)
        self._arity = arity
        self._children = tf.where(places < 0, trees.num_nodes, places)
        kinds = tf.cast(trees.is_leaf, tf.int32)
        self._kinds = tf.concat([kinds, [2]], 0)

    def of(self, node: tf.Tensor) -> list[tf.Tensor]:
        """The nodes at the places of a node."""
        return tf.unstack(self._children[node], self._arity)

    def switch(
        self,
        node: tf.Tensor,
        inner: Callable[[], tuple[tf.Tensor, ...]],
        leaf: Callable[[], tuple[tf.Tensor, ...]],
        none: Callable[[], tuple[tf.Tensor, ...]],
    ) -> tuple[tf.Tensor, ...]:
        """What `inner` gives for a node with children, `leaf` for one without, `none` for an empty place."""
        return tuple(tf.switch_case(self._kinds[node], [inner, leaf, none]))

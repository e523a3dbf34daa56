"""Recursive networks without memory: TreeRNN, and the tensor network RNTN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_ext.recursion.layers import _inputs
from tf_ext.recursion.layers._base import Recursion, TreeLayer, product
from tf_ext.recursion.layers._fixed_arity import Places
from tf_ext.recursion.subgraph import SubGraph
from tf_ext.recursion.trees import Trees

_NODE = tf.TensorSpec([], tf.int32)


@keras.saving.register_keras_serializable("tf_ext")
class TreeRNN(TreeLayer):
    """The plain recursive network (Goller and Kuechler 1996; Socher et al. 2011; Jeong et al. 2018, section 6).

    With x the features of a node and [h_1; ..; h_N] its children's outputs side by side, zeros where there is none:

        h = activation(x @ kernel + [h_1; ..; h_N] @ recurrent_kernel + bias)

    With `arity=None` the sum of the children's outputs is in the place of [h_1; ..; h_N], for any number of children.

    Example::

        layer = layers.TreeRNN(64, embedding=keras.layers.Embedding(10_000, 64, mask_zero=True))
        h = layer(forest[:25].tensors)  # [25, 64]

    Args:
        units: see `TreeLayer`, also for all arguments that are not named here.
        arity: N, or None. A node of more than N children is an error when the layer runs.
        **kwargs: see `TreeLayer`.

    Raises:
        ValueError: see `TreeLayer`.
    """

    def __init__(self, units: int, arity: int | None = 2, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.arity = None if arity is None else _inputs.positive(self.name, "arity", arity)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a layer again."""
        return super().get_config() | {"arity": self.arity}

    def _build_recurrent(self) -> None:
        shape = ((self.arity or 1) * self.units, self.units)
        self.recurrent_kernel = self._add("recurrent_kernel", "recurrent", shape)

    def _recursion(self, trees: Trees, rows: tf.Tensor, kept: tf.Tensor | None) -> Recursion:
        kernel = tf.convert_to_tensor(self.recurrent_kernel)
        if self.arity is not None:
            return self._by_place(trees, rows, kept, self.arity, lambda below: product(below, kernel))
        children = tf.RaggedTensor.from_row_splits(trees.child_index, trees.row_splits, validate=False)
        has_children = tf.logical_not(trees.is_leaf)
        tree = self._declare(rows.dtype, kept)

        def body(node: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def inner() -> tf.Tensor:
                below = tree.map(children[node], reduce="sum")
                return self.activation(rows[node] + product(below[-1], kernel))

            h = tf.cond(has_children[node], inner, lambda: self.activation(rows[node]))
            return self._result(node, h, kept)

        tree.define(body, autograph=False)
        return Recursion(tree)

    def _by_place(
        self,
        trees: Trees,
        rows: tf.Tensor,
        kept: tf.Tensor | None,
        arity: int,
        compose: Callable[[tf.Tensor], tf.Tensor],
    ) -> Recursion:
        """The recursion in which `compose` turns all children's outputs, side by side, into a vector of `units`."""
        places = Places(self.name, trees, arity)
        tree = self._declare(rows.dtype, kept)

        def body(node: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def inner() -> tuple[tf.Tensor, ...]:
                below = tf.concat([tree(child)[-1] for child in places.of(node)], 0)
                return self._result(node, self.activation(rows[node] + compose(below)), kept)

            def leaf() -> tuple[tf.Tensor, ...]:
                return self._result(node, self.activation(rows[node]), kept)

            def none() -> tuple[tf.Tensor, ...]:
                return (tf.zeros([self.units], rows.dtype),) * len(tree.output_signature)

            return places.switch(node, inner, leaf, none)

        tree.define(body, autograph=False)
        return Recursion(tree)

    def _declare(self, dtype: tf.DType, kept: tf.Tensor | None) -> SubGraph:
        """A SubGraph that returns a node's output and, where it differs, what of it goes to the parent."""
        state = tf.TensorSpec([self.units], dtype)
        return SubGraph(self.name, [_NODE], (state,) if kept is None else (state, state))

    @staticmethod
    def _result(node: tf.Tensor, h: tf.Tensor, kept: tf.Tensor | None) -> tuple[tf.Tensor, ...]:
        return (h,) if kept is None else (h, h * kept[node])


@keras.saving.register_keras_serializable("tf_ext")
class RNTN(TreeRNN):
    """The recursive neural tensor network for binary trees (Socher et al. 2013, section 4.3).

    With x the features of a node and b = [h_1; h_2] its children's outputs side by side:

        h[k] = activation(x @ kernel + b @ tensor[k] @ b + b @ recurrent_kernel + bias)[k]

    The tensor V of the paper, [units, 2 * units, 2 * units], is held as the matrix `tensor_kernel`
    [2 * units, units * 2 * units]. In the paper words have as many features as there are units and pass through the
    activation alone: `kernel_initializer="identity"` starts there.

    Example::

        embedding = keras.layers.Embedding(10_000, 30, mask_zero=True)
        layer = layers.RNTN(30, kernel_initializer="identity", embedding=embedding)
        h = layer(forest[:25].tensors)  # [25, 30]

    Args:
        units: see `TreeLayer`, also for all arguments that are not named here.
        tensor_initializer: of the tensor.
        **kwargs: see `TreeLayer`; the regularizer and constraint of `recurrent` also hold for the tensor.

    Raises:
        ValueError: see `TreeLayer`.
    """

    def __init__(self, units: int, *, tensor_initializer: Any = None, **kwargs: Any) -> None:
        super().__init__(units, 2, **kwargs)
        if tensor_initializer is None:
            # Quadratic in outputs of up to 1: small, or trees of some depth saturate.
            tensor_initializer = keras.initializers.RandomUniform(-0.5 / (2 * units), 0.5 / (2 * units), seed=self.seed)
        self.tensor_initializer = keras.initializers.get(tensor_initializer)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a layer again."""
        config = super().get_config() | {"tensor_initializer": keras.initializers.serialize(self.tensor_initializer)}
        del config["arity"]
        return config

    def _build_recurrent(self) -> None:
        super()._build_recurrent()
        shape = (2 * self.units, self.units * 2 * self.units)
        self.tensor_kernel = self._add("tensor_kernel", "recurrent", shape, self.tensor_initializer)

    def _recursion(self, trees: Trees, rows: tf.Tensor, kept: tf.Tensor | None) -> Recursion:
        kernel, tensor = tf.convert_to_tensor(self.recurrent_kernel), tf.convert_to_tensor(self.tensor_kernel)

        def compose(below: tf.Tensor) -> tf.Tensor:
            sides = tf.reshape(product(below, tensor), [self.units, 2 * self.units])
            return tf.reduce_sum(sides * below, 1) + product(below, kernel)

        return self._by_place(trees, rows, kept, 2, compose)

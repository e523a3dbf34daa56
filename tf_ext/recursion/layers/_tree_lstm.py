"""Long short-term memory over trees (Tai et al. 2015)."""

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
Activation = Callable[[tf.Tensor], tf.Tensor]


class _TreeLSTM(TreeLayer):
    """What both forms have: gates i, o, u and f, in this order in the kernel and the bias."""

    _kernel_blocks = 4

    def __init__(
        self,
        units: int,
        *,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        unit_forget_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, activation=activation, **kwargs)
        self.recurrent_activation = keras.activations.get(recurrent_activation)
        self.unit_forget_bias = unit_forget_bias

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a layer again."""
        return super().get_config() | {
            "recurrent_activation": keras.activations.serialize(self.recurrent_activation),
            "unit_forget_bias": self.unit_forget_bias,
        }

    def _add(self, name: str, kind: str, shape: tuple[int, ...], initializer: Any = None) -> Any:
        if name == "bias" and self.unit_forget_bias:
            initializer = self._initial_bias
        return super()._add(name, kind, shape, initializer)

    def _initial_bias(self, shape: Any, *args: Any, **kwargs: Any) -> Any:
        """Remembers at first, as `keras.layers.LSTM` does."""
        first = self.bias_initializer((3 * self.units,), *args, **kwargs)
        return keras.ops.concatenate([first, keras.initializers.get("ones")((self.units,), *args, **kwargs)], 0)

    def _state(self, gates: tf.Tensor, memory: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        """H and c, from the gates i, o, u before their squashing and what is kept of the children's c."""
        squash, update = tf.split(gates, [2 * self.units, self.units])
        i, o = tf.split(self.recurrent_activation(squash), 2)
        c = i * self.activation(update)
        if memory is not None:
            c += memory
        return o * self.activation(c), c


@keras.saving.register_keras_serializable("tf_ext")
class ChildSumTreeLSTM(_TreeLSTM):
    """TreeLSTM for any number of children, whose order does not matter (Tai et al. 2015, section 3.1).

    With x the features of a node and h~ the sum of its children's h:

        i, o, u = x @ kernel[:, :3] + h~ @ recurrent_kernel[:, :3] + bias[:3]
        f_k     = x @ kernel[:, 3] + h_k @ recurrent_kernel[:, 3] + bias[3]
        c       = sigmoid(i) * tanh(u) + sum_k sigmoid(f_k) * c_k
        h       = sigmoid(o) * tanh(c)

    where the columns are counted in blocks of `units`.

    Example::

        layer = layers.ChildSumTreeLSTM(128, embedding=keras.layers.Embedding(1000, 64))
        h = layer(forest[:25].tensors)  # [25, 128]

    Args:
        units: see `TreeLayer`, also for all arguments that are not named here.
        recurrent_activation: of the gates i, o and f.
        unit_forget_bias: whether the bias of f starts at 1.
        **kwargs: see `TreeLayer`.

    Raises:
        ValueError: see `TreeLayer`.
    """

    def _build_recurrent(self) -> None:
        self.recurrent_kernel = self._add("recurrent_kernel", "recurrent", (self.units, 4 * self.units))

    def _recursion(self, trees: Trees, rows: tf.Tensor, kept: tf.Tensor | None) -> Recursion:
        units = self.units
        own, own_forget = tf.split(rows, [3 * units, units], axis=1)
        kernel, forget_kernel = tf.split(tf.convert_to_tensor(self.recurrent_kernel), [3 * units, units], axis=1)
        children = tf.RaggedTensor.from_row_splits(trees.child_index, trees.row_splits, validate=False)
        has_children = tf.logical_not(trees.is_leaf)
        state = tf.TensorSpec([units], rows.dtype)
        # A node hands its share of the forget gates down; a child returns what its parent keeps of its c.
        passed_at = 0 if kept is None else 2
        tree = SubGraph(self.name, [_NODE, state], (state,) * (2 if kept is None else 3))

        def body(node: tf.Tensor, forget: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def inner() -> tuple[tf.Tensor, tf.Tensor]:
                below = tree.map(children[node], own_forget[node], in_axes=(0, None), reduce="sum")
                return self._state(own[node] + product(below[passed_at], kernel), below[1])

            h, c = tf.cond(has_children[node], inner, lambda: self._state(own[node], None))
            passed = h if kept is None else h * kept[node]
            memory = self.recurrent_activation(forget + product(passed, forget_kernel)) * c
            return (h, memory) if kept is None else (h, memory, passed)

        tree.define(body, autograph=False)
        return Recursion(tree, (tf.zeros([units], rows.dtype),))


@keras.saving.register_keras_serializable("tf_ext")
class NaryTreeLSTM(_TreeLSTM):
    """TreeLSTM for at most `arity` children in a known order (Tai et al. 2015, section 3.2).

    With x the features of a node and [h_1; ..; h_N] its children's h side by side, zeros where there is none:

        i, o, u, f = x @ kernel + bias
        i, o, u, f_1, .., f_N = [i, o, u, f, .., f] + [h_1; ..; h_N] @ recurrent_kernel
        c = sigmoid(i) * tanh(u) + sum_k sigmoid(f_k) * c_k
        h = sigmoid(o) * tanh(c)

    Example::

        layer = layers.NaryTreeLSTM(168, embedding=keras.layers.Embedding(10_000, 300, mask_zero=True))
        h = layer(forest[:25].tensors)  # [25, 168]

    Args:
        units: see `TreeLayer`, also for all arguments that are not named here.
        arity: N. A node of more children is an error when the layer runs.
        recurrent_activation: of the gates i, o and f.
        unit_forget_bias: whether the bias of f starts at 1.
        **kwargs: see `TreeLayer`.

    Raises:
        ValueError: see `TreeLayer`.
    """

    def __init__(self, units: int, arity: int = 2, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.arity = _inputs.positive(self.name, "arity", arity)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a layer again."""
        return super().get_config() | {"arity": self.arity}

    def _build_recurrent(self) -> None:
        shape = (self.arity * self.units, (3 + self.arity) * self.units)
        self.recurrent_kernel = self._add("recurrent_kernel", "recurrent", shape)

    def _recursion(self, trees: Trees, rows: tf.Tensor, kept: tf.Tensor | None) -> Recursion:
        units, places = self.units, Places(self.name, trees, self.arity)
        own, own_forget = tf.split(rows, [3 * units, units], axis=1)
        own_forget = tf.tile(own_forget, [1, self.arity])
        kernel = tf.convert_to_tensor(self.recurrent_kernel)
        state = tf.TensorSpec([units], rows.dtype)
        passed_at = 0 if kept is None else 2
        tree = SubGraph(self.name, [_NODE], (state,) * (2 if kept is None else 3))

        def result(node: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return (h, c) if kept is None else (h, c, h * kept[node])

        def body(node: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def inner() -> tuple[tf.Tensor, ...]:
                below = [tree(child) for child in places.of(node)]
                from_children = product(tf.concat([child[passed_at] for child in below], 0), kernel)
                gates, forget = tf.split(from_children, [3 * units, self.arity * units])
                forget = self.recurrent_activation(own_forget[node] + forget)
                memories = tf.split(forget * tf.concat([child[1] for child in below], 0), self.arity)
                return result(node, *self._state(own[node] + gates, sum(memories[1:], memories[0])))

            def leaf() -> tuple[tf.Tensor, ...]:
                return result(node, *self._state(own[node], None))

            def none() -> tuple[tf.Tensor, ...]:
                return (tf.zeros([units], rows.dtype),) * len(tree.output_signature)

            return places.switch(node, inner, leaf, none)

        tree.define(body, autograph=False)
        return Recursion(tree)

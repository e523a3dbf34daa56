"""Plain eager recursion over a forest, node by node, with the weights of a layer: what the layers are compared with."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_ext.recursion.converters import from_parents
from tf_ext.recursion.forest import Forest
from tf_ext.recursion.layers import RNTN, ChildSumTreeLSTM, NaryTreeLSTM, TreeLayer, TreeRNN

WORDS = 9
Cell = Callable[[Any, tf.Tensor, list[Any]], Any]


def random_forest(sizes: Any, *, arity: int | None = 2, seed: int = 0) -> Forest:
    """Trees of given sizes whose nodes have up to `arity` children, one child among them."""
    rng = np.random.default_rng(seed)
    parents = []
    for size in sizes:
        tree, counts = [-1], [0]
        for node in range(1, size):
            free = [i for i in range(node) if arity is None or counts[i] < arity]
            # Mostly the newest node that has room, so that trees have some depth.
            chosen = free[-1] if rng.random() < 0.5 else int(rng.choice(free))
            counts[chosen] += 1
            counts.append(0)
            tree.append(chosen)
        parents.append(np.array(tree))
    values = [rng.integers(0, WORDS, size).astype(np.int32) for size in sizes]
    return from_parents(parents, values, labels=[rng.integers(0, 5, size).astype(np.int32) for size in sizes])


def embedding(width: int = 6, **kwargs: Any) -> Any:
    return keras.layers.Embedding(
        WORDS, width, embeddings_initializer=keras.initializers.RandomNormal(seed=1), **kwargs
    )


def layer_outputs(layer: Any, forest: Forest) -> tf.Tensor:
    """[num_nodes, units], by recursion in Python."""
    x = tf.gather(tf.convert_to_tensor(layer.embedding.embeddings), forest.values)
    if layer.embedding.mask_zero:
        x = tf.where(forest.values[:, None] != 0, x, 0.0)
    cell = CELLS[type(layer)]
    states: list[Any] = []
    for node in range(forest.num_nodes):
        children = forest.child_index[forest.row_splits[node] : forest.row_splits[node + 1]]
        states.append(cell(layer, x[node : node + 1], [states[child] for child in children]))
    return tf.concat([state[0] for state in states], 0)


def _blocks(x: tf.Tensor, units: int) -> list[tf.Tensor]:
    return tf.split(x, x.shape[1] // units, 1)


def _child_sum(layer: Any, x: tf.Tensor, children: list[Any]) -> Any:
    kernel, recurrent, bias = (tf.convert_to_tensor(w) for w in (layer.kernel, layer.recurrent_kernel, layer.bias))
    u = layer.units
    gates = x @ kernel + bias
    if children:
        gates += tf.pad(tf.add_n([h for h, _ in children]) @ recurrent[:, : 3 * u], [[0, 0], [0, u]])
    i, o, update, forget = _blocks(gates, u)
    c = tf.sigmoid(i) * tf.tanh(update)
    for h_k, c_k in children:
        c += tf.sigmoid(forget + h_k @ recurrent[:, 3 * u :]) * c_k
    return tf.sigmoid(o) * tf.tanh(c), c


def _padded(layer: Any, children: list[Any], parts: int) -> list[Any]:
    zeros = tf.zeros([1, layer.units], layer.compute_dtype)
    return children + [(zeros,) * parts] * (layer.arity - len(children))


def _nary(layer: Any, x: tf.Tensor, children: list[Any]) -> Any:
    kernel, recurrent, bias = (tf.convert_to_tensor(w) for w in (layer.kernel, layer.recurrent_kernel, layer.bias))
    u = layer.units
    gates = x @ kernel + bias
    wide = tf.concat([gates[:, : 3 * u], *[gates[:, 3 * u :]] * layer.arity], 1)
    children = _padded(layer, children, 2)
    wide += tf.concat([h for h, _ in children], 1) @ recurrent
    i, o, update, *forget = _blocks(wide, u)
    c = tf.sigmoid(i) * tf.tanh(update)
    for f, (_, c_k) in zip(forget, children, strict=True):
        c += tf.sigmoid(f) * c_k
    return tf.sigmoid(o) * tf.tanh(c), c


def _tree_rnn(layer: Any, x: tf.Tensor, children: list[Any]) -> Any:
    own = x @ tf.convert_to_tensor(layer.kernel) + tf.convert_to_tensor(layer.bias)
    if layer.arity is None:
        below = tf.add_n([h for (h,) in children]) if children else tf.zeros_like(own)
    else:
        below = tf.concat([h for (h,) in _padded(layer, children, 1)], 1)
    return (tf.tanh(own + below @ tf.convert_to_tensor(layer.recurrent_kernel)),)


def _rntn(layer: Any, x: tf.Tensor, children: list[Any]) -> Any:
    u = layer.units
    own = x @ tf.convert_to_tensor(layer.kernel) + tf.convert_to_tensor(layer.bias)
    b = tf.concat([h for (h,) in _padded(layer, children, 1)], 1)
    tensor = tf.reshape(tf.convert_to_tensor(layer.tensor_kernel), [2 * u, u, 2 * u])
    quadratic = tf.stack([(b @ tensor[:, k] @ tf.transpose(b))[:, 0] for k in range(u)], 1)
    return (tf.tanh(own + quadratic + b @ tf.convert_to_tensor(layer.recurrent_kernel)),)


CELLS: dict[type[TreeLayer], Cell] = {
    ChildSumTreeLSTM: _child_sum,
    NaryTreeLSTM: _nary,
    TreeRNN: _tree_rnn,
    RNTN: _rntn,
}

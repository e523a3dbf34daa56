"""Peer: one `tf.while_loop` over all nodes of the batch in topological order, one node per iteration.

Embeddings are looked up for the whole batch before the loop, because a lookup inside would make their gradient dense
at every iteration. States live in `TensorArray`s; `h` and `c` share a row, which halves the reads.
"""

from collections.abc import Callable

import tensorflow as tf

from benchmarks.recursion import cells
from benchmarks.recursion.cells import Parameters, Runner, State, Tensors
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Model

_INTS = tf.TensorSpec([None], tf.int32)
Forward = Callable[..., tf.Tensor]
Node = Callable[[tf.Tensor, tf.Tensor, tf.TensorArray], State]


def prepare(model: Model, forest: Forest, dtype: tf.DType = tf.float32) -> Runner:
    """Makes the peer ready for a forest."""
    parameters = Parameters(model, dtype)
    if model.kind == "binary":
        forward, arrays = _binary(parameters), [forest.tokens, *forest.pairs(), forest.roots]
    else:
        forward = _childsum(parameters)
        arrays = [forest.tokens, forest.first, forest.children, forest.roots]
    inputs = [tf.constant(array) for array in arrays]

    @tf.function(input_signature=[_INTS] * len(inputs), autograph=False)
    def infer(*args: tf.Tensor) -> tf.Tensor:
        return forward(*args)

    @tf.function(input_signature=[_INTS] * len(inputs), autograph=False)
    def train(*args: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return parameters.differentiate(lambda: forward(*args))

    return Runner(lambda: infer(*inputs), lambda: train(*inputs))


def _loop(parameters: Parameters, x: tf.Tensor, roots: tf.Tensor, node: Node) -> tf.Tensor:
    """Runs `node(i, x_i, states)` for every row of `x` and returns the roots' `h`."""
    size = tf.shape(x)[0]
    shape = [1, 2 * parameters.hidden]
    inputs = tf.TensorArray(x.dtype, size, element_shape=[parameters.hidden], clear_after_read=False)
    inputs = inputs.unstack(x)
    states = tf.TensorArray(x.dtype, size, element_shape=shape, clear_after_read=False)

    def step(i: tf.Tensor, states: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        state = node(i, tf.expand_dims(inputs.read(i), 0), states)
        return i + 1, states.write(i, tf.concat(state, 1))

    _, states = tf.while_loop(lambda i, _: i < size, step, (tf.constant(0), states))
    return tf.reshape(states.gather(roots), [-1, shape[1]])[:, : parameters.hidden]


def _binary(parameters: Parameters) -> Forward:
    wide = [1, 2 * parameters.hidden]

    def forward(tokens: tf.Tensor, left: tf.Tensor, right: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
        w = parameters.read()

        def node(i: tf.Tensor, x: tf.Tensor, states: tf.TensorArray) -> State:
            def leaf() -> State:
                return cells.leaf(cells.dense(x, w["leaf_kernel"], w["leaf_bias"]))

            def inner() -> State:
                both = tf.concat([states.read(left[i]), states.read(right[i])], 0)
                h, c = tf.split(both, 2, axis=1)
                gates = cells.dense(tf.reshape(h, wide), w["kernel"], w["bias"])
                return cells.pair(gates, tf.reshape(c, wide))

            return State(*tf.cond(left[i] < 0, leaf, inner))

        return _loop(parameters, parameters.lookup(tokens), roots, node)

    return forward


def _childsum(parameters: Parameters) -> Forward:
    def forward(tokens: tf.Tensor, first: tf.Tensor, children: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
        w = parameters.read()

        def node(i: tf.Tensor, x: tf.Tensor, states: tf.TensorArray) -> State:
            own = children[first[i] : first[i + 1]]
            gates = cells.dense(x, w["input_kernel"], w["bias"])
            inner = lambda: _above(w, x, gates, states.gather(own))  # noqa: E731
            return State(*tf.cond(tf.size(own) > 0, inner, lambda: cells.leaf(gates)))

        return _loop(parameters, parameters.lookup(tokens), roots, node)

    return forward


def _above(w: Tensors, x: tf.Tensor, gates: tf.Tensor, below: tf.Tensor) -> State:
    """Computes a child-sum node from its children's states, `[children, 1, 2 * hidden]`."""
    h, c = tf.split(tf.squeeze(below, 1), 2, axis=1)
    forget = cells.dense(x, w["forget_input_kernel"], w["forget_bias"]) + tf.matmul(h, w["forget_kernel"])
    gates += tf.matmul(tf.reduce_sum(h, 0, keepdims=True), w["kernel"])
    return cells.sum_of_children(gates, tf.reduce_sum(tf.sigmoid(forget) * c, 0, keepdims=True))

"""Ours: the models written once as recursions, run by either executor."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.harness import UnavailableError
from benchmarks.recursion import cells
from benchmarks.recursion.cells import Parameters, Runner
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Model

recursion: Any
try:
    from tf_ext import recursion
except ImportError as error:
    recursion, _REASON = None, str(error)

_INTS = tf.TensorSpec([None], tf.int32)
_NODE = tf.TensorSpec([], tf.int32)
Forward = Callable[..., tf.Tensor]


def require() -> Any:
    """Returns `tf_ext.recursion`.

    Raises:
        UnavailableError: If it cannot be imported.
    """
    if recursion is None or not hasattr(recursion, "SubGraph"):
        raise UnavailableError(f"tf_ext.recursion is not there: {_REASON if recursion is None else 'no SubGraph'}")
    return recursion


def prepare(model: Model, forest: Forest, execution: str, compute: tf.DType = tf.float32) -> Runner:
    """Makes a recursion ready for a forest.

    Args:
        model: The weights.
        forest: The input.
        execution: Which executor, `"invoke"` or `"batched"`.
        compute: Type of the cells; variables stay float32.

    Raises:
        UnavailableError: If `tf_ext.recursion` cannot be imported.
    """
    require()
    parameters = Parameters(model, compute=compute)
    if model.kind == "binary":
        forward, arrays = _binary(parameters, execution), [forest.tokens, *forest.pairs(), forest.roots]
    else:
        forward = _childsum(parameters, execution)
        arrays = [forest.tokens, forest.first, forest.children, forest.roots]
    packed, sizes = cells.pack(arrays)

    @tf.function(input_signature=[_INTS, _INTS])
    def infer(packed: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return forward(*cells.unpack(packed, sizes, len(arrays)))

    @tf.function(input_signature=[_INTS, _INTS])
    def train(packed: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, dict[str, Any]]:
        return parameters.differentiate(lambda: forward(*cells.unpack(packed, sizes, len(arrays))))

    return Runner(lambda: infer(packed, sizes), lambda: train(packed, sizes))


def _product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Returns `x @ kernel` for a vector."""
    return tf.squeeze(tf.matmul(tf.expand_dims(x, 0), kernel), 0)


def _binary(parameters: Parameters, execution: str) -> Forward:
    state = tf.TensorSpec([parameters.hidden], parameters.compute)

    def forward(tokens: tf.Tensor, left: tf.Tensor, right: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
        w = parameters.read()
        tree = require().SubGraph("tree", input_signature=[_NODE], output_signature=(state, state))

        @tree.define
        def body(node: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            if left[node] < 0:
                x = parameters.lookup(tokens[node])
                h, c = cells.leaf(_product(x, w["leaf_kernel"]) + w["leaf_bias"])
            else:
                hl, cl = tree(left[node])
                hr, cr = tree(right[node])
                gates = _product(tf.concat([hl, hr], 0), w["kernel"]) + w["bias"]
                h, c = cells.pair(gates, tf.concat([cl, cr], 0))
            return h, c

        h, _ = tree.map(roots, execution=execution)
        return h

    return forward


def _childsum(parameters: Parameters, execution: str) -> Forward:
    state = tf.TensorSpec([parameters.hidden], parameters.compute)

    def forward(tokens: tf.Tensor, first: tf.Tensor, children: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
        w = parameters.read()
        below = tf.RaggedTensor.from_row_splits(children, first, validate=False)
        # What depends on a node's own input alone needs no recursion.
        x = parameters.lookup(tokens)
        # A child is told its parent's part of the forget gate, and returns h and the part of c that the parent keeps.
        tree = require().SubGraph("tree", input_signature=[_NODE, state], output_signature=(state, state))

        @tree.define
        def body(node: tf.Tensor, forget: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            gates = _product(x[node], w["input_kernel"]) + w["bias"]
            if first[node] < first[node + 1]:
                below_forget = _product(x[node], w["forget_input_kernel"]) + w["forget_bias"]
                h, kept = tree.map(below[node], below_forget, in_axes=(0, None), reduce="sum")
                h, c = cells.sum_of_children(gates + _product(h, w["kernel"]), kept)
            else:
                h, c = cells.leaf(gates)
            return h, tf.sigmoid(forget + _product(h, w["forget_kernel"])) * c

        nothing = tf.zeros([parameters.hidden], parameters.compute)
        h, _ = tree.map(roots, nothing, in_axes=(0, None), execution=execution)
        return h

    return forward

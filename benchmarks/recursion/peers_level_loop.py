"""The level-batched peer for deep forests: a `tf.while_loop` whose iteration is one level.

What an expert writes where unrolling would need a graph of thousands of levels (the chain). All leaves are still one
product; each iteration takes its leaves from a `TensorArray`, because slicing them would make their gradient quadratic.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.recursion import cells
from benchmarks.recursion.cells import Parameters, Runner, State
from benchmarks.recursion.models import Model
from benchmarks.recursion.schedule import Schedule

_INTS = tf.TensorSpec([None], tf.int32)


def prepare(model: Model, schedule: Schedule, dtype: tf.DType = tf.float32) -> Runner:
    """Makes the loop ready for a forest of binary trees.

    Raises:
        ValueError: If the model is not the binary one.
    """
    if model.kind != "binary":
        raise ValueError(f"expected a binary model for a forest of {schedule.depth} levels")
    parameters = Parameters(model, dtype)
    arrays = (
        schedule.leaf_tokens,
        schedule.leaves,
        schedule.inner,
        np.concatenate(schedule.leaf_rows),
        np.concatenate(schedule.inner_rows),
    )
    inputs = [tf.constant(array) for array in arrays]

    @tf.function(input_signature=[_INTS] * len(inputs), autograph=False)
    def infer(*args: tf.Tensor) -> tf.Tensor:
        return _forward(parameters, *args)

    @tf.function(input_signature=[_INTS] * len(inputs), autograph=False)
    def train(*args: tf.Tensor) -> tuple[tf.Tensor, dict[str, Any]]:
        return parameters.differentiate(lambda: _forward(parameters, *args))

    return Runner(lambda: infer(*inputs), lambda: train(*inputs))


def _cut(values: tf.Tensor, lengths: tf.Tensor) -> tf.TensorArray:
    """Cuts rows into levels."""
    array = tf.TensorArray(
        values.dtype,
        tf.size(lengths),
        infer_shape=False,
        element_shape=[None, *values.shape[1:]],
        clear_after_read=False,
    )
    return array.split(values, lengths)


def _forward(
    parameters: Parameters,
    leaf_tokens: tf.Tensor,
    leaves: tf.Tensor,
    inner: tf.Tensor,
    leaf_rows: tf.Tensor,
    inner_rows: tf.Tensor,
) -> tf.Tensor:
    w = parameters.read()
    wide = [-1, 2 * parameters.hidden]
    gates = cells.dense(parameters.lookup(leaf_tokens), w["leaf_kernel"], w["leaf_bias"])
    states = cells.leaf(gates)
    leaf_h, leaf_c = _cut(states.h, leaves), _cut(states.c, leaves)
    rows = (_cut(leaf_rows, leaves), _cut(inner_rows, inner))
    deepest = tf.size(leaves) - 1

    def level(d: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
        gates = cells.dense(tf.reshape(h, wide), w["kernel"], w["bias"])
        node = cells.pair(gates, tf.reshape(c, wide))
        places = [array.read(d) for array in rows]
        leaf = State(leaf_h.read(d), leaf_c.read(d))
        placed = [tf.dynamic_stitch(places, list(pair)) for pair in zip(leaf, node, strict=True)]
        return d - 1, *placed

    shape = tf.TensorShape([None, parameters.hidden])
    _, h, _ = tf.while_loop(
        lambda d, h, c: d >= 0,
        level,
        (deepest - 1, leaf_h.read(deepest), leaf_c.read(deepest)),
        shape_invariants=(tf.TensorShape([]), shape, shape),
    )
    return h

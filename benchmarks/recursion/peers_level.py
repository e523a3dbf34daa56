"""Peer: the batched version that an expert writes by hand, level by level (`schedule.py`).

The levels are unrolled into one `tf.function` for each number of levels; all leaves, and all input projections, are
one product. The forests of the schedule are arguments, so one function serves every forest of that depth.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.recursion import cells, peers_level_loop
from benchmarks.recursion.cells import Parameters, Runner, State, Tensors
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Model
from benchmarks.recursion.schedule import by_level

UNROLLED = 200
"""Deeper forests run in a loop over the levels: tracing is linear in the number of levels."""

_INTS = tf.TensorSpec([None], tf.int32)
Forward = Callable[..., tf.Tensor]
Rows = list[tf.Tensor]


def prepare(model: Model, forest: Forest, dtype: tf.DType = tf.float32) -> Runner:
    """Makes the peer ready for a forest."""
    schedule = by_level(forest)
    if schedule.depth > UNROLLED:
        return peers_level_loop.prepare(model, schedule, dtype)
    parameters = Parameters(model, dtype)
    forward = _binary(parameters) if model.kind == "binary" else _childsum(parameters)
    parts = {f.name: getattr(schedule, f.name) for f in dataclasses.fields(schedule)}
    packed, sizes = cells.pack(tf.nest.flatten(parts))

    @tf.function(input_signature=[_INTS, _INTS], autograph=False)
    def infer(packed: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return forward(**_unpack(parts, packed, sizes))

    @tf.function(input_signature=[_INTS, _INTS], autograph=False)
    def train(packed: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, dict[str, Any]]:
        return parameters.differentiate(lambda: forward(**_unpack(parts, packed, sizes)))

    return Runner(lambda: infer(packed, sizes), lambda: train(packed, sizes))


def _unpack(parts: dict[str, Any], packed: tf.Tensor, sizes: tf.Tensor) -> dict[str, Any]:
    flat = cells.unpack(packed, sizes, len(tf.nest.flatten(parts)))
    return dict(tf.nest.pack_sequence_as(parts, flat))


def _levels(state: State, counts: tf.Tensor, depth: int) -> list[State]:
    """Cuts the leaves' states into levels."""
    h = tf.split(state.h, counts, num=depth)
    return [State(*pair) for pair in zip(h, tf.split(state.c, counts, num=depth), strict=True)]


def _place(leaf_rows: tf.Tensor, inner_rows: tf.Tensor, leaf: State, inner: State) -> State:
    """Puts leaves and inner nodes of a level in the order of their parents."""
    rows = [leaf_rows, inner_rows]
    return State(*(tf.dynamic_stitch(rows, list(pair)) for pair in zip(leaf, inner, strict=True)))


def _binary(parameters: Parameters) -> Forward:
    wide = [-1, 2 * parameters.hidden]

    def forward(
        leaf_tokens: tf.Tensor, leaves: tf.Tensor, leaf_rows: Rows, inner_rows: Rows, **_: tf.Tensor | Rows
    ) -> tf.Tensor:
        w = parameters.read()
        gates = cells.dense(parameters.lookup(leaf_tokens), w["leaf_kernel"], w["leaf_bias"])
        leaf = _levels(cells.leaf(gates), leaves, len(leaf_rows))
        state = leaf[-1]
        for d in reversed(range(len(leaf) - 1)):
            # The two children of a node are neighbours in the level below.
            gates = cells.dense(tf.reshape(state.h, wide), w["kernel"], w["bias"])
            node = cells.pair(gates, tf.reshape(state.c, wide))
            state = _place(leaf_rows[d], inner_rows[d], leaf[d], node)
        return state.h

    return forward


@tf.custom_gradient
def _repeat(x: tf.Tensor, parents: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], Any]]:
    """Gathers by sorted indices; the gradient of `tf.gather` would not know that they are sorted."""
    return tf.gather(x, parents), lambda dy: (tf.math.segment_sum(dy, parents), None)


def _childsum(parameters: Parameters) -> Forward:
    def forward(
        leaf_tokens: tf.Tensor,
        inner_tokens: tf.Tensor,
        leaves: tf.Tensor,
        inner: tf.Tensor,
        leaf_rows: Rows,
        inner_rows: Rows,
        parents: Rows,
    ) -> tf.Tensor:
        w = parameters.read()
        depth = len(leaf_rows)
        counts = [tf.size(leaf_tokens), tf.size(inner_tokens)]
        x = parameters.lookup(tf.concat([leaf_tokens, inner_tokens], 0))
        leaf_gates, inner_gates = tf.split(cells.dense(x, w["input_kernel"], w["bias"]), counts)
        forget = cells.dense(tf.split(x, counts)[1], w["forget_input_kernel"], w["forget_bias"])
        leaf = _levels(cells.leaf(leaf_gates), leaves, depth)
        gates, forgets = (tf.split(rows, inner, num=depth) for rows in (inner_gates, forget))
        state = leaf[-1]
        for d in reversed(range(depth - 1)):
            node = _childsum_level(w, gates[d], forgets[d], state, parents[d + 1])
            state = _place(leaf_rows[d], inner_rows[d], leaf[d], node)
        return state.h

    return forward


def _childsum_level(w: Tensors, gates: tf.Tensor, forget: tf.Tensor, below: State, parents: tf.Tensor) -> State:
    forget = _repeat(forget, parents) + tf.matmul(below.h, w["forget_kernel"])
    kept = tf.math.segment_sum(tf.sigmoid(forget) * below.c, parents)
    gates += tf.matmul(tf.math.segment_sum(below.h, parents), w["kernel"])
    return cells.sum_of_children(gates, kept)

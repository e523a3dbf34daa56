"""Peer: recursion in Python over eager tensors, as a PyTorch user would write it."""

import sys

import tensorflow as tf

from benchmarks.recursion import cells
from benchmarks.recursion.cells import Parameters, Runner, State, Tensors
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Model


def prepare(model: Model, forest: Forest, dtype: tf.DType = tf.float32, compute: tf.DType | None = None) -> Runner:
    """Makes the peer ready for a forest; in float64 it is the control of all the others."""
    parameters = Parameters(model, dtype, compute)
    visit = _binary if model.kind == "binary" else _childsum
    children = [forest.children_of(node).tolist() for node in range(forest.size)]
    tokens = forest.tokens.tolist()
    # A chain is as deep in Python as it is long.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * forest.size + 1000))

    def forward() -> tf.Tensor:
        w = parameters.read()
        states = [visit(parameters, w, tokens, children, root) for root in forest.roots.tolist()]
        return tf.concat([state.h for state in states], 0)

    return Runner(forward, lambda: parameters.differentiate(forward))


def _binary(p: Parameters, w: Tensors, tokens: list[int], children: list[list[int]], node: int) -> State:
    if not children[node]:
        return cells.leaf(cells.dense(p.lookup([tokens[node]]), w["leaf_kernel"], w["leaf_bias"]))
    left, right = (_binary(p, w, tokens, children, child) for child in children[node])
    gates = cells.dense(tf.concat([left.h, right.h], 1), w["kernel"], w["bias"])
    return cells.pair(gates, tf.concat([left.c, right.c], 1))


def _childsum(p: Parameters, w: Tensors, tokens: list[int], children: list[list[int]], node: int) -> State:
    x = p.lookup([tokens[node]])
    gates = cells.dense(x, w["input_kernel"], w["bias"])
    below = [_childsum(p, w, tokens, children, child) for child in children[node]]
    if not below:
        return cells.leaf(gates)
    h = tf.concat([state.h for state in below], 0)
    c = tf.concat([state.c for state in below], 0)
    forget = cells.dense(x, w["forget_input_kernel"], w["forget_bias"]) + tf.matmul(h, w["forget_kernel"])
    gates += tf.matmul(tf.reduce_sum(h, 0, keepdims=True), w["kernel"])
    return cells.sum_of_children(gates, tf.reduce_sum(tf.sigmoid(forget) * c, 0, keepdims=True))

"""Where work that stands before a conditional is done: in the branches, if nothing else needs it."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests.recursion.checking import BOTH, INT, Eager, assert_close, vector
from tf_ext import recursion

SIZE = 4
CHILDREN = [[1, 2], [3], [], []]


def gated(new, weights, tail):
    """Gates before the conditional, read by both branches; with `tail`, more work after it."""
    kernel, after = weights
    rows = tf.ragged.constant(CHILDREN, tf.int32)
    f = new("f", [INT], vector(SIZE))

    @f.define
    def body(node):
        gates = tf.linalg.matvec(kernel, tf.one_hot(node, SIZE))
        if tf.equal(tf.shape(rows[node])[0], 0):
            h = tf.tanh(gates)
        else:
            h = tf.tanh(gates + f.map(rows[node], reduce="sum"))
        return tf.linalg.matvec(after, h) if tail else h

    return f


@pytest.fixture
def weights():
    draw = np.random.default_rng(0)
    return [tf.Variable(draw.normal(size=[SIZE, SIZE]).astype(np.float32)) for _ in range(2)]


def products_of_the_first_block(function):
    (root,) = [
        op for op in function.graph.get_operations() if op.type.startswith("TfExt") and "program" in op.node_def.attr
    ]
    program = graph_pb2.GraphDef.FromString(root.get_attr("program"))
    graphs = [node for node in program.node if node.op == "Graph"]
    block = next(node for node in program.node if node.op == "Block")
    definition = graph_pb2.GraphDef.FromString(graphs[block.attr["batched"].i].attr["def"].s)
    return [node.op for node in definition.node if "MatMul" in node.op]


@pytest.mark.parametrize("tail", [False, True])
def test_what_only_the_branches_read_is_computed_there(weights, tail):
    f = gated(recursion.SubGraph, weights, tail)
    function = tf.function(lambda node: f(node, execution="batched")).get_concrete_function(INT)
    assert products_of_the_first_block(function) == []


@pytest.mark.parametrize("execution", BOTH)
def test_work_after_the_conditional_sees_the_same_values(weights, execution):
    def run(f, **how):
        with tf.GradientTape() as tape:
            y = f(tf.constant(0), **how)
            loss = tf.reduce_sum(y**2)
        return y, tape.gradient(loss, weights)

    y, gradients = run(gated(recursion.SubGraph, weights, tail=True), execution=execution)
    expected, expected_gradients = run(gated(Eager, weights, tail=True))
    assert_close(y, expected, 1e-6)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert_close(gradient, other, 1e-5)

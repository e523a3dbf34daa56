"""Batches so large that several cores share them, and products of widths that fill no vector register."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, INT, relative_error, vector
from tf_ext import recursion

DEPTH = 5


def _values(dtype: tf.DType, width: int) -> tuple[tf.Variable, ...]:
    random = np.random.default_rng(width)

    def make(*shape: int) -> tf.Variable:
        return tf.Variable(random.normal(size=shape) / np.sqrt(width), dtype=dtype)

    return make(2 * width, width + 3), make(width + 3, width), make(11, width)


def _cell(weights: tuple[tf.Variable, ...], left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    pair = tf.concat([left, right], -1)
    return tf.tanh(tf.tanh(pair @ weights[0]) @ weights[1])


def _recursive(weights: tuple[tf.Variable, ...], rows: tf.Tensor, width: int) -> tf.Tensor:
    tree = recursion.SubGraph(
        "tree",
        input_signature=[INT, INT],
        output_signature=vector(width, weights[0].dtype),
    )

    @tree.define
    def body(depth: tf.Tensor, word: tf.Tensor) -> tf.Tensor:
        if depth == 0:
            return tf.gather(weights[2], word)
        left = tree(depth - 1, (3 * word + 1) % 11)
        right = tree(depth - 1, (5 * word + 2) % 11)
        return _cell(weights, left[tf.newaxis], right[tf.newaxis])[0]

    return tree.map(DEPTH, rows, in_axes=(None, 0), execution="batched")


def _plain(weights: tuple[tf.Variable, ...], rows: tf.Tensor, depth: int) -> tf.Tensor:
    if depth == 0:
        return tf.gather(weights[2], rows)
    left = _plain(weights, (3 * rows + 1) % 11, depth - 1)
    return _cell(weights, left, _plain(weights, (5 * rows + 2) % 11, depth - 1))


@pytest.mark.parametrize(
    ("width", "num", "dtype"),
    [
        (1, 40, tf.float32),
        (7, 300, tf.float32),
        (16, 64, tf.float32),
        (33, 61, tf.float32),
        (70, 150, tf.float32),
        (19, 90, tf.float64),
    ],
)
def test_values_and_gradients(width: int, num: int, dtype: tf.DType) -> None:
    weights = _values(dtype, width)
    rows = tf.range(num) % 11

    @tf.function
    def ours(rows: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            h = _recursive(weights, rows, width)
            loss = tf.reduce_sum(h * tf.cast(tf.range(width), dtype))
        return h, [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]

    with tf.GradientTape() as tape:
        h = _plain(weights, rows, DEPTH)
        loss = tf.reduce_sum(h * tf.cast(tf.range(width), dtype))
    expected = [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]
    # Sums over thousands of rows in another order: float32 keeps 1e-5, float64 much more.
    tolerance = 1e-5 if dtype == tf.float32 else 1e-13
    got_h, got = ours(rows)
    assert relative_error(got_h, h) < tolerance
    for a, b in zip(got, expected, strict=True):
        assert relative_error(a, b) < tolerance
    # How the rows are divided depends on the batch alone.
    again = ours(rows)[1]
    assert all(np.array_equal(a, b) for a, b in zip(got, again, strict=True))


@pytest.mark.parametrize("execution", BOTH)
def test_a_computed_table_has_its_gradient_whole(execution: str) -> None:
    kernel = tf.Variable(np.random.default_rng(0).normal(size=(4, 6)), dtype=tf.float32)
    data = tf.constant(np.random.default_rng(1).normal(size=(9, 4)), tf.float32)
    rows = tf.constant([3, 3, 0, 8, 5, 3])

    def pick(table: tf.Tensor) -> tf.Tensor:
        row = recursion.SubGraph("row", input_signature=[INT], output_signature=vector(6))
        row.define(lambda i: table[i])
        return row.map(rows, execution=execution)

    def gradient(gather: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            table = data @ kernel + 1.0
            loss = tf.reduce_sum(gather(table) ** 2) + tf.reduce_sum(table[0])
        return tape.gradient(loss, kernel)

    # Not slices, which each of the uses of a table would make whole for itself.
    graph = tf.function(lambda: gradient(pick)).get_concrete_function().graph
    (backward,) = [op for op in graph.get_operations() if op.type == "TfExtRecursionGrad"]
    assert not backward.get_attr("env_slices")
    expected = gradient(lambda table: tf.gather(table, rows))
    assert relative_error(tf.function(lambda: gradient(pick))(), expected) < 1e-6

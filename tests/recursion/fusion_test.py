"""Fused elementwise operators, and what the runtime does with unusual shapes, types and sizes."""

import numpy as np
import pytest
import tensorflow as tf

from tf_ext import recursion

INT = tf.TensorSpec([], tf.int32)
EXECUTIONS = ("invoke", "batched")


def after_one_call(body, shape, result=()):
    """A recursion that calls itself once and then computes `body(x)`."""
    graph = recursion.SubGraph("s", [INT, tf.TensorSpec(shape)], tf.TensorSpec(result))

    @graph.define(autograph=False)
    def define(n, x):
        return tf.cond(n <= 0, lambda: body(x), lambda: graph(n - 1, x))

    return graph


def narrow_parts(x):
    y = tf.tanh(x)
    a, _, _, d = tf.split(y, 4)
    return tf.reduce_sum(y) + 10.0 * tf.squeeze(a, 0) + 100.0 * tf.squeeze(d, 0)


def reordered(x):
    parts = tf.split(x * 2.0, 4)
    return tf.reduce_sum(tf.concat(parts[::-1], 0) * tf.constant([1.0, 10.0, 100.0, 1000.0]) + x)


def mixed_widths(x):
    a, b = tf.split(tf.exp(x), [1, 3])
    return tf.reduce_sum(tf.concat([b * 2.0, tf.concat([a, b], 0)], 0)) + tf.reduce_sum(a * b)


ONE = [
    lambda x: tf.reduce_sum(tf.tanh(x) + x) + tf.reduce_sum(tf.concat([x, x], -1)),
    lambda x: tf.reduce_sum(tf.minimum(tf.concat([x, x], -1), x) * 2.0),
    lambda x: tf.reduce_sum(tf.concat([x, x], -1) * x),
    lambda x: tf.reduce_sum(tf.concat([x * 2.0, x], -1)),
]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("body", "x"),
    [(narrow_parts, [1.0, 2.0, 3.0, 4.0]), (reordered, [1.0, 2.0, 3.0, 4.0]), (mixed_widths, [0.1, 0.2, 0.3, 0.4])]
    + [(body, [3.0]) for body in ONE],
)
def test_narrow_vectors_give_what_eager_code_gives(body, x, execution):
    graph, x = after_one_call(body, [len(x)]), tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = body(x)
    slope = tape.gradient(expected, x)

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = graph(tf.constant(1), x, execution=execution)
        return y, tape.gradient(y, x)

    y, dx = run(x)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    # Relative to the largest: 1 - tanh(x)^2 cancels near 1.
    np.testing.assert_allclose(dx, slope, rtol=0, atol=1e-5 * np.max(np.abs(slope)))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_ends_of_the_range_and_what_is_not_a_number(execution):
    x = tf.constant([88.0, 88.5, 88.72, 88.75, -87.2, -200.0, np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30])
    graph = after_one_call(lambda x: tf.exp(x) + 0.0, x.shape, x.shape)
    np.testing.assert_allclose(graph(1, x, execution=execution), tf.exp(x), rtol=1e-6, atol=2e-38)
    for function in (tf.maximum, tf.minimum):
        for body in (lambda x, f=function: f(2.0, x) + 0.0, lambda x, f=function: f(x, 2.0) + 0.0):
            result = after_one_call(body, x.shape, x.shape)(1, x, execution=execution)
            np.testing.assert_array_equal(result, body(x))


def test_strings_are_stacked():
    graph = recursion.SubGraph("s", [INT], tf.TensorSpec([], tf.string))

    @graph.define
    def body(n):
        if n <= 0:
            return "x"
        return tf.strings.join([graph(n - 1), "y"])

    assert graph.map(tf.constant([3, 2]), execution="invoke").numpy().tolist() == [b"xyyy", b"xyy"]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("start", "limit"), [(0, 2**63 - 1), (-(2**63) + 5, 2**63 - 1), (0, 2**62)])
def test_ranges_without_end_are_refused(start, limit, execution):
    number = tf.TensorSpec([], tf.int64)
    graph = recursion.SubGraph("s", [number, number, number], number)

    @graph.define(autograph=False)
    def body(n, start, limit):
        return tf.cond(
            n < 0,
            lambda: graph.map(tf.range(start, limit), 0 * n, 0 * n, in_axes=(0, None, None), reduce="sum"),
            lambda: tf.constant(1, tf.int64),
        )

    with pytest.raises(tf.errors.ResourceExhaustedError, match="max_live_calls"):
        graph(-1, start, limit, execution=execution)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_rows_of_different_shapes_are_not_added(execution):
    graph = recursion.SubGraph("s", [INT], tf.TensorSpec([None, None]))

    @graph.define
    def body(n):
        if n == 1:
            return tf.reshape(tf.range(6.0), tf.stack([2, 3]))
        if n == 2:
            return tf.reshape(tf.range(6.0), tf.stack([3, 2]))
        return graph.map(tf.stack([n + 1, n + 2]), reduce="sum")

    with pytest.raises(tf.errors.InvalidArgumentError, match="2,3"):
        graph(0, execution=execution)


def test_gradients_through_complex_values_are_refused():
    number = tf.TensorSpec([], tf.complex64)
    graph = recursion.SubGraph("s", [INT, number], number)
    graph.define(lambda n, x: tf.cond(n <= 0, lambda: x, lambda: graph(n - 1, x) * (2 + 1j)), autograph=False)
    x = tf.constant(1 + 1j, tf.complex64)
    np.testing.assert_allclose(graph(2, x).numpy(), (1 + 1j) * (2 + 1j) ** 2, rtol=1e-6)

    @tf.function
    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.math.real(graph(2, x))
        return tape.gradient(y, x)

    with pytest.raises(recursion.UnsupportedOperationError, match="complex values"):
        slope(x)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_depth_is_counted_alike(execution):
    graph = recursion.SubGraph("count", [INT], INT, max_depth=5)
    graph.define(lambda n: tf.cond(n > 0, lambda: graph(n - 1) + 1, lambda: n), autograph=False)
    assert graph(4, execution=execution) == 4  # five calls, the first included
    with pytest.raises(tf.errors.ResourceExhaustedError, match="max_depth = 5"):
        graph(5, execution=execution)

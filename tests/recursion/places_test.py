"""Where recursions are called from."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT, Eager, assert_close, vector
from tf_ext import recursion

SIZE = 3
X = np.array([0.3, -0.4, 0.8], np.float32)


def mixing(new, weights):
    f = new("f", [INT, vector(SIZE)], vector(SIZE))

    @f.define
    def body(n, x):
        if n <= 0:
            return x
        return tf.tanh(tf.linalg.matvec(weights, f(n - 1, x * 0.9) + f(n - 2, x)))

    return f


@pytest.fixture
def weights():
    return tf.Variable(np.random.default_rng(0).normal(size=[SIZE, SIZE]).astype(np.float32))


@pytest.mark.parametrize("execution", BOTH)
def test_a_function_with_unknown_dimensions(execution, weights):
    f = mixing(recursion.SubGraph, weights)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None])])
    def run(ns, xs):
        return f.map(ns, xs, execution=execution)

    eager = mixing(Eager, weights)
    for rows in (0, 1, 4):
        ns, xs = tf.range(rows), tf.tile(X[np.newaxis], [rows, 1])
        actual = run(ns, xs)
        assert actual.shape == [rows, SIZE]
        if rows:
            assert_close(actual, eager.map(ns, xs), 1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(tf.range(2), tf.zeros([2, SIZE + 1]))


@pytest.mark.parametrize("execution", BOTH)
def test_eager_calls_see_what_closures_have_become(execution):
    scale = [1.0]
    f = recursion.SubGraph("f", [INT, FLOAT], FLOAT)
    f.define(lambda n, x: tf.cond(n > 0, lambda: f(n - 1, x) * scale[0], lambda: x))
    assert f(2, 3.0, execution=execution).numpy() == 3.0
    scale[0] = 2.0
    assert f(2, 3.0, execution=execution).numpy() == 12.0


@pytest.mark.parametrize("execution", BOTH)
def test_constant_arguments(execution, weights):
    """TensorFlow tries to compute what depends on constants alone while it builds the graph."""
    f, eager = mixing(recursion.SubGraph, weights), mixing(Eager, weights)

    @tf.function
    def run():
        y = f(3, X, execution=execution)
        length = tf.cast(tf.reduce_sum(y) * 0.0, tf.int32) + 3
        return tf.reshape(y, [length]), tf.zeros([length]), tf.range(length)

    assert_close(run()[0], eager(3, X), 1e-6)


@pytest.mark.parametrize("execution", BOTH)
def test_constant_arguments_without_variables(execution):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return f(n - 1) + f(n - 2) if n > 1 else n

    @tf.function
    def run():
        length = f(6, execution=execution)
        return tf.zeros([length, 2]), tf.range(length), tf.reshape(tf.range(16), tf.stack([length, 2]))

    assert [t.shape.as_list() for t in run()] == [[8, 2], [8], [8, 2]]


@pytest.mark.parametrize("execution", BOTH)
def test_a_loop_around_a_recursion(execution, weights):
    f, eager = mixing(recursion.SubGraph, weights), mixing(Eager, weights)

    def loss(call, steps):
        x = tf.constant(X)
        for i in range(10) if steps is None else tf.range(steps):
            x = call(i % 4, x)
            x = tf.ensure_shape(x, [SIZE])
        return tf.reduce_sum(x)

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            y = loss(lambda *a: f(*a, execution=execution), 10)
        return y, tape.gradient(y, weights)

    with tf.GradientTape() as tape:
        y = loss(eager, None)
    actual = run()
    assert_close(actual[0], y, 1e-5)
    assert_close(actual[1], tape.gradient(y, weights), 1e-5)


@pytest.mark.parametrize("execution", BOTH)
def test_map_fn_and_cond_around_a_recursion(execution, weights):
    f, eager = mixing(recursion.SubGraph, weights), mixing(Eager, weights)
    xs = np.stack([X, X * 0.5, X + 0.1])

    def loss(call, xs):
        ys = tf.map_fn(lambda x: call(3, x), xs, fn_output_signature=vector(SIZE))
        return tf.reduce_sum(tf.cond(tf.reduce_sum(ys) > -99.0, lambda: call(2, ys[0]), lambda: ys[1]) * ys)

    @tf.function
    def run(xs):
        with tf.GradientTape() as tape:
            y = loss(lambda *a: f(*a, execution=execution), xs)
        return y, tape.gradient(y, weights)

    with tf.GradientTape() as tape:
        y = loss(eager, tf.constant(xs))
    actual = run(tf.constant(xs))
    assert_close(actual[0], y, 1e-5)
    assert_close(actual[1], tape.gradient(y, weights), 1e-5)


@pytest.mark.parametrize("execution", BOTH)
def test_tf_data(execution):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return f(n - 1) + f(n - 2) if n > 1 else n

    data = tf.data.Dataset.range(12).map(lambda n: f(tf.cast(n, tf.int32), execution=execution), num_parallel_calls=2)
    assert [int(y) for y in data] == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]


@pytest.mark.parametrize("execution", BOTH)
def test_two_threads_at_once(execution, weights):
    f, eager = mixing(recursion.SubGraph, weights), mixing(Eager, weights)

    @tf.function(input_signature=[INT, vector(SIZE)])
    def run(n, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(n, x, execution=execution)
        return y, tape.gradient(y, x)

    arguments = [(3, X), (6, X * 0.7), (1, -X), (5, X + 0.3)]
    expected = [eager(*a) for a in arguments]
    wrong = []

    def work(offset):
        for i in range(40):
            k = (i + offset) % len(arguments)
            y, _ = run(tf.constant(arguments[k][0]), tf.constant(arguments[k][1]))
            if np.abs(y - expected[k]).max() > 1e-5:
                wrong.append((offset, i))

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_threads_that_trace(weights):
    """Which body is being traced is known for each thread."""
    f, eager = mixing(recursion.SubGraph, weights), mixing(Eager, weights)
    expected, found = eager(4, X), []

    def work():
        for execution in BOTH:
            found.append(tf.function(lambda x, e=execution: f(4, x, execution=e))(X))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for y in found:
        assert_close(y, expected, 1e-6)


@pytest.mark.parametrize("execution", BOTH)
def test_a_graph_of_tensorflow_1(execution):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return f(n - 1) + f(n - 2) if n > 1 else n

    with tf.Graph().as_default() as graph:
        y = f(10, execution=execution)
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run(y) == 55


@pytest.mark.parametrize("execution", BOTH)
def test_calls_are_collected_in_an_order_of_their_own(execution):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return f(n - 1) + f(n - 2) if n > 1 else n

    y, calls = f(6, execution=execution, return_calls=True)
    assert y.numpy() == 8
    pairs = sorted(zip(calls.arguments[0].numpy().tolist(), calls.results.numpy().tolist(), strict=True))
    assert len(pairs) == 25
    assert set(pairs) == {(6, 8), (5, 5), (4, 3), (3, 2), (2, 1), (1, 1), (0, 0)}


@pytest.mark.parametrize("execution", BOTH)
def test_the_same_recursion_many_times_in_one_function(execution):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return f(n - 1) + f(n - 2) if n > 1 else n

    run = tf.function(lambda: [f(n, execution=execution) for n in range(8)] + [f(5, execution=execution)])
    assert [int(y) for y in run()] == [0, 1, 1, 2, 3, 5, 8, 13, 5]


def test_a_recursion_inside_another_s_body_by_another_name():
    """SubGraphs that are defined inside a body are called there like all others."""
    outer = recursion.SubGraph("outer", [INT], INT)

    @outer.define
    def body(n):
        inner = recursion.SubGraph("inner", [INT], INT)

        @inner.define
        def inner_body(m):
            return inner(m - 1) + n if m > 0 else 0

        return inner(n)

    with pytest.raises((TypeError, ValueError, NotImplementedError), match="outer|inner|scope|graph"):
        outer(3)

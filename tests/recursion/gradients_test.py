"""Gradients: what they are of, how they are asked for, and what stands against them."""

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT, Eager, assert_close, check, logged, vector
from tf_ext import recursion

SIZE = 3
X = np.array([0.3, -0.4, 0.8], np.float32)


def weight(seed=0, shape=(SIZE, SIZE)):
    return tf.Variable(np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 0.6)


def tree(new, step, leaf=lambda x: x):
    f = new("f", [INT, vector(SIZE)], vector(SIZE))

    @f.define
    def body(n, x):
        if n <= 0:
            return leaf(x)
        return step(n, f(n - 1, x * 0.9), f(n - 2, x + 0.1))

    return f


def test_captured_tensors_and_arguments_of_outer_functions():
    w, other = weight(), tf.constant(X) * 2.0

    def run(call_of, x, y):
        mixed = tf.tanh(y) * 0.5
        f = tree(call_of, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a) * mixed + b * other))
        return lambda **kwargs: f(3, x, **kwargs)

    def gradients(new, **kwargs):
        x, y = tf.constant(X), tf.constant(X[::-1].copy())
        with tf.GradientTape() as tape:
            tape.watch([x, y, other])
            total = tf.reduce_sum(run(new, x, y)(**kwargs) * [1.0, 2.0, 3.0])
        return tape.gradient(total, [x, y, other, w])

    expected = gradients(Eager)
    for execution in BOTH:
        for wrap in (tf.function, lambda f: f):
            actual = wrap(lambda e=execution: gradients(recursion.SubGraph, execution=e))()
            for a, b in zip(actual, expected, strict=True):
                assert_close(a, b, 1e-5)


def test_stop_gradient():
    w = weight()
    check(
        lambda new: tree(new, lambda n, a, b: tf.stop_gradient(tf.linalg.matvec(w, a)) * b + tf.stop_gradient(a)),
        4,
        X,
        watch=[w],
    )


@tf.custom_gradient
def scaled(x, y):
    def gradient(dz):
        return dz * tf.sin(y), tf.reduce_sum(dz) * x * 7.0

    return x * y + 1.0, gradient


@tf.custom_gradient
def clipped(x):
    return x, lambda dy: tf.clip_by_norm(dy, 0.3)


@pytest.mark.parametrize("how", ["step", "leaf", "closure", "branch", "twice", "captured"])
def test_custom_gradients(how):
    w = weight()

    def build(new):
        if how == "leaf":
            return tree(new, lambda n, a, b: a * tf.linalg.matvec(w, b), leaf=clipped)
        if how == "closure":

            def step(n, a, b):
                hidden = tf.sin(a)

                @tf.custom_gradient
                def inner(x):
                    return x * hidden, lambda dy: dy * hidden * tf.cast(n, tf.float32) + tf.linalg.matvec(w, dy)

                return inner(b) + a

            return tree(new, step)
        if how == "branch":
            return tree(new, lambda n, a, b: tf.cond(n > 2, lambda: scaled(a, b), lambda: clipped(b)))
        if how == "twice":
            return tree(new, lambda n, a, b: tf.nn.silu(clipped(clipped(a) * 2.0)) + tf.nn.swish(b))
        if how == "captured":
            return tree(new, lambda n, a, b: scaled(a, w[0]) + b)
        return tree(new, lambda n, a, b: scaled(a, b) * 0.3)

    check(build, 4, X, watch=[w])


def test_a_custom_gradient_in_a_function_within_a_body():
    inner = tf.function(lambda x: clipped(x) * 2.0)
    f = tree(recursion.SubGraph, lambda n, a, b: inner(a) + b)
    with pytest.raises(recursion.BatchingError, match="custom_gradient"):
        f(3, X, execution="batched")
    check(lambda new: tree(new, lambda n, a, b: inner(a) + b), 3, X, executions=["invoke", "auto"])


def test_a_function_within_a_body():
    w = weight()

    @tf.function
    def inner(x, y):
        return tf.tanh(tf.linalg.matvec(w, x) * y), y + 1.0

    check(lambda new: tree(new, lambda n, a, b: tf.add_n(inner(a, b))), 4, X, watch=[w])


def test_a_loop_within_a_body():
    w = weight()

    def step(n, a, b):
        for _ in tf.range(3):
            a = tf.tanh(tf.linalg.matvec(w, a))
        return a + b

    check(lambda new: tree(new, step), 4, X, watch=[w], executions=["invoke", "auto"])


def test_tf_gradients():
    w = weight()
    f = tree(recursion.SubGraph, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * b)
    eager = tree(Eager, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * b)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = eager(4, x)
    expected = tape.gradient(y, x)
    for execution in BOTH:

        @tf.function
        def run(x, execution=execution):
            return tf.gradients(f(4, x, execution=execution), [x])

        assert_close(run(x)[0], expected, 1e-5)


def test_a_persistent_tape_and_only_some_sources():
    w, v = weight(), weight(1)
    f = tree(recursion.SubGraph, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * tf.linalg.matvec(v, b))
    eager = tree(Eager, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * tf.linalg.matvec(v, b))
    with tf.GradientTape(persistent=True) as tape:
        y = eager(3, X)
        first, second = tf.reduce_sum(y[:1]), tf.reduce_sum(y * y)
    expected = [tape.gradient(first, w), tape.gradient(second, v), tape.gradient(second, w)]
    for execution in BOTH:
        with tf.GradientTape(persistent=True) as tape:
            y = f(3, X, execution=execution)
            first, second = tf.reduce_sum(y[:1]), tf.reduce_sum(y * y)
        actual = [tape.gradient(first, w), tape.gradient(second, v), tape.gradient(second, w)]
        for a, b in zip(actual, expected, strict=True):
            assert_close(a, b, 1e-5)


def test_a_tape_outside_of_the_function_and_in_a_nested_one():
    w = weight()
    f = tree(recursion.SubGraph, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * b)
    eager = tree(Eager, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * b)
    with tf.GradientTape() as tape:
        expected = tape.gradient(tf.reduce_sum(eager(3, X)), w)
    for execution in BOTH:
        run = tf.function(lambda x, e=execution: f(3, x, execution=e))
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(run(X))
        assert_close(tape.gradient(y, w), expected, 1e-5)

        @tf.function
        def outer(x, run=run):
            with tf.GradientTape() as tape:
                y = tf.reduce_sum(tf.function(run)(x))
            return tape.gradient(y, w)

        assert_close(outer(tf.constant(X)), expected, 1e-5)


def test_several_recursions_in_one_step_and_one_twice():
    w = weight()
    f = tree(recursion.SubGraph, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * b)
    eager = tree(Eager, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * b)

    def loss(call):
        y = call(3, X)
        return tf.reduce_sum(call(2, y) * call(4, y))

    with tf.GradientTape() as tape:
        expected = tape.gradient(loss(eager), w)
    for execution in BOTH:
        with tf.GradientTape() as tape:
            y = tf.function(lambda e=execution: loss(lambda *a: f(*a, execution=e)))()
        assert_close(tape.gradient(y, w), expected, 1e-5)


@pytest.mark.parametrize("execution", BOTH)
def test_the_second_order_is_refused(execution):
    f = tree(recursion.SubGraph, lambda n, a, b: a * b)

    @tf.function
    def run(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(f(3, x, execution=execution))
            dx = inner.gradient(y, x)
        return outer.gradient(dx, x)

    with pytest.raises(recursion.UnsupportedOperationError, match="first-order gradients only"):
        run(tf.constant(X))


@pytest.mark.parametrize("execution", ["invoke", "auto"])
def test_a_variable_that_a_body_assigns_has_no_gradient_but_a_value(execution):
    w = tf.Variable([1.0, 2.0, 3.0])

    def step(n, a, b):
        w.assign_add([1.0, 1.0, 1.0])
        return a + b * w

    f = tree(recursion.SubGraph, step)
    eager = tree(Eager, step)
    expected = eager(3, X)
    w.assign([1.0, 2.0, 3.0])
    assert_close(f(3, X, execution=execution), expected, 1e-6)

    def slope():
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(f(3, X, execution=execution))
        return tape.gradient(y, w)

    with pytest.raises(recursion.UnsupportedOperationError, match="also assigns"):
        slope()


def test_an_operation_without_a_gradient_matters_only_when_one_is_asked_for():
    f = tree(recursion.SubGraph, lambda n, a, b: a * tf.raw_ops.NextAfter(x1=b, x2=a) + tf.math.bessel_i0(b))
    g = tree(recursion.SubGraph, lambda n, a, b: a * tf.math.special.bessel_k0(tf.raw_ops.Igammac(a=a * a, x=b * b)))
    for subgraph in (f, g):
        for execution in ("invoke", "auto"):
            assert subgraph(2, X, execution=execution).shape == [SIZE]


def test_collected_calls_have_gradients():
    w = weight()
    f = tree(recursion.SubGraph, lambda n, a, b: tf.tanh(tf.linalg.matvec(w, a)) * b)
    for execution in BOTH:
        with tf.GradientTape() as tape:
            y, calls = f(3, X, execution=execution, return_calls=True)
            total = tf.reduce_sum(calls.results**2) + tf.reduce_sum(y)
        gradient = tape.gradient(total, w)
        seen = []

        def step(n, a, b, seen=seen):
            seen += [a, b]
            return tf.tanh(tf.linalg.matvec(w, a)) * b

        eager = tree(Eager, step)
        with tf.GradientTape() as tape:
            y = eager(3, X)
            total = tf.add_n([tf.reduce_sum(t**2) for t in [*seen, y]]) + tf.reduce_sum(y)
        assert_close(gradient, tape.gradient(total, w), 1e-5)


def test_no_gradient_reaches_what_is_not_used():
    unused, w = tf.Variable(2.0), weight()
    f = recursion.SubGraph("f", [INT, vector(SIZE)], (vector(SIZE), FLOAT))

    @f.define
    def body(n, x):
        if n <= 0:
            return x, unused
        a, b = f(n - 1, x)
        return tf.tanh(tf.linalg.matvec(w, a)), b

    for execution in BOTH:
        with tf.GradientTape() as tape:
            y, _ = f(3, X, execution=execution)
        gradients = tape.gradient(y, [w, unused])
        assert np.abs(gradients[0].numpy()).max() > 0
        assert gradients[1] is None or gradients[1].numpy() == 0.0


def test_the_fallback_is_logged_once_for_what_it_is():
    f = tree(recursion.SubGraph, lambda n, a, b: a + b * tf.py_function(lambda x: x, [b], tf.float32))
    with logged() as lines:
        f(2, X)
    assert [line for line in lines if "EagerPyFunc" in line]


@pytest.mark.parametrize("execution", BOTH)
def test_gradients_that_are_tensors_of_the_forward_pass(execution):
    """`tf.boolean_mask` gives its indices as they are to the gradient; so may a function of the user's own."""
    v, w = tf.Variable([1.0, -2.0, 3.0]), tf.Variable([2.0, 5.0, 7.0])

    @tf.custom_gradient
    def odd(x):
        return x * x, lambda _: x

    def run(new, **kwargs):
        f = new("f", [INT], vector(None))

        @f.define
        def body(n):
            return tf.boolean_mask(v, w > 2.0) * 3.0 + odd(w + 0.0)[1:] + w[n]

        with tf.GradientTape() as tape:
            y = tf.reduce_sum(f(0, **kwargs) * [1.0, 4.0])
        return [tf.convert_to_tensor(g) for g in tape.gradient(y, [v, w])]

    for got, expected in zip(tf.function(run)(recursion.SubGraph, execution=execution), run(Eager), strict=True):
        assert_close(got, expected, 1e-6)


def test_a_py_function_has_no_gradient_and_says_why():
    f = recursion.SubGraph("f", [INT, vector(SIZE)], vector(SIZE))

    @f.define
    def body(n, x):
        if n <= 0:
            return x
        y = tf.py_function(lambda a: a * a, [f(n - 1, x) + f(n - 2, 0.9 * x)], tf.float32)
        return tf.ensure_shape(y, [SIZE])

    x = tf.Variable(X)

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            y = f(3, x)
        return tape.gradient(y, x)

    with pytest.raises(recursion.UnsupportedOperationError, match="(?s)is a tf.py_function.*tf.custom_gradient"):
        gradient()
    assert tf.function(lambda: f(3, x))().shape == [SIZE]

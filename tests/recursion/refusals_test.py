"""Bodies and places that are refused: an error at the earliest point, which says what to do instead."""

import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT
from tf_ext import recursion


def countdown(**limits):
    f = recursion.SubGraph("countdown", [INT], INT, **limits)

    @f.define
    def body(n):
        return f(n - 1) + 1 if n > 0 else 0

    return f


# Conditions.


@pytest.mark.parametrize("execution", [*BOTH, "auto"])
def test_a_condition_that_is_not_a_number_is_false(execution):
    f = recursion.SubGraph("f", [FLOAT], INT)

    @f.define
    def body(x):
        if x > 0.0:
            return f(x - 1.0) + 1
        return 0

    assert f(float("nan"), execution=execution).numpy() == 0
    assert f(2.5, execution=execution).numpy() == 3


def test_a_condition_that_is_no_bool():
    f = recursion.SubGraph("f", [FLOAT], FLOAT)

    @f.define
    def body(x):
        return tf.cond(x, lambda: f(x - 1.0), lambda: x)

    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError), match="bool|string|cond"):
        f(2.0)


def test_branches_that_return_different_things():
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return tf.cond(n > 0, lambda: f(n - 1), lambda: 1.0)

    with pytest.raises(TypeError, match="int32"):
        f(2)


# Recursion without an end.


@pytest.mark.parametrize("execution", BOTH)
def test_too_deep(execution):
    f = countdown(max_depth=50)
    assert f(49, execution=execution).numpy() == 49
    with pytest.raises(tf.errors.ResourceExhaustedError, match="'countdown' are nested deeper than max_depth = 50"):
        f(51, execution=execution)


@pytest.mark.parametrize("execution", BOTH)
@pytest.mark.parametrize("children", [1, 2])
def test_without_an_end(execution, children):
    f = recursion.SubGraph("endless", [INT], INT, max_depth=1000, max_live_calls=20_000)

    @f.define
    def body(n):
        return tf.add_n([f(n + 1) for _ in range(children)])

    with pytest.raises(tf.errors.ResourceExhaustedError, match="'endless'.*never reaches its end"):
        f(0, execution=execution)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="'endless'"):  # and again
        f(0, execution=execution)


@pytest.mark.parametrize("execution", BOTH)
def test_a_failed_run_leaves_nothing_behind(execution):
    f = countdown(max_depth=50)
    for _ in range(3):
        with pytest.raises(tf.errors.ResourceExhaustedError):
            f(60, execution=execution)
        assert f(20, execution=execution).numpy() == 20


# Where calls cannot be.


def test_calls_inside_a_loop():
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        total = 0
        for i in tf.range(n):
            total += f(i)
        return total

    with pytest.raises(recursion.UnsupportedOperationError, match=r"'f' is called inside 'while.*\.map\(\)"):
        f(2)


def test_calls_inside_a_python_while_over_tensors():
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        while n > 3:
            n = f(n - 1)
        return n

    with pytest.raises(
        recursion.UnsupportedOperationError, match="'f' is called inside .*turn the loop into a recursion"
    ):
        f(2)


def test_calls_inside_map_fn():
    f = recursion.SubGraph("f", [INT], INT)
    f.define(lambda n: tf.reduce_sum(tf.map_fn(lambda i: f(i), tf.range(n))))
    with pytest.raises(recursion.UnsupportedOperationError, match="'f' is called inside"):
        f(2)


def test_calls_inside_a_function_of_a_body():
    f = recursion.SubGraph("f", [INT], INT)
    inner = tf.function(lambda n: f(n - 1))
    f.define(lambda n: inner(n))
    with pytest.raises(recursion.UnsupportedOperationError, match="'f' is called inside .*take the tf.function"):
        f(2)


def test_calls_inside_vectorized_map():
    f = recursion.SubGraph("f", [INT, FLOAT], FLOAT)
    f.define(lambda n, x: tf.reduce_sum(tf.vectorized_map(lambda i: f(n, i), tf.stack([x, x]))))
    with pytest.raises(recursion.UnsupportedOperationError, match="is called inside .*While"):
        f(2, 1.0)


def test_a_value_of_a_body_used_outside_of_it():
    kept = []
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        kept.append(n)
        return n

    @tf.function
    def run():
        f(1)
        return kept[0] + 1

    with pytest.raises((TypeError, ValueError), match="scope|graph"):
        run()


def test_jit_compile_is_refused():
    f = countdown()
    for execution in BOTH:
        run = tf.function(lambda n, e=execution: f(n, execution=e), jit_compile=True)
        with pytest.raises(
            recursion.UnsupportedOperationError, match="(?s)'countdown' was called .*leave jit_compile out"
        ):
            run(tf.constant(3))


def test_a_subgraph_of_another_function():
    f = recursion.SubGraph("f", [INT], INT)

    @tf.function
    def define(x):
        twice = 2 * x
        f.define(lambda n: n + twice)
        return f(1)

    assert define(tf.constant(3)) == 7
    with pytest.raises(
        recursion.UnsupportedOperationError, match="'f' uses tensor 'mul:0' .*pass the tensor as an argument"
    ):
        tf.function(lambda: f(1))()

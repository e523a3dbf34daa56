"""Recursions of every form give what plain Python recursion gives: values and gradients, in both executions."""

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import FLAG, FLOAT, INT, check, vector


def test_two_calls_beside_each_other():
    def build(new):
        fib = new("fib", [INT], INT)

        @fib.define
        def body(n):
            if n < 2:
                return n
            return fib(n - 1) + fib(n - 2)

        return fib

    assert check(build, 12, gradients=False).numpy() == 144


def test_mutual_recursion():
    def build(new):
        even = new("even", [INT], FLAG)
        odd = new("odd", [INT], FLAG)

        @even.define
        def even_body(n):
            if n == 0:
                return True
            return odd(n - 1)

        @odd.define
        def odd_body(n):
            if n == 0:
                return False
            return even(n - 1)

        return even

    assert check(build, 9, gradients=False).numpy() == False  # noqa: E712  a numpy bool
    assert check(build, 14, gradients=False)


def test_three_functions_that_call_each_other_pass_floats():
    def build(new):
        signature = ([INT, FLOAT], FLOAT)
        a, b, c = new("a", *signature), new("b", *signature), new("c", *signature)

        @a.define
        def a_body(n, x):
            return b(n, x * 1.1) + 0.5 if n > 0 else tf.sin(x)

        @b.define
        def b_body(n, x):
            return tf.tanh(c(n - 1, x) * x)

        @c.define
        def c_body(n, x):
            return a(n, x) * a(n - 1, x + 0.1) if n > 1 else a(n, x)

        return a

    check(build, 5, 0.7)


def test_a_call_depends_on_the_result_of_an_earlier_one():
    def build(new):
        f = new("ackermann_like", [INT, FLOAT], FLOAT)

        @f.define
        def body(n, x):
            if n <= 0:
                return tf.sin(x)
            first = f(n - 1, x)
            second = f(n - 2, first * x)
            return f(n - 3, second) + first

        return f

    check(build, 6, 0.8)


def test_ackermann():
    def build(new):
        f = new("ackermann", [INT, INT], INT)

        @f.define
        def body(m, n):
            if m == 0:
                return n + 1
            if n == 0:
                return f(m - 1, 1)
            return f(m - 1, f(m, n - 1))

        return f

    assert check(build, 2, 3, gradients=False).numpy() == 9


def test_values_go_down_and_up():
    def build(new):
        tree = new("tree", [INT, vector(3), FLOAT], (vector(3), FLOAT))

        @tree.define
        def body(n, state, depth):
            if n == 0:
                return tf.tanh(state), depth
            left, a = tree(n - 1, state * 0.9 + 0.1, depth + 1.0)
            right, b = tree(n // 2, tf.sin(state), depth * 1.5)
            return left * right + state, tf.maximum(a, b) + tf.reduce_sum(left)

        return tree

    check(build, 5, [0.1, 0.2, -0.3], 0.5)


@pytest.mark.parametrize("start", [0.3, 40.0])
def test_early_exit_on_floats(start):
    def build(new):
        newton = new("newton", [FLOAT, FLOAT, INT], FLOAT)

        @newton.define
        def body(x, target, steps):
            better = 0.5 * (x + target / x)
            if tf.abs(better - x) < 1e-3 or steps > 30:
                return better
            return newton(better, target, steps + 1)

        return newton

    check(build, start, 2.0, 0)


def test_conditions_inside_conditions():
    def build(new):
        f = new("f", [INT, FLOAT], FLOAT)

        @f.define
        def body(n, x):
            if n > 0:
                if n % 2 == 0:
                    if n % 3 == 0:
                        return f(n - 1, x) * x
                    return f(n - 1, x + 1.0) - f(n - 2, x)
                return tf.sin(f(n - 1, x))
            if n == 0:
                return x * x
            return x

        return f

    for n in (0, 3, 6, 9):
        check(build, n, 0.7)


def test_and_or_not_and_the_ternary():
    def build(new):
        f = new("f", [INT, FLOAT], FLOAT)

        @f.define
        def body(n, x):
            y = f(n - 1, x * 0.9) if n > 3 and not x > 10.0 else x
            z = f(n - 2, y) if (n > 5 or x < -1.0) and n > 0 else tf.exp(-y)
            return y * z

        return f

    for n in (2, 4, 8):
        check(build, n, 0.7)


def test_optional_children_beside_each_other():
    def build(new):
        tree = new("tree", [INT, FLOAT], FLOAT)

        @tree.define
        def body(n, x):
            left = tf.cond(n % 2 == 0, lambda: tree(n // 2 - 1, x), lambda: x)
            right = tf.cond(n % 3 == 0, lambda: tree(n // 3 - 1, x * 2.0), lambda: tf.sin(x))
            middle = tree(n - 4, x * 0.5) if n > 4 else tf.constant(0.25)
            always = tf.cond(n > 0, lambda: x * 3.0, lambda: x)  # no call in it
            return left * right + middle * always if n > 0 else x

        return tree

    check(build, 24, 0.3)


def test_a_condition_beside_a_call():
    def build(new):
        f = new("f", [INT, vector(2)], vector(2))

        @f.define
        def body(n, x):
            if n <= 0:
                return x
            a = f(n - 1, x * 0.8)
            b = f(n - 2, x + 0.1) if n > 2 else x * 7.0
            return tf.tanh(a + b)

        return f

    check(build, 6, [0.5, -0.5])


def test_a_condition_on_a_call_s_result():
    def build(new):
        f = new("f", [INT, FLOAT], FLOAT)

        @f.define
        def body(n, x):
            if n <= 0:
                return x
            y = f(n - 1, x)
            if y > 0.6:
                y = f(n - 2, y * 0.5)
            else:
                y = y + 0.3
            return y + x

        return f

    check(build, 7, 0.4)


def test_switch_case_of_which_some_branches_call():
    def build(new):
        f = new("f", [INT, FLOAT], FLOAT)

        @f.define
        def body(n, x):
            return tf.switch_case(
                n % 4,
                {
                    0: lambda: x,
                    1: lambda: f(n - 1, x) + 1.0,
                    2: lambda: f(n - 1, tf.sin(x)) * f(n - 2, x),
                    3: lambda: f(n - 2, x * x),
                },
                default=lambda: x * 2.0,
            )

        return f

    for n in (0, 3, 6, 11, -1):
        check(build, n, 0.9)


def test_switch_case_beside_other_calls_and_out_of_range():
    def build(new):
        f = new("f", [INT, FLOAT], FLOAT)

        @f.define
        def body(n, x):
            if n <= 0:
                return x
            a = f(n - 1, x * 0.5)
            b = tf.switch_case(n - 2, [lambda: f(n - 2, x), lambda: x * 3.0, lambda: f(n - 3, x + 1.0)])
            return a * b

        return f

    check(build, 6, 0.9)


def test_branches_give_captured_tensors_and_arguments_as_they_are():
    captured = tf.Variable([1.0, 2.0])
    other = tf.constant([5.0, 7.0])

    def build(new):
        f = new("f", [INT, vector(2)], (vector(2), vector(2)))

        @f.define
        def body(n, x):
            if n == 0:
                return captured, x
            if n == 1:
                return other, other
            a, b = f(n - 1, x)
            return b, a

        return f

    for n in range(4):
        check(build, n, [0.1, 0.2], watch=[captured, other])


def test_results_that_are_constants():
    def build(new):
        f = new("f", [INT], (FLOAT, INT))

        @f.define
        def body(n):
            if n == 0:
                return 1.5, 7
            x, _ = f(n - 1)
            return x, 3

        return f

    check(build, 0, gradients=False)
    check(build, 2, gradients=False)


def test_nests_in_signatures():
    pair = {"h": vector(2), "inner": (FLOAT, [INT])}

    def build(new):
        f = new("f", [pair, INT], {"out": vector(2), "sum": [FLOAT]})

        @f.define
        def body(state, n):
            h, (c, (k,)) = state["h"], state["inner"]
            if n == 0:
                return {"out": h * c, "sum": [c]}
            below = f({"h": tf.tanh(h), "inner": (c + 1.0, [k + 1])}, n - 1)
            return {"out": below["out"] + h, "sum": [below["sum"][0] * tf.cast(k, tf.float32)]}

        return f

    check(build, {"h": [0.1, 0.2], "inner": (0.5, [2])}, 4)


def test_a_root_that_does_not_recur():
    def build(new):
        f = new("f", [vector(3)], vector(3))

        @f.define
        def body(x):
            return tf.nn.softmax(x)

        return f

    check(build, [0.1, 0.2, 0.3])


def test_a_result_that_is_an_argument():
    def build(new):
        f = new("f", [vector(3)], (vector(3), vector(3)))

        @f.define
        def body(x):
            return x, x

        return f

    check(build, [0.1, 0.2, 0.3])


def test_results_that_nobody_uses():
    def build(new):
        f = new("f", [INT, FLOAT], (FLOAT, FLOAT))

        @f.define
        def body(n, x):
            if n == 0:
                return x, tf.exp(x)
            a, _ = f(n - 1, x * 0.5)
            _, b = f(n - 1, x * 0.7)
            f(n - 1, x)
            return a + x, b * x

        return f

    check(build, 5, 0.4)


def test_one_result_of_dynamic_size():
    def build(new):
        f = new("f", [INT, vector(None)], vector(None))

        @f.define
        def body(n, x):
            if n == 0:
                return x
            return tf.concat([f(n - 1, x * 0.5), x[:1]], 0)

        return f

    check(build, 4, [0.1, 0.2, 0.3])
    check(build, 0, [])


def test_rows_of_different_sizes_meet_in_one_batch():
    def build(new):
        f = new("f", [INT, vector(None)], FLOAT)

        @f.define
        def body(n, x):
            if n <= 0:
                return tf.reduce_sum(x * x)
            return f(n - 1, tf.concat([x, x], 0)) + f(n - 2, x[1:]) * 0.5

        return f

    check(build, 5, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])


def test_types_other_than_float32():
    double, long = tf.TensorSpec([2], tf.float64), tf.TensorSpec([], tf.int64)

    def build(new):
        f = new("f", [long, double, FLAG, tf.TensorSpec([], tf.string)], (double, tf.TensorSpec([], tf.string)))

        @f.define
        def body(n, x, flag, name):
            if n == 0:
                return tf.where(flag, x, -x), name
            a, text = f(n - 1, x * 0.5, tf.logical_not(flag), name + "!")
            return a * x, text

        return f

    check(
        build, 3, [0.3, 0.4], True, "go", executions=["invoke", "auto"], value_tolerance=1e-12, gradient_tolerance=1e-12
    )


def test_float64_rows_in_batches():
    double = tf.TensorSpec([2], tf.float64)
    weights = tf.Variable(np.random.default_rng(0).normal(size=[2, 2]))

    def build(new):
        f = new("f", [INT, double], double)

        @f.define
        def body(n, x):
            if n <= 0:
                return x
            return tf.tanh(tf.linalg.matvec(weights, f(n - 1, x * 0.5) + f(n - 2, x)))

        return f

    check(build, 5, [0.3, 0.4], watch=[weights], value_tolerance=1e-14, gradient_tolerance=1e-13)


def test_many_roots():
    def build(new):
        f = new("f", [INT, vector(2)], (vector(2), INT))

        @f.define
        def body(n, x):
            if n <= 0:
                return x, 1
            a, i = f(n - 1, x * 0.9)
            b, j = f(n - 2, tf.sin(x))
            return a * b + x, i + j

        return f

    check(build, [0, 3, 5, 1], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]], mapped=True)


def test_no_roots():
    def build(new):
        f = new("f", [INT, vector(2)], vector(2))

        @f.define
        def body(n, x):
            return x if n <= 0 else f(n - 1, x * 0.9) * x

        return f

    check(build, np.zeros([0], np.int32), np.zeros([0, 2], np.float32), mapped=True)

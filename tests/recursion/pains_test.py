"""What users of TensorFlow have asked for or run into; each test is named in a comment by its issue."""

import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT
from tf_ext import recursion


# tensorflow#45279, tensorflow#2237: recursion in tf.function whose depth depends on data.
@pytest.mark.parametrize("execution", BOTH)
def test_depth_depends_on_data(execution):
    collatz = recursion.SubGraph("collatz", [INT], INT)

    @collatz.define
    def body(n):
        if n == 1:
            return 0
        return collatz(tf.where(n % 2 == 0, n // 2, 3 * n + 1)) + 1

    traces = []

    @tf.function(input_signature=[INT])
    def steps(n):
        traces.append(n)
        return collatz(n, execution=execution)

    assert [steps(tf.constant(n)).numpy() for n in (1, 6, 27)] == [0, 8, 111]
    assert len(traces) == 1


# tensorflow#35540: a function that calls itself waited for ever.
@pytest.mark.parametrize("execution", BOTH)
def test_a_function_that_calls_itself_comes_to_an_end(execution):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return f(n - 1) + f(n - 1) if n > 0 else 1

    # More open calls than there could be threads to wait in.
    assert tf.function(lambda n: f(n, execution=execution))(tf.constant(12)).numpy() == 4096


# tensorflow#45165: recursion that is not tail recursion, with work left after the call.
@pytest.mark.parametrize("execution", BOTH)
def test_work_left_after_the_call(execution):
    hanoi = recursion.SubGraph("hanoi", [INT, INT, INT], INT)

    @hanoi.define
    def body(n, start, goal):
        if n == 0:
            return 0
        spare = 3 - start - goal
        before = hanoi(n - 1, start, spare)
        after = hanoi(n - 1, spare, goal)
        return (before * 7 + after * 3 + start * 2 + goal) % 10_007

    def eager(n, start, goal):
        if n == 0:
            return 0
        spare = 3 - start - goal
        return (eager(n - 1, start, spare) * 7 + eager(n - 1, spare, goal) * 3 + start * 2 + goal) % 10_007

    assert hanoi(8, 0, 2, execution=execution).numpy() == eager(8, 0, 2)


# tensorflow#6961: a Defun that calls itself, whose gradient was built for ever.
@pytest.mark.parametrize("execution", BOTH)
def test_the_gradient_of_a_recursion_is_built_once(execution):
    power = recursion.SubGraph("power", [FLOAT, INT], FLOAT)

    @power.define
    def body(x, n):
        return x * power(x, n - 1) if n > 0 else 1.0

    @tf.function(input_signature=[FLOAT, INT])
    def gradient(x, n):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = power(x, n, execution=execution)
        return tape.gradient(y, x)

    for n in (1, 2, 50):
        assert gradient(tf.constant(1.01), n).numpy() == pytest.approx(n * 1.01 ** (n - 1), rel=1e-5)


# Pull request 54062: the stack overflowed where a function called itself.
@pytest.mark.parametrize("execution", BOTH)
def test_depth_costs_no_stack(execution):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        return f(n - 1) + 1 if n > 0 else 0

    assert f(20_000, execution=execution).numpy() == 20_000

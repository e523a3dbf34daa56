"""Effects inside bodies: as many as there are calls, in the order of eager recursion."""

import contextlib
import io
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT, Eager, logged
from tf_ext import recursion

RUNS_EFFECTS = ("invoke", "auto")


def journal():
    """A variable that keeps a number for every order of events: v = v * 3 + code."""
    return tf.Variable(1, dtype=tf.int64)


def note(variable, code):
    variable.assign((variable * 3 + tf.cast(code, tf.int64)) % 1_000_003)


def same_journal(build, *args):
    """Runs `build(new, log)` eagerly and in the graph, and compares results and the order of what was noted."""
    log = journal()
    expected = build(Eager, log)(*args)
    order = log.numpy()
    for execution in RUNS_EFFECTS:
        log = journal()
        graph = build(recursion.SubGraph, log)
        result = tf.function(lambda *a, g=graph, e=execution: g(*a, execution=e))(*args)
        tf.nest.map_structure(np.testing.assert_allclose, result, expected)
        assert log.numpy() == order, execution
    assert order != 1


@pytest.mark.parametrize("execution", RUNS_EFFECTS)
def test_one_assignment_per_call(execution):
    count = tf.Variable(0)
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        count.assign_add(1)
        return f(n - 1) + f(n - 1) if n > 0 else 1

    run = tf.function(lambda n: f(n, execution=execution))
    assert run(tf.constant(6)).numpy() == 64
    assert count.numpy() == 127
    assert run(tf.constant(6)).numpy() == 64
    assert count.numpy() == 254


def test_effects_before_between_and_after_calls():
    def build(new, log):
        f = new("f", [INT], INT)

        @f.define
        def body(n):
            note(log, 1)
            if n <= 0:
                note(log, 2)
                return 1
            a = f(n - 1)
            note(log, n)
            b = f(n - 2)
            note(log, a)
            return a + b

        return f

    same_journal(build, 6)


def test_effects_in_branches_beside_calls():
    def build(new, log):
        f = new("f", [INT], INT)

        def left(n):
            note(log, 5)
            return f(n - 1)

        def right(n):
            note(log, 7)
            return n

        @f.define
        def body(n):
            a = tf.cond(n % 2 == 0, lambda: left(n), lambda: right(n))
            b = tf.cond(n > 2, lambda: f(n - 3), lambda: right(n))
            if n > 4:
                note(log, 11)
            return a + b

        return f

    same_journal(build, 9)


def test_effects_without_data_in_common_with_the_results():
    def build(new, log):
        f = new("f", [INT], INT)

        @f.define
        def body(n):
            with tf.control_dependencies([log.assign(log * 3 + tf.cast(n, tf.int64))]):
                m = tf.identity(n)
            if m > 0:
                f(m - 1)  # for what it does
            return n

        return f

    same_journal(build, 8)


def test_effects_in_maps_and_mutual_recursion():
    def build(new, log):
        f, g = new("f", [INT], INT), new("g", [INT], INT)

        @f.define
        def f_body(n):
            note(log, 2)
            return tf.reduce_sum(g.map(tf.range(0, n))) + 1

        @g.define
        def g_body(n):
            x = f(n - 1) if n > 0 else 1
            note(log, 1)
            return x

        return f

    same_journal(build, 5)


def test_reads_see_what_was_assigned_before_them():
    def build(new, log):
        f = new("f", [INT], INT)

        @f.define
        def body(n):
            before = tf.cast(log, tf.int32) % 1000
            log.assign_add(tf.cast(n + 1, tf.int64))
            below = f(n - 1) if n > 0 else 0
            after = tf.cast(log, tf.int32) % 1000
            return before * 2 + below + after

        return f

    same_journal(build, 7)


def test_effects_inside_a_function_and_a_loop_of_a_body():
    def build(new, log):
        @tf.function
        def inner(n):
            note(log, 4)
            return n

        f = new("f", [INT], INT)

        @f.define
        def body(n):
            n = inner(n)
            for i in tf.range(n):
                note(log, i)
            return f(n - 1) if n > 0 else 0

        return f

    same_journal(build, 4)


def test_a_counter_is_not_taken_for_the_state_of_a_seed_generator():
    for dtype, start in ((tf.int64, 0), (tf.int32, [0, 0])):
        count = tf.Variable(start, dtype=dtype)
        f = recursion.SubGraph("f", [INT], INT)

        @f.define
        def body(n, count=count, f=f):
            count.assign(count + 1)
            return f(n - 1) if n > 0 else 0

        f(4)
        np.testing.assert_array_equal(count, np.asarray(start) + 5)


@pytest.mark.parametrize("execution", RUNS_EFFECTS)
def test_prints_come_in_order(execution, capfd):
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        tf.print("enter", n)
        result = f(n - 1) + f(n - 2) if n > 1 else n
        tf.print("leave", n)
        return result

    def eager(n):
        print("enter", n)
        result = eager(n - 1) + eager(n - 2) if n > 1 else n
        print("leave", n)
        return result

    tf.function(lambda: f(4, execution=execution))()
    printed = re.findall("(?:enter|leave) -?[0-9]+", capfd.readouterr().err)
    with contextlib.redirect_stdout(io.StringIO()) as expected:
        eager(4)
    assert printed == expected.getvalue().split("\n")[:-1]


@pytest.mark.parametrize("execution", RUNS_EFFECTS)
def test_python_functions(execution):
    seen = []
    f = recursion.SubGraph("f", [INT], INT)

    def square(n):
        seen.append(int(n))
        return n * n

    @f.define
    def body(n):
        m = tf.ensure_shape(tf.py_function(square, [n], tf.int32), [])
        return m + f(n - 1) if n > 0 else 0

    assert f(4, execution=execution).numpy() == 30
    assert seen == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("name", ["AssignAddVariableOp", "PrintV2", "EagerPyFunc"])
def test_batches_are_refused_by_name_and_auto_says_why(name):
    count = tf.Variable(0)
    effects = {
        "AssignAddVariableOp": lambda n: count.assign_add(n),
        "PrintV2": lambda n: tf.print(n, output_stream="file:///dev/null"),
        "EagerPyFunc": lambda n: tf.py_function(lambda x: None, [n], []),
    }
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        effects[name](n)
        return f(n - 1) if n > 0 else 0

    with pytest.raises(recursion.BatchingError, match=f"'f'.*{name}.*invoke"):
        f(2, execution="batched")
    with logged() as lines:
        f(2)
    assert any(name in line and "invoke" in line for line in lines), lines


@pytest.mark.parametrize("execution", [*BOTH, "auto"])
@pytest.mark.parametrize("where", ["leaf", "after", "branch", "floats", "function"])
def test_assertions_surface_with_their_message(execution, where):
    f = recursion.SubGraph("walk", [INT], INT)

    @tf.function
    def checked(n):
        tf.debugging.assert_less(n, 3, message="a leaf is wrong")
        return n

    @f.define
    def body(n):
        if n <= 0:
            if where == "leaf":
                tf.debugging.assert_positive(n + 1 - 1, message="a leaf is wrong")
            return 0
        below = f(n - 1)
        if where == "after":
            tf.debugging.assert_less(below + n, 3, message="a leaf is wrong")
        if where == "floats":
            tf.debugging.assert_less(tf.cast(below + n, tf.float32), 3.0, message="a leaf is wrong")
        if where == "function":
            n = checked(n)
        if where == "branch" and n > 2:
            tf.debugging.Assert(n < 3, ["a leaf is wrong", n])
        return below + n

    if where == "function" and execution == "batched":
        with pytest.raises(recursion.BatchingError, match="assertion"):
            f(5, execution=execution)
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="a leaf is wrong") as error:
        tf.function(lambda n: f(n, execution=execution))(tf.constant(5))
    assert "SubGraph 'walk" in str(error.value)


@pytest.mark.parametrize("execution", [*BOTH, "auto"])
def test_assertions_that_hold_do_not_matter(execution):
    f = recursion.SubGraph("f", [INT, FLOAT], FLOAT)

    @f.define
    def body(n, x):
        tf.debugging.assert_less(n, 100)
        tf.debugging.assert_equal(tf.shape(x), tf.zeros([0], tf.int32))
        return f(n - 1, x * 0.5) + f(n - 2, x) if n > 0 else x

    with tf.GradientTape() as tape:
        x = tf.constant(2.0)
        tape.watch(x)
        y = f(4, x, execution=execution)
    assert y.numpy() > 0
    assert tape.gradient(y, x).numpy() == pytest.approx(y.numpy() / 2.0)


def test_gradients_flow_beside_effects():
    count, w = tf.Variable(0), tf.Variable(0.7)
    f = recursion.SubGraph("f", [INT, FLOAT], FLOAT)

    @f.define
    def body(n, x):
        count.assign_add(1)
        return tf.sin(f(n - 1, x * w)) if n > 0 else x

    x = tf.constant(0.8)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(3, x)
    dx, dw = tape.gradient(y, [x, w])

    with tf.GradientTape() as tape:
        tape.watch(x)
        z = tf.sin(tf.sin(tf.sin(x * w * w * w)))
    np.testing.assert_allclose([dx, dw], tape.gradient(z, [x, w]), rtol=1e-5)
    assert count.numpy() == 4


def test_an_effect_at_a_root_that_nobody_reads():
    count = tf.Variable(0)
    f = recursion.SubGraph("f", [INT], INT)

    @f.define
    def body(n):
        count.assign_add(1)
        return f(n - 1) if n > 0 else 0

    @tf.function
    def run():
        f(3)
        f(3)
        return count.read_value()

    assert run().numpy() == 8

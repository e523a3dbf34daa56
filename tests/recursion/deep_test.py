"""Depth and memory."""

import subprocess
import sys
import time

import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT, environment
from tf_ext import recursion


def chain():
    f = recursion.SubGraph("chain", [INT, FLOAT], FLOAT)

    @f.define
    def body(n, x):
        return f(n - 1, x) * 0.9999 + 0.0001 if n > 0 else x

    return f


@pytest.mark.parametrize("execution", BOTH)
def test_a_chain_of_a_hundred_thousand(execution):
    expected = 1.0 - 0.5 * 0.9999**100_000
    y = chain()(100_000, 0.5, execution=execution)
    assert y.numpy() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("execution", BOTH)
def test_the_gradient_of_a_chain_of_ten_thousand(execution):
    x = tf.constant(0.5)
    f = chain()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(10_000, x, execution=execution)
    assert tape.gradient(y, x).numpy() == pytest.approx(0.9999**10_000, rel=1e-3)


_STEPS = """
import gc, resource, sys
import tensorflow as tf
from tf_ext import recursion

f = recursion.SubGraph("f", [tf.TensorSpec([], tf.int32), tf.TensorSpec([32])], tf.TensorSpec([32]))
w = tf.Variable(tf.random.normal([32, 32]) * 0.1)

@f.define
def body(n, x):
    return tf.tanh(tf.linalg.matvec(w, f(n - 1, x) + f(n - 1, x * 0.5))) if n > 0 else x

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(f(8, x, execution=sys.argv[1]))
    return tape.gradient(loss, w)

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

x = tf.ones([32])
for _ in range(30):
    step(x)
before = resident()
for _ in range(200):
    step(x)
print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("execution", BOTH)
def test_two_hundred_steps_show_no_growth(execution, tmp_path):
    script = tmp_path / "steps.py"  # AutoGraph wants to read its source
    script.write_text(_STEPS)
    command = [sys.executable, str(script), execution]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    # One step keeps 511 frames of some rows of 128 bytes: 200 of them would be tens of megabytes.
    assert int(done.stdout) < 8 << 20


@pytest.mark.parametrize("execution", BOTH)
def test_an_endless_recursion_ends_before_memory_does(execution):
    f = recursion.SubGraph("f", [INT], INT, max_live_calls=100_000)

    @f.define
    def body(n):
        return f(n + 1) + f(n + 1)

    start = time.monotonic()
    with pytest.raises(tf.errors.ResourceExhaustedError, match="max_depth|max_live_calls"):
        f(0, execution=execution)
    assert time.monotonic() - start < 60

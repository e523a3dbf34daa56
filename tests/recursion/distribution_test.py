"""Recursions on several replicas."""

import subprocess
import sys

import pytest

from tests.recursion.checking import BOTH, environment

_TRAIN = """
import sys
import numpy as np
import tensorflow as tf
from tf_ext import recursion

execution = sys.argv[1]
cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
SPEC = tf.TensorSpec([3])
X = np.linspace(-1, 1, 24).reshape(8, 3).astype(np.float32)
N = np.arange(8, dtype=np.int32) % 4


def make():
    w = tf.Variable(np.eye(3, dtype=np.float32) * 0.7)
    table = tf.Variable(np.linspace(0, 1, 18).reshape(6, 3).astype(np.float32))
    f = recursion.SubGraph("f", [tf.TensorSpec([], tf.int32), SPEC], SPEC)

    @f.define
    def body(n, x):
        here = tf.gather(table, n + 1)
        if n <= 0:
            return x * here
        return tf.tanh(tf.linalg.matvec(w, f(n - 1, x) + f(n - 2, x))) + here

    def loss(n, x):
        return tf.reduce_sum(f.map(n, x, execution=execution) ** 2)

    return [w, table], loss


def step(variables, loss, n, x):
    with tf.GradientTape() as tape:
        value = loss(n, x)
    gradients = tape.gradient(value, variables)
    return value, [tf.convert_to_tensor(g) for g in gradients]


strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
with strategy.scope():
    variables, loss = make()
data = tf.data.Dataset.from_tensor_slices((N, X)).batch(8)


@tf.function
def distributed(n, x):
    def replica(n, x):
        value, gradients = step(variables, loss, n, x)
        gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for v, g in zip(variables, gradients):
            v.assign_sub(0.01 * g)
        return value

    return strategy.reduce("sum", strategy.run(replica, args=(n, x)), axis=None)


alone, alone_loss = make()
for _ in range(3):
    for n, x in strategy.experimental_distribute_dataset(data):
        together = distributed(n, x)
    value, gradients = tf.function(step)(alone, alone_loss, tf.constant(N), tf.constant(X))
    np.testing.assert_allclose(together, value, rtol=1e-5)
    for v, g in zip(alone, gradients):
        v.assign_sub(0.01 * g)
for a, b in zip(variables, alone):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
print("equal")
"""


@pytest.mark.parametrize("execution", BOTH)
def test_two_replicas_train_as_one(execution, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(_TRAIN)
    command = [sys.executable, str(script), execution]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("equal")

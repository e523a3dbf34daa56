"""SavedModels of recursions, loaded in a fresh process that has not seen their Python code."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, INT, environment, vector
from tf_ext import recursion

SIZE = 4
X = np.linspace(-0.5, 0.7, SIZE).astype(np.float32)

_LOAD = """
import sys
import numpy as np
import tensorflow as tf
import tf_ext.recursion

model = tf.saved_model.load(sys.argv[1])
x = tf.constant(np.load(sys.argv[2])["x"])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = model(tf.constant(5), x)
    loss = tf.reduce_sum(y * y)
dx, dw, dt = tape.gradient(loss, [x, model.weights, model.table])
model.weights.assign(model.weights * 2.0)
served = model.signatures["serving_default"](n=tf.constant(5), x=x)
np.savez(sys.argv[3], y=y, dx=dx, dw=dw, dt=tf.convert_to_tensor(dt), doubled=list(served.values())[0])
"""


class Model(tf.Module):
    def __init__(self, execution):
        super().__init__()
        random = np.random.default_rng(0)
        self.weights = tf.Variable(random.normal(size=[SIZE, SIZE]).astype(np.float32) * 0.4)
        self.table = tf.Variable(random.normal(size=[9, SIZE]).astype(np.float32))
        self.execution = execution
        self.f = recursion.SubGraph("f", [INT, vector(SIZE)], vector(SIZE))

        @tf.function
        def mixed(x, y):
            return tf.nn.silu(x) * y

        @self.f.define
        def body(n, x):
            here = tf.gather(self.table, n + 2)
            if n <= 0:
                return x + here
            hidden = tf.linalg.matvec(self.weights, self.f(n - 1, x) + self.f(n - 2, x * 0.5))
            return tf.tanh(hidden) + (mixed(hidden, here) if execution == "invoke" else hidden * here)

    @tf.function(input_signature=[INT, vector(SIZE)])
    def __call__(self, n, x):
        return self.f(n, x, execution=self.execution)


def gradients(model):
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(tf.constant(5), x)
        loss = tf.reduce_sum(y * y)
    return y, tape.gradient(loss, [x, model.weights, model.table])


@pytest.mark.parametrize("execution", BOTH)
@pytest.mark.parametrize("with_gradients", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_values_and_gradients_in_a_fresh_process(execution, with_gradients, tmp_path: pathlib.Path):
    model = Model(execution)
    y, (dx, dw, dt) = gradients(model)
    # Without, the loading program differentiates by the recursion's own gradient alone.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=with_gradients)
    tf.saved_model.save(model, str(tmp_path / "model"), options=options)
    np.savez(tmp_path / "in.npz", x=X)
    paths = [str(tmp_path / name) for name in ("model", "in.npz", "out.npz")]
    command = [sys.executable, "-c", _LOAD, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    loaded = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(loaded["y"], y, rtol=1e-6)
    np.testing.assert_allclose(loaded["dx"], dx, rtol=1e-5)
    np.testing.assert_allclose(loaded["dw"], dw, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(loaded["dt"], tf.convert_to_tensor(dt), rtol=1e-5, atol=1e-7)
    model.weights.assign(model.weights * 2.0)
    np.testing.assert_allclose(loaded["doubled"], model(tf.constant(5), X), rtol=1e-6)


@pytest.mark.parametrize("execution", BOTH)
def test_loaded_in_the_same_process_and_saved_again(execution, tmp_path: pathlib.Path):
    model = Model(execution)
    y, (dx, dw, _) = gradients(model)
    tf.saved_model.save(model, str(tmp_path / "first"))
    once = tf.saved_model.load(str(tmp_path / "first"))
    tf.saved_model.save(once, str(tmp_path / "second"))
    twice = tf.saved_model.load(str(tmp_path / "second"))
    for loaded in (once, twice):
        y2, (dx2, dw2, _) = gradients(loaded)
        np.testing.assert_allclose(y2, y, rtol=1e-6)
        np.testing.assert_allclose(dx2, dx, rtol=1e-5)
        np.testing.assert_allclose(dw2, dw, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_without_the_package_the_error_names_the_operator(tmp_path: pathlib.Path):
    tf.saved_model.save(Model("batched"), str(tmp_path / "model"))
    code = f"import tensorflow as tf; tf.saved_model.load({str(tmp_path / 'model')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "TfExtRecursion" in done.stderr

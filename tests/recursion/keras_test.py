"""Recursions in Keras layers and models."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, INT, vector
from tf_ext import recursion

SIZE = 4


@keras.saving.register_keras_serializable("tf_ext_tests")
class Mixing(keras.layers.Layer):
    """A recursion per row, with a dense layer and dropout inside."""

    def __init__(self, units=SIZE, execution="auto", rate=0.0, **kwargs):
        kwargs.setdefault("dtype", None)
        super().__init__(**kwargs)
        self.supports_jit = False
        self.units, self.execution, self.rate = units, execution, rate
        self.dense = keras.layers.Dense(units, activation="tanh", dtype=self.dtype_policy)
        self.dropout = keras.layers.Dropout(rate, seed=3, dtype=self.dtype_policy)

    def build(self, shape):
        self.dense.build([None, self.units])

    def call(self, inputs, training=False):
        kind = tf.as_dtype(self.compute_dtype)
        f = recursion.SubGraph("mixing", [INT, vector(self.units, kind)], vector(self.units, kind))

        @f.define
        def body(n, x):
            if n <= 0:
                return x
            below = (f(n - 1, x) + f(n - 2, x * 0.5))[tf.newaxis]
            return self.dropout(self.dense(below), training=training)[0]

        x, depth = inputs
        return f.map(tf.reshape(tf.cast(depth, tf.int32), [-1]), tf.cast(x, kind), execution=self.execution)

    def compute_output_shape(self, shapes):
        return shapes[0]

    def get_config(self):
        return {**super().get_config(), "units": self.units, "execution": self.execution, "rate": self.rate}


def make_model(execution="auto", rate=0.0, **kwargs):
    keras.utils.set_random_seed(5)
    x, depth = keras.Input([SIZE]), keras.Input([], dtype="int32")
    y = Mixing(execution=execution, rate=rate, **kwargs)([x, depth])
    model = keras.Model([x, depth], keras.layers.Dense(1, dtype="float32")(y))
    model.compile(optimizer=keras.optimizers.Adam(0.02), loss="mse")
    return model


def data(rows=48):
    random = np.random.default_rng(0)
    x = random.normal(size=[rows, SIZE]).astype(np.float32)
    depth = random.integers(0, 5, size=[rows]).astype(np.int32)
    return [x, depth], (x[:, :1] * 0.5 + 0.1 * depth[:, np.newaxis]).astype(np.float32)


@pytest.mark.parametrize("execution", BOTH)
def test_fit_evaluate_predict(execution):
    model = make_model(execution)
    x, y = data()
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, epochs=8, batch_size=16, verbose=0)
    after = model.evaluate(x, y, verbose=0)
    assert after < 0.7 * before
    predicted = model.predict(x, batch_size=20, verbose=0)
    assert predicted.shape == (48, 1)
    assert np.mean((predicted - y) ** 2) == pytest.approx(after, rel=1e-4)


def test_executions_train_alike():
    x, y = data(16)
    losses = [make_model(e, rate=0.3).fit(x, y, epochs=3, batch_size=8, verbose=0).history["loss"] for e in BOTH]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize("execution", BOTH)
def test_save_and_load(execution, tmp_path: pathlib.Path):
    model = make_model(execution)
    x, y = data()
    model.fit(x, y, epochs=1, verbose=0)
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)
    loaded.fit(x, y, epochs=1, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    other = make_model(execution)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(other.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)
    model.export(str(tmp_path / "exported"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    served = exported.serve([tf.constant(x[0]), tf.constant(x[1])])
    np.testing.assert_allclose(served, expected, rtol=1e-5, atol=1e-6)


def test_dropout_trains_and_is_off_in_prediction():
    model = make_model(rate=0.5)
    x, y = data()
    first, second = model.predict(x, verbose=0), model.predict(x, verbose=0)
    np.testing.assert_array_equal(first, second)
    noisy = [model(x, training=True).numpy() for _ in range(2)]
    assert np.any(noisy[0] != noisy[1])
    model.fit(x, y, epochs=2, verbose=0)


@pytest.mark.parametrize("execution", BOTH)
def test_mixed_precision(execution):
    model = make_model(execution, dtype="mixed_bfloat16")
    x, y = data()
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, epochs=8, batch_size=16, verbose=0)
    assert model.evaluate(x, y, verbose=0) < 0.9 * before
    assert all(v.dtype == "float32" for v in model.trainable_variables)


def test_keras_compiles_no_layer_that_says_it_cannot_be():
    """A function with jit_compile=True is refused (refusals_test.py); Keras asks the layer first."""
    model = make_model()
    model.compile(loss="mse", jit_compile=True)
    x, y = data(8)
    assert np.isfinite(model.fit(x, y, verbose=0).history["loss"]).all()


def test_a_subclassed_model_with_a_custom_step():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.mixing = Mixing()
            self.head = keras.layers.Dense(1)

        def call(self, inputs, training=False):
            return self.head(self.mixing(inputs, training=training))

    keras.utils.set_random_seed(1)
    model = Own()
    model.compile("adam", "mse", jit_compile=False)
    x, y = data(16)
    model.fit(tf.data.Dataset.from_tensor_slices(((x[0], x[1]), y)).batch(8), epochs=1, verbose=0)
    assert model.predict(x, verbose=0).shape == (16, 1)

"""Random numbers in bodies: of each call's own, the same in both executions, told by seeds."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, INT, vector
from tf_ext import recursion

SIZE = 5
DRAWS = {
    "uniform": lambda: tf.random.uniform([SIZE]),
    "uniform_range": lambda: tf.random.uniform([SIZE], -3.0, 5.0),
    "normal": lambda: tf.random.normal([SIZE], 2.0, 0.5),
    "truncated": lambda: tf.random.truncated_normal([SIZE]),
    "integers": lambda: tf.cast(tf.random.uniform([SIZE], 0, 1 << 30, tf.int32), tf.float32) / (1 << 30),
}


def leaves(draw):
    """2^n rows, one drawn in each leaf."""
    f = recursion.SubGraph("f", [INT], vector(None))

    @f.define
    def body(n):
        if n == 0:
            return draw()
        return tf.concat([f(n - 1), f(n - 1)], 0)

    return f


def rows_of(f, depth, execution):
    run = tf.function(lambda: f(depth, execution=execution))
    return [np.reshape(run(), [-1, SIZE]) for _ in range(2)]


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_of_siblings_and_steps_differ_and_executions_agree(name):
    found = {}
    for execution in BOTH:
        tf.random.set_seed(7)
        found[execution] = rows_of(leaves(DRAWS[name]), 4, execution)
        first, second = found[execution]
        assert len(np.unique(first)) == first.size
        assert len(np.unique(np.concatenate([first, second]))) == 2 * first.size
    np.testing.assert_array_equal(found["invoke"], found["batched"])


def test_the_seed_tells_the_numbers():
    found = []
    for seed in (7, 7, 8):
        tf.random.set_seed(seed)
        found.append(rows_of(leaves(DRAWS["uniform"]), 3, "auto"))
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.any(np.equal(found[0], found[2]))


def test_a_seed_of_the_operation_tells_the_numbers():
    found = []
    for _ in range(2):
        tf.random.set_seed(1)
        found.append(rows_of(leaves(lambda: tf.random.normal([SIZE], seed=5)), 3, "auto"))
    np.testing.assert_array_equal(found[0], found[1])


def test_two_draws_in_one_body_differ():
    f = leaves(lambda: tf.random.uniform([SIZE]) - tf.random.uniform([SIZE]))
    for execution in BOTH:
        assert np.abs(rows_of(f, 3, execution)[0]).min() > 0


@pytest.mark.parametrize(
    ("name", "mean", "deviation"), [("uniform", 0.5, 12**-0.5), ("normal", 2.0, 0.5), ("truncated", 0.0, 0.8796)]
)
def test_moments(name, mean, deviation):
    for execution in BOTH:
        tf.random.set_seed(3)
        rows = rows_of(leaves(DRAWS[name]), 11, execution)[0]
        assert rows.size == 2048 * SIZE
        assert rows.mean() == pytest.approx(mean, abs=5 * deviation / rows.size**0.5)
        assert rows.std() == pytest.approx(deviation, rel=0.05)


def test_stateless_numbers_are_the_user_s_own():
    """The same seed gives the same numbers, as everywhere in TensorFlow; other seeds, others."""
    f = recursion.SubGraph("f", [INT, INT], vector(None))

    @f.define
    def body(n, path):
        if n == 0:
            return tf.random.stateless_uniform([SIZE], tf.stack([path, 3]))
        return tf.concat([f(n - 1, path * 2), f(n - 1, path * 2 + 1)], 0)

    expected = np.concatenate([tf.random.stateless_uniform([SIZE], [path, 3]) for path in range(8, 16)])
    for execution in ("invoke", "auto"):
        np.testing.assert_array_equal(f(3, 1, execution=execution), expected)


@pytest.mark.parametrize("training", [True, False])
def test_keras_dropout(training):
    found = {}
    for execution in BOTH:
        layer = keras.layers.Dropout(0.4, seed=11)
        f = recursion.SubGraph("f", [INT, vector(SIZE)], vector(None))

        @f.define
        def body(n, x, layer=layer, f=f):
            x = layer(x[tf.newaxis], training=training)[0]
            return x if n == 0 else tf.concat([f(n - 1, tf.ones([SIZE])), f(n - 1, tf.ones([SIZE]))], 0)

        run = tf.function(lambda e=execution, f=f: f(8, tf.ones([SIZE]), execution=e))
        found[execution] = [np.reshape(run(), [-1, SIZE]) for _ in range(2)]
        first, second = found[execution]
        if not training:
            np.testing.assert_array_equal(first, 1.0)
            continue
        assert set(np.unique(first)) == {np.float32(0.0), np.float32(1 / 0.6)}
        assert len(np.unique(first, axis=0)) > 20  # of 32
        assert np.any(first != second)
        assert first.mean() == pytest.approx(1.0, abs=0.15)
    np.testing.assert_array_equal(found["invoke"], found["batched"])


def test_a_keras_seed_generator_moves_on_by_steps_and_is_reproducible():
    found = []
    for _ in range(2):
        generator = keras.random.SeedGenerator(5)
        f = leaves(lambda generator=generator: keras.random.normal([SIZE], seed=generator))
        state = generator.state.numpy().copy()
        found.append(rows_of(f, 3, "auto"))
        assert np.any(generator.state.numpy() != state)
    np.testing.assert_array_equal(found[0], found[1])
    assert np.all(found[0][0] != found[0][1])


def test_the_gradient_sees_the_numbers_of_the_forward_run():
    for execution in BOTH:
        f = recursion.SubGraph("f", [INT, vector(SIZE)], vector(SIZE))

        @f.define
        def body(n, x, f=f):
            mask = tf.cast(tf.random.uniform([SIZE]) < 0.6, tf.float32)
            return (f(n - 1, x) + f(n - 1, x)) * mask if n > 0 else x * mask

        x = tf.ones([SIZE])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(3, x, execution=execution)
        np.testing.assert_allclose(tape.gradient(y, x), y)  # linear in x


def test_draws_inside_a_condition_without_calls():
    f = recursion.SubGraph("f", [INT], vector(None))

    @f.define
    def body(n):
        noise = tf.cond(n % 2 == 0, lambda: tf.random.uniform([SIZE]), lambda: -tf.random.uniform([SIZE]))
        return noise if n == 0 else tf.concat([f(n - 1), f(n - 1), noise], 0)

    found = {}
    for execution in BOTH:
        tf.random.set_seed(7)
        first, second = rows_of(f, 3, execution)
        found[execution] = first
        assert len(np.unique(np.abs(np.concatenate([first, second])))) == 2 * first.size
    np.testing.assert_array_equal(found["invoke"], found["batched"])

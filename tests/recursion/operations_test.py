"""Operators and layers inside bodies: the same in both executions as in eager mode."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT, check, logged, vector
from tf_ext import recursion

SIZE = 4
RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=[SIZE]).astype(np.float32)


def weight(*shape):
    return tf.Variable(RANDOM.normal(size=shape).astype(np.float32) * 0.5)


def recur(step, *, state=None, depth=4):
    """A body with two calls around `step(n, x)`, so that rows of several calls meet in a batch."""
    spec = vector(SIZE) if state is None else state

    def build(new):
        f = new("f", [INT, spec], spec)

        @f.define
        def body(n, x):
            if n <= 0:
                return tf.nest.map_structure(lambda t: t * 0.5, x)
            a, b = f(n - 1, x), f(n - 2, x)
            return step(n, tf.nest.map_structure(lambda s, t: s + t * 0.5, a, b))

        return f

    return build, depth


def check_step(step, x=X, watch=(), state=None, executions=("invoke", "batched"), **kwargs):
    build, depth = recur(step, state=state)
    return check(build, depth, x, watch=watch, executions=executions, **kwargs)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("side", ["left", "right"])
def test_products_in_all_forms(side, transpose_a, transpose_b):
    w = weight(SIZE, SIZE)

    def step(n, x):
        lines = tf.stack([x, tf.sin(x), x * x, x + 1.0])
        a, b = (w, lines) if side == "left" else (lines, w)
        return tf.reduce_sum(tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b), 0) * 0.2

    check_step(step, watch=[w])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("transpose", [False, True])
def test_products_of_one_line_or_column(side, transpose):
    w = weight(SIZE, SIZE)

    def step(n, x):
        if side == "right":
            return tf.reshape(tf.matmul(x[tf.newaxis], w, transpose_b=transpose), [SIZE])
        return tf.reshape(tf.matmul(w, x[:, tf.newaxis], transpose_a=transpose), [SIZE])

    check_step(step, watch=[w])


def test_products_that_are_not_square():
    w, back = weight(SIZE, 7), weight(7, SIZE)
    check_step(
        lambda n, x: tf.linalg.matvec(back, tf.nn.relu(tf.linalg.matvec(w, x, transpose_a=True)), transpose_a=True),
        watch=[w, back],
    )


def test_products_of_two_states_and_outer_products():
    def step(n, x):
        outer = x[:, tf.newaxis] * x[tf.newaxis]
        return tf.linalg.matvec(tf.matmul(outer, tf.tanh(outer), transpose_b=True), x) * 0.1

    check_step(step)


def test_batch_products():
    heads = weight(2, 2, SIZE)

    def step(n, x):
        y = tf.matmul(heads, tf.tile(x[tf.newaxis, :, tf.newaxis], [2, 1, 1]))
        z = tf.matmul(y, heads, transpose_a=True)
        return tf.tanh(tf.reduce_sum(z, [0, 1]) * 0.3)

    check_step(step, watch=[heads])


def test_a_bilinear_tensor_by_einsum():
    v = weight(SIZE, SIZE, SIZE)
    check_step(lambda n, x: tf.tanh(tf.einsum("i,ijk,j->k", x, v, tf.sin(x)) * 0.3), watch=[v])


def test_a_weight_used_twice_and_through_a_cast():
    w = weight(SIZE, SIZE)

    def step(n, x):
        y = tf.linalg.matvec(w, x) + tf.linalg.matvec(w, tf.sin(x), transpose_a=True)
        return y + tf.cast(tf.linalg.matvec(tf.cast(w, tf.float64), tf.cast(x, tf.float64)), tf.float32) * 0.1

    check_step(step, watch=[w])


STEPS = {
    "concat": lambda n, x: tf.concat([x[:2], x[2:] * 2.0], 0),
    "concat_with_constant": lambda n, x: tf.concat([x[:-1], [0.5]], -1),
    "split": lambda n, x: tf.concat(tf.split(x, 2)[::-1], 0),
    "split_sizes": lambda n, x: tf.concat(tf.split(x, [1, 3])[::-1], 0),
    "stack": lambda n, x: tf.reduce_sum(tf.stack([x, x * 2.0, tf.ones_like(x)], axis=-1), 1),
    "unstack": lambda n, x: tf.stack(tf.unstack(x)[::-1]),
    "transpose": lambda n, x: tf.reshape(tf.transpose(tf.reshape(x, [2, 2])), [4]),
    "reshape_unknown": lambda n, x: tf.reshape(tf.reshape(x, [2, -1]), tf.shape(x)),
    "reverse": lambda n, x: tf.reverse(x, [0]),
    "mean_max": lambda n, x: x - tf.reduce_mean(x) + tf.reduce_max(x, keepdims=True),
    "prod_min": lambda n, x: x * tf.tanh(tf.reduce_prod(x + 1.5)) - 0.1 * tf.reduce_min(x, axis=-1),
    "logsumexp": lambda n, x: x - tf.reduce_logsumexp(x),
    "norm": lambda n, x: x / (tf.norm(x) + 1.0),
    "l2_normalize": lambda n, x: tf.math.l2_normalize(x),
    "softmax": lambda n, x: tf.nn.softmax(x),
    "log_softmax": lambda n, x: tf.nn.log_softmax(x),
    "one_hot": lambda n, x: x * tf.one_hot(n % 4, SIZE) + tf.one_hot([0, 1], SIZE)[1],
    "where": lambda n, x: tf.where(x > 0.1, x, -0.5 * x),
    "where_scalar": lambda n, x: tf.where(n > 2, x, 2.0 * x),
    "cast": lambda n, x: x * tf.cast(n, tf.float32) / 5.0,
    "clip": lambda n, x: tf.clip_by_value(x, -0.4, 0.4),
    "clip_norm": lambda n, x: tf.clip_by_norm(x, 0.5),
    "cumsum": lambda n, x: tf.cumsum(x) * 0.5,
    "pow": lambda n, x: tf.abs(x) ** 1.5,
    "maximum": lambda n, x: tf.maximum(x, tf.cast(n, tf.float32) * 0.1),
    "pad": lambda n, x: tf.pad(x[1:3], [[1, 1]]),
    "tile": lambda n, x: tf.tile(x[:2], [2]),
    "repeat": lambda n, x: tf.repeat(x[:2], 2),
    "gather_state": lambda n, x: tf.gather(x, [3, 2, 1, 0]),
    "gather_dynamic": lambda n, x: x * tf.gather(x, n % 4),
    "index_state": lambda n, x: x * x[n % 4] + x[-1] + x[-(n % 4) - 1],
    "scatter": lambda n, x: tf.tensor_scatter_nd_update(x, [[1]], [0.5]),
    "top_k": lambda n, x: tf.math.top_k(x, k=SIZE).values,
    "sort": lambda n, x: tf.sort(x),
    "argmax": lambda n, x: x * tf.cast(tf.argmax(x), tf.float32),
    "erf_gelu": lambda n, x: tf.nn.gelu(x),
    "leaky_elu_selu": lambda n, x: tf.nn.leaky_relu(x) + tf.nn.elu(x) + tf.nn.selu(x) + tf.nn.silu(x),
    "moments": lambda n, x: (x - tf.nn.moments(x, 0)[0]) / (tf.nn.moments(x, 0)[1] + 0.5),
    "linspace": lambda n, x: x * tf.linspace(0.1, 0.9, SIZE),
    "range": lambda n, x: x * tf.range(SIZE, dtype=tf.float32),
    "fill": lambda n, x: x + tf.fill([SIZE], 0.25) * tf.zeros_like(x) + tf.ones(SIZE),
    "shape_of_state": lambda n, x: x / tf.cast(tf.size(x), tf.float32) + tf.cast(tf.shape(x)[0], tf.float32),
    "conv1d": lambda n, x: tf.reshape(
        tf.nn.conv1d(x[tf.newaxis, :, tf.newaxis], tf.ones([3, 1, 1]), 1, "SAME"), [SIZE]
    ),
    "eye": lambda n, x: tf.linalg.matvec(tf.eye(SIZE) * 0.5, x),
    "diag": lambda n, x: tf.linalg.diag_part(tf.linalg.diag(x) * 0.3),
    "atan2_etc": lambda n, x: (
        tf.atan2(x, 2.0) + tf.tanh(tf.sinh(x) * tf.cosh(x)) + tf.math.log1p(tf.exp(x)) + tf.math.rsqrt(x * x + 1.0)
    ),
    "ensure_shape": lambda n, x: tf.ensure_shape(x, [SIZE]),
    "identity_n": lambda n, x: tf.identity_n([x, x * 2.0])[1],
    "add_n": lambda n, x: tf.add_n([x, x, tf.ones_like(x)]),
    "broadcast_to": lambda n, x: tf.broadcast_to(tf.reduce_sum(x), [SIZE]) * 0.1,
    "meshgrid": lambda n, x: tf.reduce_sum(tf.meshgrid(x, x)[0], 0) * 0.1,
    "searchsorted": lambda n, x: x + tf.cast(tf.searchsorted([0.0, 1.0], x), tf.float32),
    "floor_mod": lambda n, x: tf.math.floormod(x, 0.7),
    "complex": lambda n, x: tf.math.real(tf.complex(x, x) * tf.complex(x, -x)) * 0.3,
    "bool_mask_sum": lambda n, x: (
        x * tf.cast(tf.reduce_any(x > 0.0), tf.float32) * tf.cast(tf.reduce_all(x < 9.0), tf.float32)
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_common_operators(name):
    check_step(STEPS[name])


def test_operators_on_matrices_as_state():
    w = weight(3, 3)

    def step(n, x):
        y = tf.matmul(w, tf.matmul(x, w, transpose_b=True))
        return tf.tanh(y + tf.transpose(y) + tf.reduce_mean(y, 1, keepdims=True) + tf.reduce_max(y, 0))

    check_step(step, RANDOM.normal(size=[3, 3]).astype(np.float32), watch=[w], state=tf.TensorSpec([3, 3]))


def test_rows_of_captured_tables():
    table, numbers = weight(9, SIZE), tf.constant([8, 3, 1, 0, 2, 4])

    def step(n, x):
        return x * table[n] + tf.gather(table, numbers[n]) - table[-1] + tf.gather(table, [n, 0])[0] + table[-n - 1]

    check_step(step, watch=[table])


def test_rows_of_a_captured_tensor_of_three_dimensions():
    table = weight(6, 2, SIZE)
    check_step(lambda n, x: x + tf.reduce_sum(table[n], 0) + tf.gather(table, n)[1], watch=[table])


def test_columns_and_elements_of_captured_tables():
    table = weight(SIZE, 6)
    check_step(
        lambda n, x: x * table[:, n] + table[1, n] + tf.gather(table, n, axis=1) + table[n % 4, 2:6], watch=[table]
    )


def test_gather_nd_and_boolean_values():
    table = weight(6, 3)
    check_step(lambda n, x: x * tf.gather_nd(table, [[n, 1]])[0] + tf.gather_nd(table, [[n, 2]])[0], watch=[table])


@pytest.mark.parametrize("how", ["index", "gather", "variable", "negative"])
def test_an_index_out_of_range_is_an_error(how):
    table = weight(3, SIZE)
    reads = {
        "index": lambda n: tf.convert_to_tensor(table)[n],
        "gather": lambda n: tf.gather(tf.convert_to_tensor(table), n),
        "variable": lambda n: tf.gather(table, n),
        "negative": lambda n: tf.gather(tf.convert_to_tensor(table), -n),
    }
    f = recursion.SubGraph("lookup", [INT], vector(SIZE))

    @f.define
    def body(n):
        return f(n - 1) + f(n - 2) if n > 4 else reads[how](n)

    for execution in BOTH:
        with pytest.raises(tf.errors.InvalidArgumentError, match="lookup"):
            f(6, execution=execution)


def test_an_embedding_s_gradient_stays_slices():
    table = weight(1000, SIZE)
    f = recursion.SubGraph("f", [INT], vector(SIZE))

    @f.define
    def body(n):
        here = tf.nn.embedding_lookup(table, n)
        return f(n - 1) + f(n - 2) * here if n > 1 else here

    def eager(n):
        return eager(n - 1) + eager(n - 2) * table[n] if n > 1 else table[n]

    with tf.GradientTape() as tape:
        expected = tape.gradient(tf.reduce_sum(eager(5)), table)
    for execution in BOTH:
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(f(5, execution=execution))
        gradient = tape.gradient(y, table)
        assert isinstance(gradient, tf.IndexedSlices)
        assert gradient.values.shape[0] == 15  # one row per call
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), tf.convert_to_tensor(expected), rtol=1e-5)


LAYERS = {
    "dense": lambda: keras.layers.Dense(SIZE, activation="tanh"),
    "dense_no_bias": lambda: keras.layers.Dense(SIZE, use_bias=False),
    "layer_normalization": lambda: keras.layers.LayerNormalization(),
    "einsum_dense": lambda: keras.layers.EinsumDense("ab,bc->ac", SIZE, bias_axes="c"),
    "mlp": lambda: keras.Sequential([keras.layers.Dense(6, "relu"), keras.layers.Dense(SIZE)]),
    "rms": lambda: keras.layers.UnitNormalization(),
    "batch_normalization": lambda: keras.layers.BatchNormalization(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_keras_layers(name):
    keras.utils.set_random_seed(3)
    layer = LAYERS[name]()
    layer.build([1, SIZE])
    watch = [v.value for v in layer.trainable_variables]
    check_step(lambda n, x: layer(x[tf.newaxis])[0], watch=watch)


@pytest.mark.parametrize("cell", [keras.layers.LSTMCell, keras.layers.GRUCell, keras.layers.SimpleRNNCell])
def test_keras_cells(cell):
    keras.utils.set_random_seed(3)
    layer = cell(SIZE)
    layer.build([1, SIZE])
    count = len(layer.get_initial_state(1)) if isinstance(layer.get_initial_state(1), list) else 1

    def build(new):
        f = new("f", [INT, vector(SIZE)], [vector(SIZE)] * count)

        @f.define
        def body(n, x):
            if n <= 0:
                return [x] * count
            left, right = f(n - 1, x), f(n - 2, x * 0.5)
            _, states = layer(left[0][tf.newaxis], [s[tf.newaxis] for s in right])
            return [tf.reshape(s, [SIZE]) for s in states]

        return f

    check(build, 4, X, watch=[v.value for v in layer.trainable_variables], executions=BOTH)


def test_a_keras_embedding():
    keras.utils.set_random_seed(3)
    layer = keras.layers.Embedding(7, SIZE)
    layer.build()
    check_step(lambda n, x: x + layer(n) * layer(n[tf.newaxis])[0], watch=[v.value for v in layer.trainable_variables])


def test_mixed_precision_computes_in_half():
    keras.utils.set_random_seed(3)
    layer = keras.layers.Dense(SIZE, activation="tanh", dtype="mixed_bfloat16")
    layer.build([1, SIZE])
    assert layer(tf.zeros([1, SIZE])).dtype == tf.bfloat16
    check_step(
        lambda n, x: tf.cast(layer(x[tf.newaxis])[0], tf.float32),
        watch=[v.value for v in layer.trainable_variables],
        value_tolerance=1e-2,
        gradient_tolerance=3e-2,
    )


def test_large_constants_become_part_of_the_environment():
    table = np.random.default_rng(0).normal(size=[300, SIZE]).astype(np.float32)
    check_step(lambda n, x: x + tf.reduce_sum(tf.constant(table), 0) * tf.constant(table)[n])


def test_an_operation_that_cannot_be_batched_is_named():
    f = recursion.SubGraph("f", [INT], FLOAT)

    @f.define
    def body(n):
        return tf.reduce_sum(tf.cast(tf.range(n), tf.float32)) + f(n - 1) if n > 0 else 0.0

    with pytest.raises(recursion.BatchingError, match=r"'f'.*\(Range\)") as error:
        f(3, execution="batched")
    assert "\n" not in str(error.value)
    with logged() as lines:
        assert f(4, execution="auto").numpy() == 10.0
    assert any("invoke" in line and "Range" in line for line in lines)

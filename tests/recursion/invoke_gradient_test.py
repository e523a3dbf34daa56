"""Gradients of the invoke executor against automatic differentiation of the same functions, unrolled."""

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion import programs
from tests.recursion.program_builder import FLAG, INTEGER, Program, Result, gradients, row, run
from tests.recursion.programs import BinaryTrees

SIZE = 6


def record(program: Program, args: list, **kwargs) -> Result:
    return run(program, args, execution="invoke", record=True, **kwargs)


def assert_close(actual, expected, tolerance=1e-5):
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-30)


@pytest.fixture(scope="module")
def trees() -> BinaryTrees:
    return programs.random_binary_trees(seed=3, num_trees=5, num_leaves=40)


def tree_gradients(trees, record_words: str, dcalls: bool = False):
    weights = programs.tree_rnn_weights(SIZE)
    program = programs.tree_rnn(SIZE, record_words)
    env = [trees.left, trees.right, trees.word, *weights]
    result = record(program, [trees.roots], env=env, map=True, collect=dcalls)
    seed = np.random.default_rng(5).normal(size=(len(trees.roots), SIZE)).astype(np.float32)
    return result, seed, weights


@pytest.mark.parametrize("words", ["denv", "slices"])
def test_a_forest(trees, words):
    result, seed, weights = tree_gradients(trees, words)
    weights64 = [tf.constant(w, tf.float64) for w in weights]
    with tf.GradientTape() as tape:
        tape.watch(weights64)
        roots = programs.tree_rnn_reference(trees, weights64)
    expected = [tf.convert_to_tensor(g) for g in tape.gradient(roots, weights64, tf.constant(seed, tf.float64))]
    assert_close(result.results[0], roots, 1e-6)
    actual = gradients(
        result,
        [seed],
        env_dense=[4, 5] if words == "slices" else [3, 4, 5],
        env_slices=[3] if words == "slices" else [],
    )
    embedding = actual.denv[0]
    if words == "slices":
        embedding = tf.math.unsorted_segment_sum(actual.values[0], actual.indices[0], len(weights[0]))
        assert actual.indices[0].dtype == tf.int64
    for got, want in zip([embedding, *actual.denv[-2:]], expected, strict=True):
        assert_close(got, want)


def test_slices_where_the_caller_wants_a_dense_gradient(trees):
    result, seed, _ = tree_gradients(trees, "slices")
    dense = gradients(result, [seed], env_dense=[3]).denv[0]
    slices = gradients(result, [seed], env_slices=[3])
    expected = tf.math.unsorted_segment_sum(slices.values[0], slices.indices[0], dense.shape[0])
    assert_close(dense, expected)


def test_the_sums_have_one_order(trees):
    """Workers divide the forest as they like; every run and every pass over a tape gives the same bits."""
    seen = set()
    for _ in range(8):
        result, seed, _ = tree_gradients(trees, "denv")
        for _ in range(3):
            seen.add(b"".join(d.numpy().tobytes() for d in gradients(result, [seed], env_dense=[3, 4, 5]).denv))
    sequential = record(programs.tree_rnn(SIZE), [trees.roots], env=result.env, map=True, sequential=True)
    seen.add(b"".join(d.numpy().tobytes() for d in gradients(sequential, [seed], env_dense=[3, 4, 5]).denv))
    assert len(seen) == 1


def test_gradients_of_collected_calls(trees):
    """Every node's state gets a gradient of its own."""
    result, seed, weights = tree_gradients(trees, "denv", dcalls=True)
    nodes, states = result.calls
    dstates = np.random.default_rng(8).normal(size=states.shape).astype(np.float32)
    embedding, kernel, bias = (tf.Variable(w) for w in weights)
    with tf.GradientTape() as tape:

        def f(node):
            if trees.left[node] < 0:
                state = embedding[int(trees.word[node])][None]
            else:
                children = [f(trees.left[node]), f(trees.right[node])]
                state = tf.tanh(tf.concat(children, 1) @ kernel + bias)
            terms.append(tf.reduce_sum(state * dstates[position[node]]))
            return state

        terms: list = []
        position = {int(node): i for i, node in enumerate(nodes.numpy())}
        roots = tf.concat([f(root) for root in trees.roots], 0)
        loss = tf.add_n(terms) + tf.reduce_sum(roots * seed)
    expected = [tf.convert_to_tensor(g) for g in tape.gradient(loss, [embedding, kernel, bias])]
    actual = gradients(result, [seed], dcalls=[dstates], env_dense=[3, 4, 5]).denv
    for got, want in zip(actual, expected, strict=True):
        assert_close(got, want)


def power_program() -> Program:
    """f(n, x) = 1 if n == 0 else x * f(n - 1, x): a chain whose argument is used at every depth."""
    program = Program()
    f = program.function("power", [INTEGER, row()], [FLAG, INTEGER, row(), row()], results=[5])
    look = program.graph(f, ["slot:0"], lambda n: {"slot:2": n <= 0, "slot:3": n - 1})
    program.block(f, graph=look, switch=2, targets=[1, 2])
    program.block(f, next=3)
    program.block(f, graph=program.graph(f, ["slot:1"], lambda x: {"slot:5": tf.ones_like(x)}), rank=1)
    program.block(
        f,
        graph=program.graph(f, ["slot:1", "slot:4"], lambda x, y: {"slot:5": x * y}),
        grad=program.graph(f, ["dout:5", "slot:1", "slot:4"], lambda dy, x, y: {"dslot:1": dy * y, "dslot:4": dy * x}),
        rank=3,
    )
    program.call(1, [f], args=[3, 1], results=[4])
    return program


@pytest.mark.parametrize("depth", [0, 1, 5, 100_000])
def test_a_chain(depth):
    x = 1 + 1 / max(depth, 1)
    result = record(power_program(), [depth, x])
    assert_close(result.results[0], np.float32(x) ** np.float64(depth), 1e-3)
    (dx,) = gradients(result, [np.float32(2)], arg_grads=[1]).dargs
    assert_close(dx, 2 * depth * np.float64(np.float32(x)) ** (depth - 1), 1e-2)


def test_gradients_of_collected_arguments():
    """power's argument x is the same in all calls; a gradient given to each call's x reaches the caller's."""
    depth, x = 4, np.float32(0.5)
    result = record(power_program(), [depth, x], collect=True)
    np.testing.assert_array_equal(result.calls[0], [4, 3, 2, 1, 0])
    np.testing.assert_array_equal(result.calls[1], [x] * 5)
    np.testing.assert_array_equal(result.calls[2], x ** np.arange(4, -1, -1))
    dx, dy = np.float32([1, 2, 3, 4, 5]), np.float32([0, 0, 7, 0, 0])
    actual = gradients(result, [np.float32(0)], dcalls=[dx, dy], arg_grads=[1]).dargs[0]
    assert_close(actual, dx.sum() + 7 * 2 * x)


def scale_program(mode: str, reduce: str) -> Program:
    """scale(x, y) = x * y; root(xs, y) maps it over xs, or over the rows 1 to 3 of the environment."""
    program = Program(env=[tf.TensorSpec([None, 2])])
    rows = row(None, 2)
    root = program.function("root", [rows, row(2), INTEGER, INTEGER], [rows if reduce == "stack" else row(2)], [4])
    program.block(root, next=1)
    finish = program.graph(root, ["slot:4"], lambda r: {"slot:4": 3 * r})
    dfinish = program.graph(root, ["dout:4"], lambda d: {"dslot:4": 3 * d})
    program.block(root, graph=finish, grad=dfinish, rank=3)
    scale = program.function("scale", [row(2), row(2)], [row(2)], results=[2])
    program.block(
        scale,
        graph=program.graph(scale, ["slot:0", "slot:1"], lambda x, y: {"slot:2": x * y}),
        grad=program.graph(scale, ["dout:2", "slot:0", "slot:1"], lambda d, x, y: {"dslot:0": d * y, "dslot:1": d * x}),
        rank=1,
    )
    if mode == "map":
        program.call(0, [scale], [0, 1], [4], mode="map", mapped=[True, False], reduce=reduce)
    else:
        program.call(
            0,
            [scale],
            [-1, 1],
            [4],
            mode="range",
            mapped=[True, False],
            reduce=reduce,
            start=2,
            limit=3,
            tables=[0, -2],
        )
    return program


@pytest.mark.parametrize("mode", ["map", "range"])
@pytest.mark.parametrize("reduce", ["stack", "sum"])
def test_mapped_calls(mode, reduce):
    random = np.random.default_rng(0)
    xs, table = random.normal(size=(2, 5, 2)).astype(np.float32)
    y = tf.constant([0.5, -2.0])
    result = record(scale_program(mode, reduce), [xs, y, 1, 4], env=[table])
    source = tf.constant(table if mode == "range" else xs)
    with tf.GradientTape() as tape:
        tape.watch([source, y])
        used = source[1:4] if mode == "range" else source
        expected = 3 * (used * y if reduce == "stack" else tf.reduce_sum(used * y, 0))
    seed = random.normal(size=expected.shape).astype(np.float32)
    dsource, dy = tape.gradient(expected, [source, y], seed)
    assert_close(result.results[0], expected, 1e-6)
    actual = gradients(result, [seed], arg_grads=[0, 1], env_dense=[0])
    assert_close(actual.dargs[0], dsource if mode == "map" else np.zeros_like(xs))
    assert_close(actual.dargs[1], dy)
    assert_close(actual.denv[0], tf.convert_to_tensor(dsource) if mode == "range" else np.zeros_like(table))
    slices = gradients(result, [seed], env_slices=[0])
    if mode == "range":
        np.testing.assert_array_equal(slices.indices[0], [1, 2, 3])
        assert_close(slices.values[0], tf.convert_to_tensor(dsource)[1:4])
    else:
        assert slices.values[0].shape == (0, 2)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_many_products_are_summed_in_a_wide_type(dtype):
    """2,000 rows of one: a float16 sum would stop at 2,048, a bfloat16 one at 256."""
    size = 2
    program = Program(env=[tf.TensorSpec([size, size], dtype)], products=[(0, False)])
    f = program.function("f", [row(size, dtype=dtype)], [row(size, dtype=dtype)], results=[1])
    program.block(
        f,
        graph=program.graph(f, ["slot:0", "env:0"], lambda x, w: {"slot:1": x @ w}),
        grad=program.graph(
            f,
            ["dout:1", "slot:0", "env:0"],
            lambda d, x, w: {"dslot:0": tf.matmul(d, w, transpose_b=True), "px:0": x, "py:0": d},
        ),
        rank=1,
    )
    rows = 3000
    x = np.ones([rows, size])
    result = record(program, [tf.cast(x, dtype)], env=[tf.cast(np.eye(size), dtype)], map=True)
    actual = gradients(result, [tf.cast(x, dtype)], arg_grads=[0], env_dense=[0])
    np.testing.assert_array_equal(tf.cast(actual.dargs[0], tf.float64), x)
    assert_close(tf.cast(actual.denv[0], tf.float64), np.full([size, size], rows), 1 / 256)


def test_a_jump_moves_and_a_side_block():
    """f(k, x) = (k ? x * x : 5 * x) + 2 * x, the sum's second term computed on the side of a call."""
    program = Program()
    f = program.function("f", [FLAG, row()], [row(), row(), row(), row(), row()], results=[6])
    program.block(f, switch=0, targets=[1, 2])
    for body, gradient in (
        (lambda x: {"slot:2": 5 * x}, lambda d, x: {"dslot:1": 5 * d}),
        (lambda x: {"slot:2": x * x}, lambda d, x: {"dslot:1": 2 * d * x}),
    ):
        program.block(
            f,
            graph=program.graph(f, ["slot:1"], body),
            grad=program.graph(f, ["dout:2", "slot:1"], gradient),
            moves=[(3, 2), (2, 1)],
            next=4,
            side=3,
        )
    program.block(
        f,
        graph=program.graph(f, ["slot:2"], lambda x: {"slot:4": 2 * x}),
        grad=program.graph(f, ["dout:4"], lambda d: {"dslot:2": 2 * d}),
        next=-2,
        rank=2,
    )
    program.block(
        f,
        graph=program.graph(f, ["slot:5", "slot:4"], lambda a, b: {"slot:6": a + b}),
        grad=program.graph(f, ["dout:6"], lambda d: {"dslot:5": d, "dslot:4": d}),
        rank=3,
    )
    identity = program.function("identity", [row()], [], results=[0])
    program.block(identity, rank=1)
    for block in (1, 2):
        program.call(block, [identity], [3], [5])
    for flag, value, slope in ((False, 21.0, 7.0), (True, 15.0, 8.0)):
        result = record(program, [flag, 3.0])
        assert float(result.results[0]) == value
        assert float(gradients(result, [np.float32(1)], arg_grads=[1]).dargs[0]) == slope

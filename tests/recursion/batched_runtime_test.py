import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion import programs
from tests.recursion.checking import relative_error
from tests.recursion.program_builder import FLAG, INTEGER, Once, Program, gradients, row, run
from tests.recursion.programs import BinaryTrees

INTEGERS = tf.TensorSpec([None], tf.int32)
FLOATS = tf.TensorSpec([None], tf.float32)


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@pytest.fixture(scope="module")
def trees() -> BinaryTrees:
    return programs.random_binary_trees(seed=1, num_trees=4, num_leaves=12)


def test_one_root():
    assert run(programs.fibonacci(), [15]).results[0].numpy() == fib(15)


def test_many_roots():
    (values,) = run(programs.fibonacci(), [np.arange(14)], map=True).results
    assert values.numpy().tolist() == [fib(n) for n in range(14)]


def test_no_roots():
    program = Program()
    f = program.function("f", [row(3)], [row(2, 5)], results=[1, 0])
    program.block(f, program.graph(f, ["slot:0"], lambda x: {"slot:1": tf.zeros([tf.shape(x)[0], 2, 5])}))
    result = run(program, [tf.zeros([0, 3])], map=True, record=True, collect=True)
    assert [r.shape.as_list() for r in result.results] == [[0, 2, 5], [0, 3]]
    assert [c.shape.as_list() for c in result.calls] == [[0, 3], [0, 2, 5], [0, 3]]
    dresults = [tf.zeros([0, 2, 5]), tf.zeros([0, 3])]
    assert gradients(result, dresults, [0], dcalls=[tf.zeros([0, 3]), *dresults]).dargs[0].shape == [0, 3]


def test_tree_rnn_values_and_gradients(trees):
    program = programs.tree_rnn(6)
    weights = [tf.constant(w) for w in programs.tree_rnn_weights(6)]
    with tf.GradientTape() as tape:
        tape.watch(weights)
        expected = programs.tree_rnn_reference(trees, weights)
    dh = tf.random.stateless_normal(expected.shape, [1, 2])
    wanted = tape.gradient(expected, weights, dh)
    result = run(program, [trees.roots], [trees.left, trees.right, trees.word, *weights], map=True, record=True)
    assert relative_error(result.results[0], expected) < 1e-6
    # A tape can be used again.
    for _ in range(2):
        denv = gradients(result, [dh], env_dense=[3, 4, 5]).denv
        for got, want in zip(denv, wanted, strict=True):
            assert relative_error(got, tf.convert_to_tensor(want)) < 1e-5


def test_embedding_slices(trees):
    weights = programs.tree_rnn_weights(6)
    env = [trees.left, trees.right, trees.word, *weights]
    dh = np.ones((4, 6), np.float32)
    dense = run(programs.tree_rnn(6), [trees.roots], env, map=True, record=True)
    slices = run(programs.tree_rnn(6, "slices"), [trees.roots], env, map=True, record=True)
    got = gradients(slices, [dh], env_slices=[3])
    leaves = int((trees.left < 0).sum())
    assert got.values[0].shape == [leaves, 6] and got.indices[0].shape == [leaves]
    summed = np.zeros_like(weights[0])
    np.add.at(summed, got.indices[0].numpy(), got.values[0].numpy())
    assert relative_error(summed, gradients(dense, [dh], env_dense=[3]).denv[0]) < 1e-6


def scaled_sum() -> Program:
    """`f(a, b, n) = a if n == 0 else b * f(a, b, n - 1) + a`: both floats are handed to every call."""
    program = Program()
    f = program.function("f", [row(2), row(2), INTEGER], [FLAG, INTEGER, row(2), row(2)], results=[6])
    look = program.graph(f, ["slot:2"], lambda n: {"slot:3": n < 1, "slot:4": n - 1})
    program.block(f, look, switch=3, targets=[2, 1])
    program.block(f, moves=[(6, 0)], rank=1)
    inner = program.block(f, next=3)
    program.call(inner, [f], [0, 1, 4], [5])
    combine = program.graph(f, ["slot:0", "slot:1", "slot:5"], lambda a, b, y: {"slot:6": b * y + a})
    gradient = program.graph(
        f,
        ["dout:6", "slot:1", "slot:5"],
        lambda d, b, y: {"dslot:0": d, "dslot:1": d * y, "dslot:5": d * b},
    )
    program.block(f, combine, gradient, rank=3)
    return program


def test_gradients_of_shared_arguments():
    a, b = tf.constant([[1.0, -2.0], [0.5, 3.0], [2.0, 1.0]]), tf.constant([[0.9, 1.1], [-0.7, 0.3], [1.5, -1.0]])
    counts = [3, 0, 5]
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        rows = []
        for i, n in enumerate(counts):
            y = a[i]
            for _ in range(n):
                y = b[i] * y + a[i]
            rows.append(y)
        expected = tf.stack(rows)
    wanted = tape.gradient(expected, [a, b], tf.ones_like(expected))
    result = run(scaled_sum(), [a, b, counts], map=True, record=True)
    assert relative_error(result.results[0], expected) < 1e-6
    dargs = gradients(result, [tf.ones([3, 2])], [0, 1]).dargs
    for got, want in zip(dargs, wanted, strict=True):
        assert relative_error(got, want) < 1e-6


def test_one_root_gradient_has_the_shape_of_the_argument():
    result = run(scaled_sum(), [[1.0, 2.0], [3.0, 4.0], 2], record=True)
    assert result.results[0].numpy().tolist() == [1 + 3 + 9, 2 + 8 + 32]
    da, db = gradients(result, [[1.0, 1.0]], [0, 1]).dargs
    assert da.numpy().tolist() == [1 + 3 + 9, 1 + 4 + 16]
    assert db.numpy().tolist() == [1 + 2 * 3, 2 + 4 * 4]


def test_depth_of_a_hundred_thousand():
    result = run(scaled_sum(), [[1.0, 0.0], [1.0, 1.0], 100_000], record=True)
    assert result.results[0].numpy().tolist() == [100_001, 0]
    assert gradients(result, [[1.0, 1.0]], [0]).dargs[0].numpy().tolist() == [100_001, 100_001]


def test_no_gradient_reaches_the_argument():
    program = Program()
    f = program.function("f", [row(2)], [row(2)], results=[1])
    program.block(f, program.graph(f, ["slot:0"], lambda x: {"slot:1": tf.sign(x)}), rank=1)
    result = run(program, [[[1.0, -2.0]]], map=True, record=True)
    assert gradients(result, [[[1.0, 1.0]]], [0]).dargs[0].numpy().tolist() == [[0.0, 0.0]]


def mapped(reduce: str, mode: str = "map") -> Program:
    """`f(x, s) = reduce over j of x[j]^2 * s` for x of any length."""
    program = Program(env=[tf.TensorSpec([None, 2])])
    whole = row(None, 2) if reduce == "stack" else row(2)
    f = program.function("f", [row(None, 2), row(2)], [whole, whole, INTEGER, INTEGER], results=[3], entry=0)
    g = program.function("g", [row(2), row(2)], [row(2)], results=[2], entry=2)
    bounds = program.graph(f, ["slot:0"], lambda x: {"slot:4": 1 + 0 * shape0(x), "slot:5": 1 + 0 * shape0(x) + 2})
    call = program.block(f, bounds, next=1)
    if mode == "map":
        program.call(call, [g], [0, 1], [2], "map", [True, False], reduce=reduce)
    else:
        program.call(call, [g], [-1, 1], [2], "range", [True, False], reduce=reduce, start=4, limit=5, tables=[0, -2])
    program.block(
        f,
        program.graph(f, ["slot:2"], lambda y: {"slot:3": y + 0}),
        program.graph(f, ["dout:3"], lambda d: {"dslot:2": d}),
        rank=3,
    )
    program.block(
        g,
        program.graph(g, ["slot:0", "slot:1"], lambda x, s: {"slot:2": x * x * s}),
        program.graph(
            g, ["dout:2", "slot:0", "slot:1"], lambda d, x, s: {"dslot:0": 2 * d * x * s, "dslot:1": d * x * x}
        ),
        rank=1,
    )
    return program


def shape0(x):
    return tf.zeros([tf.shape(x)[0]], tf.int32)


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("reduce", ["sum", "stack"])
def test_map(reduce, length):
    x, s = tf.random.stateless_normal([4, length, 2], [1, 2]), tf.random.stateless_normal([4, 2], [3, 4])
    with tf.GradientTape() as tape:
        tape.watch([x, s])
        y = x * x * s[:, None]
        expected = tf.reduce_sum(y, 1) if reduce == "sum" else y
    d = tf.random.stateless_normal(expected.shape, [5, 6])
    wanted = tape.gradient(expected, [x, s], d)
    result = run(mapped(reduce), [x, s], [tf.zeros([1, 2])], map=True, record=True)
    np.testing.assert_allclose(result.results[0], expected, rtol=1e-6)
    for got, want in zip(gradients(result, [d], [0, 1]).dargs, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("reduce", ["sum", "stack"])
def test_range_over_rows_of_the_environment(reduce):
    table, s = tf.random.stateless_normal([4, 2], [1, 2]), tf.random.stateless_normal([3, 2], [3, 4])
    with tf.GradientTape() as tape:
        tape.watch([table, s])
        y = table[None, 1:3] ** 2 * s[:, None]
        expected = tf.reduce_sum(y, 1) if reduce == "sum" else y
    d = tf.random.stateless_normal(expected.shape, [5, 6])
    wanted = tape.gradient(expected, [table, s], d)
    result = run(mapped(reduce, "range"), [tf.zeros([3, 0, 2]), s], [table], map=True, record=True)
    np.testing.assert_allclose(result.results[0], expected, rtol=1e-6)
    got = gradients(result, [d], [1], [0])
    np.testing.assert_allclose(got.denv[0], wanted[0], rtol=1e-5)
    np.testing.assert_allclose(got.dargs[0], wanted[1], rtol=1e-5)


def test_range_out_of_bounds():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)from 1 to 3.*'f'"):
        run(mapped("sum", "range"), [tf.zeros([1, 0, 2]), tf.zeros([1, 2])], [tf.zeros([2, 2])], map=True)


def sum_of_nodes(reduce: str) -> Program:
    """`f(i) = value[i] + sum of f(j) for j from first[i] to last[i]`: children are numbered one after the other."""
    program = Program(env=[INTEGERS, INTEGERS, FLOATS])
    kept = row(None) if reduce == "stack" else row()
    f = program.function("f", [INTEGER], [INTEGER, INTEGER, kept, row()], results=[4])

    def look(i, first, last):
        return {"slot:1": tf.gather(first, i), "slot:2": tf.gather(last, i)}

    entry = program.block(f, program.graph(f, ["slot:0", "env:0", "env:1"], look), next=1)
    program.call(entry, [f], [-1], [3], "range", [True], reduce=reduce, start=1, limit=2, tables=[-1])

    def add(i, y, value):
        return {"slot:4": tf.gather(value, i) + (tf.reduce_sum(y, 1) if reduce == "stack" else y)}

    def add_gradient(d, i, y, value):
        dy = tf.broadcast_to(d[:, None], tf.shape(y)) if reduce == "stack" else d
        return {"dslot:3": dy, "denv:2": tf.math.unsorted_segment_sum(d, i, tf.size(value))}

    program.block(
        f,
        program.graph(f, ["slot:0", "slot:3", "env:2"], add),
        program.graph(f, ["dout:4", "slot:0", "slot:3", "env:2"], add_gradient),
        rank=3,
    )
    return program


def numbered_tree(seed: int, size: int):
    """Children of a node are consecutive: first and last of each."""
    random = np.random.default_rng(seed)
    first, last, made = np.zeros(size, np.int32), np.zeros(size, np.int32), 1
    for node in range(size):
        count = min(int(random.integers(0, 5)) if made > node + 1 else 3, size - made)
        first[node], last[node] = made, made + count
        made += count
    return first, last


@pytest.mark.parametrize("reduce", ["sum", "stack"])
def test_children_by_range(reduce):
    first, last = numbered_tree(0, 200)
    value = np.random.default_rng(1).normal(size=200).astype(np.float32)
    total = value.astype(np.float64)
    above = np.zeros(200)
    above[0] = 2.0
    for node in range(200):
        above[first[node] : last[node]] = above[node]
    for node in reversed(range(200)):
        total[node] += total[first[node] : last[node]].sum()
    result = run(sum_of_nodes(reduce), [0], [first, last, value], record=True)
    assert relative_error(result.results[0], total[0]) < 1e-5
    np.testing.assert_allclose(gradients(result, [2.0], env_dense=[2]).denv[0], above)


def test_collect():
    first, last = numbered_tree(0, 50)
    value = np.random.default_rng(1).normal(size=50).astype(np.float32)
    result = run(sum_of_nodes("sum"), [0], [first, last, value], record=True, collect=True)
    nodes, totals = (c.numpy() for c in result.calls)
    assert sorted(nodes) == list(range(50))
    by_node = dict(zip(nodes.tolist(), totals.tolist(), strict=True))
    for node in range(50):
        below = sum(by_node[child] for child in range(first[node], last[node]))
        assert by_node[node] == pytest.approx(value[node] + below, abs=1e-5)
    # The sum of all totals: a node counts once for itself and once for each node above it.
    depth = np.ones(50)
    for node in range(50):
        depth[first[node] : last[node]] = depth[node] + 1
    got = gradients(result, [0.0], env_dense=[2], dcalls=[np.ones(50, np.float32)]).denv[0]
    np.testing.assert_allclose(got, depth)


def switching() -> Program:
    """`f(k, x)` calls one of three functions that add 1, 2, 3 to x; then a switch doubles or not."""
    program = Program()
    f = program.function("f", [row(dtype=tf.int64), row()], [row(), row(), FLAG], results=[3], entry=0)
    branches = [
        program.function(f"add{j}", [row()], [row()], results=[1], entry=4 + j, is_branch=True) for j in range(3)
    ]
    call = program.block(f, next=1)
    program.call(call, branches, [1], [2], selector=0)
    compare = program.graph(f, ["slot:2"], lambda y: {"slot:4": y > 5, "slot:3": y})
    program.block(f, compare, program.graph(f, ["dout:3"], lambda d: {"dslot:2": d}), switch=4, targets=[3, 2], rank=3)
    program.block(
        f,
        program.graph(f, ["slot:3"], lambda y: {"slot:3": 2 * y}),
        program.graph(f, ["dout:3"], lambda d: {"dslot:3": 2 * d}),
        rank=3,
    )
    program.block(f, rank=3)
    for j, branch in enumerate(branches):
        program.block(
            branch,
            program.graph(branch, ["slot:0"], lambda x, j=j: {"slot:1": x + (j + 1)}),
            program.graph(branch, ["dout:1"], lambda d: {"dslot:0": d}),
            rank=1,
        )
    return program


def test_selectors_and_switches():
    which, x = [0, 2, 1, 7, -1, 0], np.array([0, 1, 2, 3, 10, 9], np.float32)
    expected = x + [1, 3, 2, 3, 3, 1]
    doubled = expected > 5
    result = run(switching(), [which, x], map=True, record=True)
    assert result.results[0].numpy().tolist() == np.where(doubled, 2 * expected, expected).tolist()
    assert gradients(result, [np.ones(6, np.float32)], [1]).dargs[0].numpy().tolist() == (1.0 + doubled).tolist()


def test_side_blocks_moves_and_values_alike():
    """`f(n, x) = n * 10 + f(n - 1, x) + 3`, where `n * 10` is computed beside the call and 3 is one row for all."""
    program = Program()
    f = program.function("f", [INTEGER, row()], [FLAG, INTEGER, row(), row(), row(), row()], results=[7])
    look = program.graph(f, ["slot:0"], lambda n: {"slot:2": n > 0, "slot:3": n - 1, "slot:6": Once(tf.constant(3.0))})
    program.block(f, look, switch=2, targets=[1, 2])
    program.block(f, moves=[(4, 1), (7, 4)], rank=1)
    inner = program.block(f, side=3, next=4)
    program.call(inner, [f], [3, 1], [5])
    side = program.graph(f, ["slot:0"], lambda n: {"slot:4": tf.cast(n, tf.float32) * 10})
    program.block(f, side, next=-2, rank=2)
    program.block(f, program.graph(f, ["slot:4", "slot:5", "slot:6"], lambda a, b, c: {"slot:7": a + b + c}), rank=3)
    (values,) = run(program, [[0, 1, 4, 2], [1.0, 2.0, 3.0, 4.0]], map=True).results
    assert values.numpy().tolist() == [1.0, 2 + 13, 3 + 10 * 10 + 12, 4 + 30 + 6]


def test_uid_depends_on_the_path_alone():
    program = Program()
    uid = row(dtype=tf.int64)
    f = program.function("f", [INTEGER], [FLAG, INTEGER, uid, uid, uid, uid], results=[6])
    look = program.graph(f, ["slot:0", "uid"], lambda n, u: {"slot:1": n < 1, "slot:2": n - 1, "slot:3": u})
    program.block(f, look, switch=1, targets=[2, 1])
    program.block(f, moves=[(6, 3)], rank=1)
    inner = program.block(f, next=3)
    program.call(inner, [f], [2], [4], site=0)
    program.call(inner, [f], [2], [5], site=1)
    program.block(f, program.graph(f, ["slot:3", "slot:4", "slot:5"], lambda a, b, c: {"slot:6": a + 3 * b + 5 * c}))
    (alone,) = run(program, [[4]], map=True).results
    (among,) = run(program, [[4, 1, 4, 2]], map=True).results
    assert alone[0] == among[0] and len(set(among.numpy().tolist())) == 4
    (calls,) = (run(program, [5], collect=True).calls[1],)
    assert len(set(calls.numpy().tolist())) == 63


def test_max_depth():
    with pytest.raises(tf.errors.ResourceExhaustedError, match="'fib' are nested deeper than max_depth = 8"):
        run(programs.fibonacci(max_depth=8), [12])
    assert run(programs.fibonacci(max_depth=9), [9]).results[0].numpy() == 34


def test_recursion_without_end():
    with pytest.raises(tf.errors.ResourceExhaustedError, match="max_live_calls = 300000 calls are open"):
        run(programs.endless(max_live_calls=300_000), [0])


def test_many_calls_need_no_more_memory_than_few():
    """1.6 million calls, of which no more than 0.4 million are allowed to be open."""
    assert run(programs.fibonacci(max_live_calls=400_000), [29]).results[0].numpy() == 514229


def test_error_names_the_subgraph_the_depth_and_the_operator():
    program = Program()
    f = program.function("halve", [INTEGER], [FLAG, INTEGER, INTEGER], results=[3])
    program.block(
        f, program.graph(f, ["slot:0"], lambda n: {"slot:1": n > 5, "slot:2": n + 1}), switch=1, targets=[1, 2]
    )
    inner = program.block(f, next=-1)
    program.call(inner, [f], [2], [3])
    program.block(f, program.graph(f, ["slot:0"], lambda n: {"slot:3": 6 // (n - n)}), rank=1)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"(?s)FloorDiv.*ivision by zero.*'halve' at depths 4 to 7"
    ):
        run(program, [[0, 3]], map=True)


def test_rows_of_different_shapes_run_in_batches_of_their_own():
    program = Program()
    f = program.function("f", [INTEGER], [row(None), row(None), row(), INTEGER, INTEGER], results=[3])
    program.block(f, program.graph(f, ["slot:0"], lambda n: {"slot:4": n, "slot:5": tf.zeros_like(n)}), next=1)
    call = program.block(f, next=2)
    program.call(call, [1], [-1], [1], "range", [True], reduce="stack", start=5, limit=4, tables=[-1])
    program.block(
        f, program.graph(f, ["slot:1"], lambda y: {"slot:3": tf.reduce_sum(y, 1) + 100.0 * float_size(y)}), rank=3
    )
    g = program.function("g", [INTEGER], [row()], results=[1])
    program.block(g, program.graph(g, ["slot:0"], lambda n: {"slot:1": tf.cast(n + 1, tf.float32)}), rank=1)
    (values,) = run(program, [[3, 0, 2, 3, 1]], map=True).results
    assert values.numpy().tolist() == [306.0, 0.0, 203.0, 306.0, 101.0]


def float_size(y):
    return tf.cast(tf.shape(y)[1], tf.float32)


def test_strings_pass_through():
    program = Program()
    f = program.function("f", [row(dtype=tf.string), INTEGER], [FLAG, INTEGER, row(dtype=tf.string)], results=[4])
    program.block(
        f, program.graph(f, ["slot:1"], lambda n: {"slot:2": n < 1, "slot:3": n - 1}), switch=2, targets=[2, 1]
    )
    program.block(f, program.graph(f, ["slot:0"], lambda s: {"slot:4": tf.strings.join([s, "!"])}), rank=1)
    inner = program.block(f, next=3)
    program.call(inner, [f], [0, 3], [4])
    program.block(f, program.graph(f, ["slot:4"], lambda s: {"slot:4": tf.strings.join([s, "?"])}), rank=3)
    (values,) = run(program, [["a", "b", "c"], [2, 0, 1]], map=True).results
    assert values.numpy().tolist() == [b"a!??", b"b!", b"c!?"]


def test_two_threads_share_a_program(trees):
    program = programs.tree_rnn(6)
    weights = programs.tree_rnn_weights(6)
    env = [trees.left, trees.right, trees.word, *weights]
    expected = [programs.tree_rnn_reference(trees, weights), None]
    dh = np.ones((4, 6), np.float32)
    expected[1] = gradients(run(program, [trees.roots], env, map=True, record=True), [dh], env_dense=[4]).denv[0]
    problems = []

    def work():
        for _ in range(30):
            result = run(program, [trees.roots], env, map=True, record=True)
            got = gradients(result, [dh], env_dense=[4]).denv[0]
            if relative_error(result.results[0], expected[0]) > 1e-6 or relative_error(got, expected[1]) > 0:
                problems.append(got)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.serial
def test_memory_does_not_grow():
    trees = programs.random_binary_trees(seed=2, num_trees=8, num_leaves=40)
    env = [trees.left, trees.right, trees.word, *programs.tree_rnn_weights(32)]
    program = programs.tree_rnn(32)
    dh = np.ones((8, 32), np.float32)

    def steps(count):
        for _ in range(count):
            gradients(run(program, [trees.roots], env, map=True, record=True), [dh], env_dense=[3, 4, 5])

    steps(50)
    before = resident()
    steps(200)
    assert resident() - before < 4 << 20


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

"""Nodes with any number of children: `map` inside bodies."""

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import FLOAT, INT, check, refuses_batching, vector
from tf_ext import recursion

# Children of node i; node 0 is the root.
CHILDREN = [[1, 2, 3], [4, 5], [], [6], [], [7, 8, 9, 10], [], [], [], [11], [], []]
WORDS = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 2]
SIZE = 3
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=[7, SIZE]).astype(np.float32)
MATRIX = RANDOM.normal(size=[SIZE, SIZE]).astype(np.float32)


def child_sum(new, children, table, matrix, reduce):
    tree = new("tree", [INT], vector(SIZE))

    @tree.define
    def body(node):
        states = tree.map(children[node], reduce=reduce)
        total = states if reduce == "sum" else tf.reduce_sum(states, 0)
        return tf.tanh(tf.linalg.matvec(matrix, total) + tf.gather(table, tf.gather(WORDS, node)))

    return tree


@pytest.mark.parametrize("reduce", [None, "sum"])
def test_rows_of_a_ragged_tensor(reduce):
    children = tf.ragged.constant(CHILDREN, tf.int32)
    table, matrix = tf.Variable(TABLE), tf.Variable(MATRIX)
    check(lambda new: child_sum(new, children, table, matrix, reduce), 0, watch=[table, matrix])


@pytest.mark.parametrize("reduce", [None, "sum"])
def test_a_node_without_children(reduce):
    children = tf.ragged.constant(CHILDREN, tf.int32)
    table, matrix = tf.Variable(TABLE), tf.Variable(MATRIX)
    check(lambda new: child_sum(new, children, table, matrix, reduce), 4, watch=[table, matrix])


def test_a_forest():
    children = tf.ragged.constant(CHILDREN, tf.int32)
    table, matrix = tf.Variable(TABLE), tf.Variable(MATRIX)
    check(lambda new: child_sum(new, children, table, matrix, "sum"), [0, 3, 4, 5], mapped=True, watch=[table, matrix])


@pytest.mark.parametrize("reduce", [None, "sum"])
def test_consecutive_children(reduce):
    """Children numbered one after the other: the range alone tells them."""
    first, count = [1, 4, 0, 6, 0, 7, 0, 0, 0, 11, 0, 0], [3, 2, 0, 1, 0, 4, 0, 0, 0, 1, 0, 0]
    table = tf.Variable(TABLE)

    def build(new):
        tree = new("tree", [INT], vector(SIZE))

        @tree.define
        def body(node):
            start = tf.gather(first, node)
            states = tree.map(tf.range(start, start + tf.gather(count, node)), reduce=reduce)
            total = states if reduce == "sum" else tf.reduce_max(tf.concat([states, tf.zeros([1, SIZE])], 0), 0)
            return tf.sin(total) + tf.gather(table, tf.gather(WORDS, node))

        return tree

    check(build, 0, watch=[table])


def test_stacked_arguments_in_axes_and_nests():
    def build(new):
        tree = new("tree", [INT, {"x": vector(2), "y": FLOAT}, FLOAT], {"a": vector(2), "b": FLOAT})

        @tree.define
        def body(n, state, scale):
            if n <= 0:
                return {"a": state["x"] * scale, "b": state["y"]}
            xs = tf.stack([state["x"], tf.sin(state["x"]), state["x"] * 0.5])
            ys = tf.stack([state["y"], state["y"] * 2.0, scale])
            below = tree.map(tf.stack([n - 1, n - 2, n - 3]), {"x": xs, "y": ys}, scale * 0.9, in_axes=(0, 0, None))
            return {"a": tf.reduce_prod(below["a"], 0) + state["x"], "b": tf.reduce_sum(below["b"])}

        return tree

    check(build, 4, {"x": [0.3, 0.8], "y": 0.5}, 1.1)


def test_in_axes_as_one_value_and_a_map_of_no_rows():
    def build(new):
        tree = new("tree", [INT, vector(2)], (vector(2), INT))

        @tree.define
        def body(n, x):
            rows = tf.maximum(n, 0)
            xs = tf.tile(x[tf.newaxis] * 0.5, tf.stack([rows, 1]))
            below, sizes = tree.map(tf.range(rows) - 1, xs, in_axes=0)
            return x + tf.reduce_sum(below, 0), 1 + tf.reduce_sum(sizes)

        return tree

    check(build, 4, [0.3, 0.8], executions=["invoke", "auto"])
    refuses_batching(build, 4, [0.3, 0.8], operation="Tile|Range")


def test_attention_over_children():
    children = tf.ragged.constant(CHILDREN, tf.int32)
    table, key = tf.Variable(TABLE), tf.Variable(MATRIX)

    def build(new):
        tree = new("tree", [INT], vector(SIZE))

        @tree.define
        def body(node):
            own = tf.gather(table, tf.gather(WORDS, node))
            states = tf.concat([own[tf.newaxis], tree.map(children[node])], 0)
            scores = tf.linalg.matvec(tf.matmul(states, key), own)
            weights = tf.nn.softmax(scores)
            return tf.reduce_sum(weights[:, tf.newaxis] * states, 0)

        return tree

    check(build, 0, watch=[table, key])


def test_children_in_a_branch():
    children = tf.ragged.constant(CHILDREN, tf.int32)
    table = tf.Variable(TABLE)

    def build(new):
        tree = new("tree", [INT, INT], vector(SIZE))

        @tree.define
        def body(node, depth):
            mine = children[node]
            own = tf.gather(table, tf.gather(WORDS, node))
            if tf.size(mine) > 0 and depth < 3:
                return tf.tanh(tree.map(mine, depth + 1, in_axes=(0, None), reduce="sum")) * own
            return own

        return tree

    check(build, 0, 0, watch=[table])


def test_children_in_branches_beside_calls_and_deeper():
    children = tf.ragged.constant(CHILDREN, tf.int32)
    table, matrix = tf.Variable(TABLE), tf.Variable(MATRIX)

    def build(new):
        tree = new("tree", [INT, INT], vector(SIZE))

        @tree.define
        def body(node, depth):
            mine = children[node]
            own = tf.linalg.matvec(matrix, tf.gather(table, tf.gather(WORDS, node)))
            beside = tree(tf.constant(11), depth + 2) if depth < 2 else own * 0.5
            below = tf.cond(
                tf.size(mine) > 0 and depth < 4,
                lambda: tf.cond(
                    tf.shape(mine)[0] > 1,
                    lambda: tree.map(mine, depth + 1, in_axes=(0, None), reduce="sum"),
                    lambda: tree(mine[0], depth + 1),
                ),
                lambda: own,
            )
            return tf.tanh(below + beside) + own

        return tree

    check(build, 0, 0, watch=[table, matrix], executions=["invoke", "auto"])


def test_only_slices_reach_branches_beside_calls():
    children = tf.ragged.constant(CHILDREN, tf.int32)
    table, matrix = tf.Variable(TABLE), tf.Variable(MATRIX)

    def build(new):
        tree = new("tree", [INT, INT], vector(SIZE))

        @tree.define
        def body(node, depth):
            mine = children[node]
            own = tf.linalg.matvec(matrix, tf.gather(table, tf.gather(WORDS, node)))
            beside = tree(tf.constant(11), depth + 2) if depth < 2 else own * 0.5
            below = tf.cond(
                depth < 4,
                lambda: tf.cond(
                    tf.size(mine) > 1,
                    lambda: tree.map(mine, depth + 1, in_axes=(0, None), reduce="sum"),
                    lambda: tf.reduce_sum(tree.map(mine, depth + 2, in_axes=(0, None)), 0),
                ),
                lambda: own,
            )
            return tf.tanh(below + beside) + own

        return tree

    check(build, 0, 0, watch=[table, matrix])


def test_a_map_beside_a_call_and_before_another_map():
    def build(new):
        f = new("f", [INT, FLOAT], FLOAT)

        @f.define
        def body(n, x):
            if n <= 0:
                return x
            ys = f.map(tf.range(0, n - 1), x * 0.5, in_axes=(0, None))
            z = f(n - 1, x * 0.7)
            again = leaf.map(tf.tanh(ys))
            return tf.reduce_sum(again) + z

        leaf = new("leaf", [FLOAT], FLOAT)

        @leaf.define
        def leaf_body(x):
            return x * x

        return f

    check(build, 5, 0.9)


def test_map_of_another_subgraph():
    children = tf.ragged.constant(CHILDREN, tf.int32)

    def build(new):
        node_sum, square = new("node_sum", [INT, FLOAT], FLOAT), new("square", [FLOAT], FLOAT)

        @node_sum.define
        def node_body(node, x):
            xs = node_sum.map(children[node], x * 0.5 + 1.0, in_axes=(0, None))
            return tf.reduce_sum(square.map(xs)) + x

        @square.define
        def square_body(x):
            return x * x * 0.1

        return node_sum

    check(build, 0, 0.9)


def test_map_results_returned_as_they_are():
    def build(new):
        f = new("f", [INT, vector(None)], vector(None))

        @f.define
        def body(n, xs):
            if n <= 0:
                return xs * 2.0
            return leaf.map(xs)

        leaf = new("leaf", [FLOAT], FLOAT)

        @leaf.define
        def leaf_body(x):
            return f(0, tf.stack([x, x * x]))[1]

        return f

    check(build, 1, [0.1, 0.2, 0.3])


def test_map_results_passed_to_calls_and_branches():
    def build(new):
        total, leaf = new("total", [vector(None), INT], FLOAT), new("leaf", [FLOAT], FLOAT)

        @leaf.define
        def leaf_body(x):
            return tf.exp(x) * 0.1

        @total.define
        def body(xs, n):
            if n <= 0:
                return tf.reduce_sum(xs)
            ys = leaf.map(xs)
            first = total(ys, n - 1)
            if first > 1.0:
                return first * ys[0]
            return total(ys * 2.0, n - 2) + ys[-1]

        return total

    check(build, [0.1, 0.2, 0.3], 3)


def test_sum_of_rows_of_unknown_size():
    def build(new):
        f = new("f", [INT, vector(None)], vector(None))

        @f.define
        def body(n, x):
            if n <= 0:
                return x
            return f.map(tf.range(0, n), x * 0.5, in_axes=(0, None), reduce="sum") * x

        return f

    check(build, 4, [0.4, 0.5, 0.6])


def test_a_map_over_rows_of_captured_float_rows():
    rows = tf.RaggedTensor.from_row_splits(tf.Variable(TABLE).read_value(), [0, 3, 3, 7])

    def build(new):
        f, leaf = new("f", [INT], FLOAT), new("leaf", [vector(SIZE)], FLOAT)

        @leaf.define
        def leaf_body(x):
            return tf.reduce_sum(tf.sin(x))

        @f.define
        def body(n):
            here = leaf.map(rows[n], reduce="sum")
            return here * f(n - 1) + 1.0 if n > 0 else here

        return f

    check(build, 2, watch=[rows.flat_values])


def test_out_of_range_children_are_an_error():
    tree = recursion.SubGraph("tree", [INT], INT)
    first = tf.constant([5, 6, 7])

    @tree.define
    def body(node):
        return 1 + tree.map(first[node : node + 1], reduce="sum") if node < 3 else 1

    for execution in ("invoke", "batched"):
        assert tree(1, execution=execution).numpy() == 2

    over = recursion.SubGraph("over", [INT], INT)

    @over.define
    def over_body(node):
        return 1 + over.map(tf.gather(first, tf.range(node, node + 1)), reduce="sum")

    with pytest.raises(tf.errors.InvalidArgumentError, match="'over'"):
        over(3, execution="invoke")


@pytest.mark.parametrize(("start", "stop"), [(1, 3), (-2, None), (2, 9), (3, 1), (None, 2), (-9, -1), (0, -1)])
def test_slices_of_captured_tensors_have_the_bounds_of_python(start, stop):
    rows = tf.Variable(TABLE)

    def build(new):
        f, leaf = new("f", [INT], FLOAT), new("leaf", [vector(SIZE)], FLOAT)

        @leaf.define
        def leaf_body(x):
            return tf.reduce_sum(tf.sin(x))

        @f.define
        def body(n):
            # Not constants for the graph, but these numbers.
            part = slice(*(None if bound is None else bound + n * 0 for bound in (start, stop)))
            mine = rows[part]
            here = leaf.map(mine, reduce="sum") * tf.cast(tf.size(mine) + 10 * tf.shape(mine)[0], tf.float32)
            return here * f(n - 1) + 1.0 if n > 0 else here

        return f

    check(build, 2, watch=[rows])


def test_stacks_of_unequal_length_are_an_error():
    f = recursion.SubGraph("f", [INT, INT], INT)
    rows = tf.Variable([1, 2, 3], shape=tf.TensorShape([None]))

    @f.define
    def body(a, b):
        if a <= 0:
            return b
        return tf.reduce_sum(f.map(rows, tf.stack([a, b])))

    for execution in ("invoke", "batched"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="f"):
            f(3, 1, execution=execution)

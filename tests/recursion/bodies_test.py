"""Random bodies: whatever calls, conditions and operators are put together, the graph does what Python does."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recursion.checking import INT, check, vector

SIZE = 3
RANDOM = np.random.default_rng(0)
CHILDREN = [[1, 2], [3], [4, 5, 6], [], [7], [], [7, 3], []]


@dataclasses.dataclass(frozen=True)
class Node:
    """An expression for a vector of SIZE numbers: an operator and its operands."""

    name: str
    operands: tuple["Node", ...] = ()
    number: int = 0

    def __repr__(self) -> str:
        inner = ", ".join([str(self.number), *map(repr, self.operands)])
        return f"{self.name}({inner})"


UNARY = ["tanh", "matvec", "matvec_transposed", "softmax", "flip", "centre", "element", "scale", "stop", "own_gradient"]
BINARY = ["add", "mul", "concat", "where", "maximum", "attend"]
LEAVES = ["x", "row", "constant", "captured", "kept"]


def expressions(calls: int) -> st.SearchStrategy[Node]:
    leaf = st.builds(Node, st.sampled_from(LEAVES), st.just(()), st.integers(0, 5))

    def grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        number = st.integers(0, 5)
        one, two = st.tuples(inner), st.tuples(inner, inner)
        kinds = [
            st.builds(Node, st.sampled_from(UNARY), one, number),
            st.builds(Node, st.sampled_from(BINARY), two, number),
            st.builds(Node, st.just("cond"), two, number),
        ]
        if calls:
            kinds += [st.builds(Node, st.sampled_from(["call", "call", "map"]), one, number)] * 2
        return st.one_of(kinds)

    return st.recursive(leaf, grow, max_leaves=6)


def count_calls(node: Node) -> int:
    return (node.name in ("call", "map")) + sum(map(count_calls, node.operands))


class Evaluation:
    """Turns an expression into tensors, in eager mode or in a graph."""

    def __init__(self, f: Any, node: Any, depth: Any, x: Any, variables: list[tf.Variable]) -> None:
        self.f, self.node, self.depth, self.x = f, node, depth, x
        self.w, self.table, self.children = *variables, tf.ragged.constant(CHILDREN, tf.int32)
        self.known: dict[Node, Any] = {}

    def __call__(self, e: Node) -> Any:
        a = [self(operand) for operand in e.operands] if e.name not in ("cond",) else []
        return getattr(self, "do_" + e.name)(e, *a)

    def do_x(self, e):
        return self.x

    def do_row(self, e):
        return tf.gather(self.table, (self.node + e.number) % 8)

    def do_constant(self, e):
        return tf.constant([0.1, -0.2, 0.3]) * float(e.number)

    def do_captured(self, e):
        return tf.reduce_sum(self.table, 0) * 0.1 + self.w[e.number % SIZE]

    def do_kept(self, e):
        """The same tensor wherever it is used again."""
        if e.number not in self.known:
            self.known[e.number] = tf.sin(self.x + float(e.number))
        return self.known[e.number]

    def do_tanh(self, e, a):
        return tf.tanh(a)

    def do_matvec(self, e, a):
        return tf.linalg.matvec(self.w, a)

    def do_matvec_transposed(self, e, a):
        return tf.linalg.matvec(self.w, a, transpose_a=True)

    def do_softmax(self, e, a):
        return tf.nn.softmax(a)

    def do_flip(self, e, a):
        return tf.reverse(a, [0]) * 0.9

    def do_centre(self, e, a):
        return a - tf.reduce_mean(a)

    def do_element(self, e, a):
        return a * tf.sin(a[(self.node + e.number) % SIZE])

    def do_scale(self, e, a):
        return a * tf.cast(self.node - e.number, tf.float32) * 0.2

    def do_stop(self, e, a):
        return tf.stop_gradient(a)

    def do_own_gradient(self, e, a):
        return own_gradient(a, self.x)

    def do_add(self, e, a, b):
        return a + b

    def do_mul(self, e, a, b):
        return tf.tanh(a) * b

    def do_concat(self, e, a, b):
        k = e.number % 4
        return tf.concat([a[:k], b[k:]], 0)

    def do_where(self, e, a, b):
        return tf.where(self.node % 2 == e.number % 2, a, b)

    def do_maximum(self, e, a, b):
        return tf.maximum(a, b + 0.01)

    def do_attend(self, e, a, b):
        rows = tf.stack([a, b, self.x])
        return tf.reduce_sum(tf.nn.softmax(tf.linalg.matvec(rows, a))[:, tf.newaxis] * rows, 0)

    def do_cond(self, e):
        # A fresh store of kept tensors: what is made in a branch stays in it.
        def branch(operand):
            inner = Evaluation(self.f, self.node, self.depth, self.x, [self.w, self.table])
            inner.known = dict(self.known)
            return inner(operand)

        yes, no = e.operands
        condition = (self.node + e.number) % 3 == 0
        return tf.cond(condition, lambda: branch(yes), lambda: branch(no))

    def do_call(self, e, a):
        return self.f((self.node * 3 + e.number) % 8, self.depth - 1, tf.tanh(a))

    def do_map(self, e, a):
        below = self.f.map(self.children[self.node], self.depth - 2, tf.sin(a), in_axes=(0, None, None), reduce="sum")
        return below * 0.5


@tf.custom_gradient
def own_gradient(a, x):
    return a * 0.5, lambda dy: (tf.tanh(dy) * x, dy * tf.cos(a))


def compare(expression: Node, node: int) -> None:
    w = tf.Variable(RANDOM.normal(size=[SIZE, SIZE]).astype(np.float32) * 0.5)
    table = tf.Variable(RANDOM.normal(size=[8, SIZE]).astype(np.float32))

    def build(new):
        f = new("f", [INT, INT, vector(SIZE)], vector(SIZE))

        @f.define
        def body(node, depth, x):
            return tf.cond(depth <= 0, lambda: tf.sin(x), lambda: Evaluation(f, node, depth, x, [w, table])(expression))

        return f

    # Sums of up to some hundred calls; rounding differs with their order.
    check(build, node, 2, [0.3, -0.4, 0.8], watch=[w, table], value_tolerance=3e-6, gradient_tolerance=3e-5)


SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


@settings(max_examples=12, derandomize=True, **SETTINGS)
@given(expressions(calls=3).filter(lambda e: 1 <= count_calls(e) <= 4), st.integers(0, 7))
def test_some_random_bodies(expression, node):
    compare(expression, node)


@pytest.mark.slow
@settings(max_examples=150, **SETTINGS)
@given(expressions(calls=3).filter(lambda e: 1 <= count_calls(e) <= 4), st.integers(0, 7))
def test_many_random_bodies(expression, node):
    compare(expression, node)

"""Hand-written programs that the tests of both executors run, with the values they should give."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tests.recursion.program_builder import FLAG, INTEGER, Program, row


def fibonacci(**limits: Any) -> Program:
    """`fib(n) = n if n < 2 else fib(n - 1) + fib(n - 2)`."""
    program = Program(**limits)
    fib = program.function("fib", [INTEGER], [FLAG, *[INTEGER] * 5], results=[6])
    program.block(fib, program.graph(fib, ["slot:0"], lambda n: {"slot:1": n < 2}), switch=1, targets=[2, 1], rank=0)
    program.block(fib, moves=[(6, 0)], rank=1)
    expand = program.block(
        fib, program.graph(fib, ["slot:0"], lambda n: {"slot:2": n - 1, "slot:3": n - 2}), next=3, rank=0
    )
    program.call(expand, [fib], [2], [4])
    program.call(expand, [fib], [3], [5])
    program.block(fib, program.graph(fib, ["slot:4", "slot:5"], lambda a, b: {"slot:6": a + b}), rank=3)
    return program


def endless(**limits: Any) -> Program:
    """`f(n)` calls itself twice and never returns."""
    program = Program(**limits)
    f = program.function("endless", [INTEGER], [*[INTEGER] * 4], results=[4])
    entry = program.block(f, program.graph(f, ["slot:0"], lambda n: {"slot:1": n + 1}), next=1, rank=0)
    program.call(entry, [f], [1], [2])
    program.call(entry, [f], [1], [3])
    program.block(f, program.graph(f, ["slot:2", "slot:3"], lambda a, b: {"slot:4": a + b}), rank=3)
    return program


@dataclasses.dataclass(frozen=True)
class BinaryTrees:
    """Nodes of a forest: children or -1, words at the leaves, one root per tree."""

    left: np.ndarray
    right: np.ndarray
    word: np.ndarray
    roots: np.ndarray


def random_binary_trees(seed: int, num_trees: int, num_leaves: int, vocabulary: int = 5) -> BinaryTrees:
    """Random splits, parents numbered before children."""
    random = np.random.default_rng(seed)
    left, right, word, roots = [], [], [], []

    def grow(leaves: int) -> int:
        node = len(left)
        left.append(-1)
        right.append(-1)
        word.append(int(random.integers(vocabulary)))
        if leaves > 1:
            cut = int(random.integers(1, leaves))
            left[node], right[node] = grow(cut), grow(leaves - cut)
        return node

    for _ in range(num_trees):
        roots.append(grow(num_leaves))
    return BinaryTrees(*(np.array(a, np.int32) for a in (left, right, word, roots)))


def tree_rnn(size: int, record_words: str = "denv") -> Program:
    """`f(leaf) = embedding[word]`, `f(node) = tanh([f(left), f(right)] @ kernel + bias)`.

    Environment: left, right, word, embedding, kernel, bias. `record_words`: "denv" adds a dense gradient of the embedding
    for every batch of leaves, "slices" hands in rows.
    """
    ints = tf.TensorSpec([None], tf.int32)
    env = [ints, ints, ints, *(tf.TensorSpec(s) for s in ([None, size], [2 * size, size], [size]))]
    program = Program(env, products=[(4, False)])
    state = row(size)
    f = program.function("tree", [INTEGER], [FLAG, INTEGER, INTEGER, state, state, state], results=[6])

    def look(node, left):
        return {"slot:1": tf.gather(left, node) < 0}

    program.block(f, program.graph(f, ["slot:0", "env:0"], look), switch=1, targets=[2, 1], rank=0)

    def leaf(node, word, embedding):
        words = tf.gather(word, node)
        return {"slot:6": tf.gather(embedding, words), "saved:0": words}

    def leaf_gradient(dh, words, embedding):
        if record_words == "slices":
            return {"sv:3": dh, "si:3": tf.cast(words, tf.int64)}
        return {"denv:3": tf.math.unsorted_segment_sum(dh, words, tf.shape(embedding)[0])}

    program.block(
        f,
        program.graph(f, ["slot:0", "env:2", "env:3"], leaf),
        program.graph(f, ["dout:6", "saved:0", "env:3"], leaf_gradient, [tf.TensorSpec([None], tf.int32)]),
        rank=1,
    )

    def expand(node, left, right):
        return {"slot:2": tf.gather(left, node), "slot:3": tf.gather(right, node)}

    inner = program.block(f, program.graph(f, ["slot:0", "env:0", "env:1"], expand), next=3, rank=0)
    program.call(inner, [f], [2], [4])
    program.call(inner, [f], [3], [5])

    def combine(left, right, kernel, bias):
        h = tf.tanh(tf.concat([left, right], 1) @ kernel + bias)
        return {"slot:6": h, "saved:0": h}

    def combine_gradient(dh, h, left, right, kernel):
        dz = dh * (1 - h * h)
        dleft, dright = tf.split(tf.matmul(dz, kernel, transpose_b=True), 2, axis=1)
        products = {"px:0": tf.concat([left, right], 1), "py:0": dz}
        return {"dslot:4": dleft, "dslot:5": dright, "denv:5": tf.reduce_sum(dz, 0), **products}

    program.block(
        f,
        program.graph(f, ["slot:4", "slot:5", "env:4", "env:5"], combine),
        program.graph(
            f,
            ["dout:6", "saved:0", "slot:4", "slot:5", "env:4"],
            combine_gradient,
            [tf.TensorSpec([None, size], tf.float32)],
        ),
        rank=3,
    )
    return program


def tree_rnn_weights(size: int, vocabulary: int = 5, seed: int = 0) -> list[np.ndarray]:
    """Embedding, kernel, bias."""
    random = np.random.default_rng(seed)
    shapes = [(vocabulary, size), (2 * size, size), (size,)]
    return [(random.normal(size=shape) / np.sqrt(size)).astype(np.float32) for shape in shapes]


def tree_rnn_reference(trees: BinaryTrees, weights: list[Any]) -> tf.Tensor:
    """Eager recursion."""
    embedding, kernel, bias = weights

    def f(node):
        if trees.left[node] < 0:
            return embedding[trees.word[node]][None]
        children = [f(trees.left[node]), f(trees.right[node])]
        return tf.tanh(tf.concat(children, 1) @ kernel + bias)

    return tf.concat([f(root) for root in trees.roots], 0)

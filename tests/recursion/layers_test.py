"""The layers against eager recursion in Python: values, gradients, dropout, masks, precision."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.layers_reference import embedding, layer_outputs, random_forest
from tf_ext import recursion
from tf_ext.recursion import layers
from tf_ext.recursion.converters import from_nested, from_parents
from tf_ext.recursion.trees import Trees

LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "child_sum": (layers.ChildSumTreeLSTM, {}),
    "binary": (layers.NaryTreeLSTM, {}),
    "ternary": (layers.NaryTreeLSTM, {"arity": 3}),
    "rnn": (layers.TreeRNN, {}),
    "rnn_sum": (layers.TreeRNN, {"arity": None}),
    "rntn": (layers.RNTN, {}),
}
# The tree of one node, trees with empty places, an arity of many for the layers that take it.
SIZES = [5, 1, 30, 2, 7]
FORESTS = {name: random_forest(SIZES) for name in LAYERS}
FORESTS["child_sum"] = FORESTS["rnn_sum"] = random_forest(SIZES, arity=None)
FORESTS["ternary"] = random_forest(SIZES, arity=3)


def make(name: str, units: int = 7, **kwargs: Any) -> Any:
    cls, given = LAYERS[name]
    keras.utils.set_random_seed(3)
    kwargs.setdefault("embedding", embedding())
    return cls(units, bias_initializer=keras.initializers.RandomNormal(seed=2), **given, **kwargs)


def graph(layer: Any) -> Any:
    """The layer as one function: outside of one, every call traces anew."""
    return tf.function(lambda *args, **kwargs: layer(*args, **kwargs))


def relative(a: Any, b: Any) -> float:
    a, b = (np.asarray(tf.convert_to_tensor(x), np.float64) for x in (a, b))
    assert a.shape == b.shape
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("execution", ["invoke", "batched"])
def test_values_and_gradients_are_those_of_eager_recursion(name, execution):
    forest = FORESTS[name]
    layer = make(name, execution=execution, return_nodes=True)
    assert layer.compute_output_shape({"arity": (5, None), "values": (5, None)}) == (None, 7)
    run = graph(layer)
    run(forest.tensors)
    weights = layer.trainable_variables
    probe = np.random.default_rng(1).normal(size=(forest.num_nodes, 7)).astype(np.float32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer_outputs(layer, forest) * probe)
    wanted = tape.gradient(loss, [w.value for w in weights])
    with tf.GradientTape() as tape:
        found = run(forest.tensors)
        loss = tf.reduce_sum(found * probe)
    assert relative(found, layer_outputs(layer, forest)) < 1e-6
    for weight, gradient, expected in zip(
        weights, tape.gradient(loss, [w.value for w in weights]), wanted, strict=True
    ):
        assert relative(gradient, expected) < 1e-5, weight.path


@pytest.mark.parametrize("name", ["child_sum", "binary", "rnn"])
@pytest.mark.parametrize("execution", ["invoke", "batched"])
def test_outputs_of_roots_and_their_gradients(name, execution):
    forest = FORESTS[name]
    layer = make(name, execution=execution)
    run = graph(layer)
    assert run(forest.tensors).shape == (5, 7)
    weights = [w.value for w in layer.trainable_variables]
    with tf.GradientTape() as tape:
        wanted = tf.gather(layer_outputs(layer, forest), forest.roots)
        loss = tf.reduce_sum(wanted**2)
    expected = tape.gradient(loss, weights)
    with tf.GradientTape() as tape:
        found = run(forest.padded())
        loss = tf.reduce_sum(found**2)
    assert relative(found, wanted) < 1e-6
    for weight, a, b in zip(layer.trainable_variables, tape.gradient(loss, weights), expected, strict=True):
        assert relative(a, b) < 1e-5, weight.path


@pytest.mark.parametrize("name", ["child_sum", "rntn"])
def test_gradients_reach_the_features(name):
    forest = FORESTS[name]
    layer = make(name, embedding=None, return_nodes=True)
    run = graph(layer)
    x = tf.random.stateless_normal([forest.num_nodes, 4], [1, 2])
    trees = Trees.from_batched(forest.tensors)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(run(trees, x)[3] ** 2)
    gradient = tape.gradient(loss, x).numpy()
    node_and_below = {3}
    for node in range(3, -1, -1):
        if node in node_and_below:
            node_and_below |= set(forest.child_index[forest.row_splits[node] : forest.row_splits[node + 1]].tolist())
    reached = set(np.flatnonzero(np.abs(gradient).sum(1)).tolist())
    assert reached == node_and_below


def test_forms_of_features_and_masks_are_the_same():
    forest = FORESTS["binary"]
    layer = make("binary", embedding=embedding(mask_zero=True), return_nodes=True)
    run = graph(layer)
    expected = run(forest.tensors)
    assert (forest.values == 0).any()
    assert relative(expected, layer_outputs(layer, forest)) < 1e-6
    other = make("binary", embedding=None, return_nodes=True)
    other.build({"arity": (None, None), "values": (None, None)}, (None, 6))
    other.set_weights([w for w in layer.get_weights() if w.shape != (9, 6)])
    run = graph(other)
    flat = layer.embedding(forest.values)
    ragged = forest.tensors["values"].with_flat_values(flat)
    padded, there = forest.padded(), forest.padded()["arity"] >= 0
    dense = layer.embedding(padded["values"])
    mask = forest.values != 0
    for found in (
        run(Trees.from_batched(forest.tensors), flat, mask=mask),
        run(forest.tensors, ragged, mask=forest.tensors["values"].with_flat_values(mask)),
        run({**forest.tensors, "values": ragged}, mask=mask),
        run(padded, dense, mask=padded["values"] != 0),
        run({**padded, "values": dense}, mask={"arity": None, "values": padded["values"] != 0}),
    ):
        assert relative(found, expected) < 1e-6
    assert there.sum() == forest.num_nodes


@pytest.mark.parametrize("name", ["child_sum", "ternary", "rntn"])
def test_no_trees(name):
    layer = make(name)
    run = graph(layer)
    with tf.GradientTape() as tape:
        empty = run(FORESTS[name][:0].tensors)
        loss = tf.reduce_sum(empty)
    assert empty.shape == (0, 7)
    for gradient in tape.gradient(loss, [w.value for w in layer.trainable_variables]):
        assert not np.asarray(tf.convert_to_tensor(gradient)).any()
    assert graph(make(name, return_nodes=True))(FORESTS[name][:0].tensors).shape == (0, 7)


@pytest.mark.parametrize("name", ["child_sum", "binary", "rnn"])
@pytest.mark.parametrize("execution", ["invoke", "batched"])
def test_deep_chain(name, execution):
    chain = from_parents([np.arange(-1, 499)], [np.arange(500) % 9])
    layer = make(name, execution=execution, return_nodes=True)
    run = graph(layer)
    with tf.GradientTape() as tape:
        found = run(chain.tensors)
        loss = tf.reduce_sum(found[-1])
    gradients = tape.gradient(loss, [w.value for w in layer.trainable_variables])
    assert relative(found, layer_outputs(layer, chain)) < 1e-5
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients)


@pytest.mark.parametrize(("name", "execution"), [("child_sum", "invoke"), ("binary", "batched"), ("rntn", "batched")])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_against_float64(name, policy, execution):
    forest = FORESTS[name]
    layer, control = make(name, dtype=policy, execution=execution), make(name, dtype="float64")
    layer.embedding = embedding(dtype=policy)
    control.embedding = embedding(dtype="float64")
    run, exact = graph(layer), graph(control)
    assert run(forest.tensors).dtype == layer.compute_dtype
    assert exact(forest.tensors).dtype == "float64"
    control.set_weights(layer.get_weights())
    resolution = {"mixed_float16": 2.0**-10, "mixed_bfloat16": 2.0**-7}[policy]
    with tf.GradientTape(persistent=True) as tape:
        found, expected = run(forest.tensors), exact(forest.tensors)
        losses = [tf.reduce_sum(tf.cast(y, tf.float64)) for y in (found, expected)]
    assert relative(found, expected) < 8 * resolution
    pairs = zip(layer.trainable_variables, control.trainable_variables, strict=True)
    for a, b in pairs:
        assert a.dtype == "float32"
        gradients = tape.gradient(losses[0], a.value), tape.gradient(losses[1], b.value)
        assert relative(*gradients) < 16 * resolution, a.path


def states_of_leaves(layer: Any, forest: Any, **kwargs: Any) -> Any:
    return graph(layer)(forest.tensors, **kwargs).numpy()


def test_dropout_of_features():
    """A layer of ones over leaves: what is left of the features shows itself in the output."""
    forest = from_nested([1] * 400)
    ones: dict[str, Any] = {"kernel_initializer": "identity", "bias_initializer": "zeros", "activation": "linear"}
    embedded = keras.layers.Embedding(2, 10, embeddings_initializer="ones")
    layer = layers.TreeRNN(10, embedding=embedded, dropout=0.3, seed=5, **ones)
    run = graph(layer)
    assert (run(forest.tensors).numpy() == 1).all()
    first, second = (run(forest.tensors, training=True).numpy() for _ in range(2))
    assert set(np.round(np.unique(first), 4)) == {0, np.round(np.float32(1 / 0.7), 4)}
    assert abs((first == 0).mean() - 0.3) < 0.03
    assert len(np.unique(first, axis=0)) > 200  # rows differ
    assert (first != second).mean() > 0.3  # steps differ
    again = layers.TreeRNN(10, embedding=embedded, dropout=0.3, seed=5, **ones)
    np.testing.assert_array_equal(graph(again)(forest.tensors, training=True), first)


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_dropout(name):
    """Inner nodes with one leaf below: without bias or features of their own they show the leaf's mask."""
    forest = from_nested([(0, [1])] * 200)
    layer = make(name, 10, recurrent_dropout=0.4, seed=5, return_nodes=True, dropout=0.0, use_bias=False)
    run = graph(layer)
    plain = run(forest.tensors).numpy()
    np.testing.assert_allclose(plain, run(forest.tensors, training=False))
    assert len(np.unique(plain.round(6), axis=0)) == 2
    first, second = (run(forest.tensors, training=True).numpy() for _ in range(2))
    # A leaf's own output is whole: only what the parent gets of it is dropped.
    np.testing.assert_allclose(first[forest.is_leaf], plain[forest.is_leaf], atol=1e-6)
    inner = first[~forest.is_leaf]
    assert len(np.unique(inner, axis=0)) > 150
    assert (second[~forest.is_leaf] != inner).mean() > 0.5
    again = make(name, 10, recurrent_dropout=0.4, seed=5, return_nodes=True, use_bias=False, execution="invoke")
    np.testing.assert_allclose(graph(again)(forest.tensors, training=True), first, atol=1e-6)


def test_rate_of_recurrent_dropout():
    forest = from_nested([(0, [1])] * 400)
    embedded = keras.layers.Embedding(
        2, 10, embeddings_initializer=keras.initializers.Constant([[0.0] * 10, [1.0] * 10])
    )
    ones: dict[str, Any] = {
        "kernel_initializer": "identity",
        "recurrent_initializer": "identity",
        "activation": "linear",
    }
    layer = layers.TreeRNN(10, arity=None, embedding=embedded, recurrent_dropout=0.4, seed=1, **ones)
    found = graph(layer)(forest.tensors, training=True).numpy()
    assert set(np.round(np.unique(found), 4)) == {0, np.round(np.float32(1 / 0.6), 4)}
    assert abs((found == 0).mean() - 0.4) < 0.03
    assert abs(found.mean() - 1) < 0.05


def test_regularizers_constraints_and_activity():
    layer = make(
        "rnn",
        kernel_regularizer=keras.regularizers.L2(0.5),
        recurrent_regularizer="l1",
        bias_constraint="non_neg",
        activity_regularizer=keras.regularizers.L2(1.0),
    )
    h = layer(FORESTS["rnn"].tensors)
    kernel, recurrent = layer.kernel.numpy(), layer.recurrent_kernel.numpy()
    expected = [0.5 * (kernel**2).sum(), 0.01 * np.abs(recurrent).sum(), (h.numpy() ** 2).sum() / 5]
    np.testing.assert_allclose(sorted(float(x) for x in layer.losses), sorted(expected), rtol=1e-5)
    assert layer.bias.constraint is not None


def test_forget_bias():
    bias = layers.ChildSumTreeLSTM(3, embedding=embedding())
    bias(FORESTS["child_sum"].tensors)
    assert bias.bias.numpy().tolist() == [0.0] * 9 + [1.0] * 3
    plain = layers.NaryTreeLSTM(3, embedding=embedding(), unit_forget_bias=False)
    plain(FORESTS["binary"].tensors)
    assert not plain.bias.numpy().any()


def test_more_children_than_places():
    forest = from_nested([[1, 2, 3]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 2 children"):
        graph(make("binary"))(forest.tensors)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"units": 0}, "expected units to be a positive integer, got 0"),
        ({"units": 2.5}, "expected units to be a positive integer, got 2.5"),
        ({"dropout": 1.0}, "expected dropout to be at least 0 and less than 1, got 1.0"),
        ({"recurrent_dropout": -0.1}, "expected recurrent_dropout to be"),
        ({"execution": "fast"}, "expected execution to be one of"),
        ({"arity": 0}, "expected arity to be a positive integer, got 0"),
    ],
)
def test_arguments_of_other_values(kwargs, message):
    with pytest.raises(ValueError, match=message):
        layers.NaryTreeLSTM(**{"units": 4, **kwargs})


def test_values_that_are_no_features():
    with pytest.raises(ValueError, match="expected a feature vector for every node.*Pass embedding="):
        layers.ChildSumTreeLSTM(4)(FORESTS["binary"].tensors)
    with pytest.raises(ValueError, match="expected a feature vector for every node.*Pass embedding="):
        layers.ChildSumTreeLSTM(4)(Trees.from_batched(FORESTS["binary"].tensors))


def test_layers_are_named_where_they_are_looked_for():
    assert recursion.layers is layers

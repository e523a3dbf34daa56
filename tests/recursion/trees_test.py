import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_ext.recursion.converters import from_nested, from_parents
from tf_ext.recursion.forest import Forest
from tf_ext.recursion.trees import Trees, flat_targets, pad_targets

DEEP = 100_000


def random_forest(sizes: Any, *, seed: int = 0, value_shape: tuple[int, ...] = ()) -> Forest:
    rng = np.random.default_rng(seed)
    parents = [np.concatenate([[-1], rng.integers(0, np.arange(1, size))]) for size in sizes]
    values = [rng.integers(1, 9, (size, *value_shape)).astype("float32" if value_shape else "int32") for size in sizes]
    return from_parents(parents, values, labels=[rng.integers(0, 5, size) for size in sizes])


@keras.saving.register_keras_serializable("tf_ext.tests")
class SumOfNodes(keras.layers.Layer):
    """For each tree, the sum of its nodes' values weighted by the nodes' depth."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False

    def build(self, _: Any) -> None:
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, inputs):
        trees = Trees.from_batched(inputs)
        weighted = tf.cast(trees.values, tf.float32) * tf.cast(trees.depth + 1, tf.float32)
        return self.scale * tf.math.segment_sum(weighted, trees.tree_index)[:, None]

    def compute_output_shape(self, _):
        return (None, 1)


@keras.saving.register_keras_serializable("tf_ext.tests")
class TreeModel(keras.Model):
    """Takes trees alone, in a dict with dense inputs, or in a tuple with them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sum_of_nodes = SumOfNodes()
        self.dense = keras.layers.Dense(1, kernel_initializer="zeros")

    def build(self, _: Any) -> None:
        self.sum_of_nodes.build(None)
        self.dense.build((None, 2))

    def call(self, inputs):
        trees, dense = inputs, None
        if isinstance(inputs, tuple | list):
            trees, dense = inputs
        elif "trees" in inputs:
            trees, dense = inputs["trees"], inputs["dense"]
        total = self.sum_of_nodes(trees)
        return total if dense is None else total + self.dense(dense)


def expected_sums(forest: Forest) -> Any:
    weighted = forest.values * (forest.depth + 1)
    return np.array([weighted[a:b].sum() for a, b in zip(forest.node_splits, forest.node_splits[1:], strict=False)])[
        :, None
    ]


def compiled(model: Any = None) -> Any:
    model = model or TreeModel()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def host_view(forest: Forest) -> dict[str, Any]:
    return {
        "values": forest.values,
        "child_index": forest.child_index,
        "row_splits": forest.row_splits,
        "roots": forest.roots,
        "node_splits": forest.node_splits,
        "arity": forest.arity,
        "sizes": forest.sizes,
        "is_leaf": forest.is_leaf,
        "parents": forest.parents,
        "depth": forest.depth,
        "num_nodes": forest.num_nodes,
        "num_trees": len(forest),
    }


FORESTS = {
    "mixed": random_forest([5, 1, 30, 2, 1]),
    "vectors": random_forest([5, 1, 3], value_shape=(4,)),
    "none": random_forest([3])[:0],
    "leaves": from_nested([1, 2]),
    "fan": from_parents([[-1] + [0] * 512]),
}


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("form", ["ragged", "padded"])
@pytest.mark.parametrize("where", ["eager", "graph"])
def test_flat_structure_is_the_forests(name, form, where):
    forest = FORESTS[name]
    batch = forest.tensors if form == "ragged" else forest.padded()
    run = tf.function(Trees.from_batched) if where == "graph" else Trees.from_batched
    trees = run(batch)
    for part, expected in host_view(forest).items():
        np.testing.assert_array_equal(getattr(trees, part), expected, part)
    for part in ("child_index", "row_splits", "roots", "node_splits", "parents", "depth"):
        assert getattr(trees, part).dtype == tf.int32


@given(st.lists(st.integers(1, 12), max_size=5), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_children_by_number(sizes, seed):
    forest = random_forest(sizes, seed=seed)
    trees = Trees.from_batched(forest.tensors)
    for k in range(4):
        children, splits = forest.child_index, forest.row_splits
        expected = [children[splits[i] + k] if forest.arity[i] > k else -1 for i in range(forest.num_nodes)]
        assert trees.child(k).numpy().tolist() == expected
    assert trees.left.numpy().tolist() == trees.child(0).numpy().tolist()
    assert trees.right.numpy().tolist() == trees.child(1).numpy().tolist()


def test_padding_and_back():
    forest = FORESTS["mixed"]
    trees = Trees.from_batched(forest.tensors)
    padded = trees.pad(trees.values)
    np.testing.assert_array_equal(padded, forest.padded()["values"])
    np.testing.assert_array_equal(trees.mask, forest.padded()["arity"] >= 0)
    np.testing.assert_array_equal(trees.unpad(padded), forest.values)
    assert trees.ragged(trees.values).to_list() == forest.tensors["values"].to_list()


def test_gradients_reach_the_values():
    forest = FORESTS["vectors"]
    values = tf.constant(forest.values)
    with tf.GradientTape() as tape:
        tape.watch(values)
        batch = {"arity": forest.tensors["arity"], "values": forest.tensors["values"].with_flat_values(values)}
        loss = tf.reduce_sum(Trees.from_batched(batch).values ** 2)
    np.testing.assert_allclose(tape.gradient(loss, values), 2 * forest.values)


def test_deep_chain():
    chain = from_parents([np.arange(-1, DEEP - 1), [-1]])
    trees = tf.function(Trees.from_batched)(chain.tensors)
    np.testing.assert_array_equal(trees.depth, chain.depth)
    np.testing.assert_array_equal(trees.left, [-1, *range(DEEP - 1), -1])


def test_one_trace_for_every_batch():
    traces = []

    @tf.function(input_signature=[FORESTS["mixed"].spec])
    def sizes(batch):
        traces.append(1)
        return Trees.from_batched(batch).sizes

    for count in (0, 1, 2, 5):
        forest = FORESTS["mixed"][:count]
        assert sizes(forest.tensors).numpy().tolist() == forest.sizes.tolist()
    assert len(traces) == 1


def test_trees_are_a_nest():
    trees = Trees.from_batched(FORESTS["mixed"].tensors)
    doubled = tf.function(lambda t: t._replace(values=2 * t.values))(trees)
    assert isinstance(doubled, Trees)
    np.testing.assert_array_equal(doubled.values, 2 * FORESTS["mixed"].values)


@pytest.mark.parametrize(
    ("arity", "sizes"),
    [
        ([0, 2, 0], [3]),  # a parent before its child
        ([0, 0], [2]),  # two roots
        ([1, 0], [1, 1]),  # a child in another tree
        ([0], [1, 0]),  # a tree of no nodes
        ([0, -1, 2], [3]),
        ([2**31 - 1, 2**31 - 1, 4], [3]),  # sums that overflow to the right number
    ],
)
@pytest.mark.parametrize("where", ["eager", "graph"])
def test_a_batch_that_is_no_forest(arity, sizes, where):
    ragged = tf.RaggedTensor.from_row_lengths(tf.constant(arity, tf.int32), sizes)
    run = tf.function(Trees.from_batched) if where == "graph" else Trees.from_batched
    with pytest.raises(tf.errors.InvalidArgumentError, match="level order, deepest level"):
        run({"arity": ragged, "values": ragged})


def test_values_that_do_not_match_the_arity():
    forest = from_nested([[1, 2], 3])
    other = tf.RaggedTensor.from_row_lengths([1, 2, 3, 4], [2, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="one value a node"):
        Trees.from_batched({"arity": forest.tensors["arity"], "values": other})
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        Trees.from_batched({"arity": forest.padded()["arity"], "values": np.zeros((2, 4))})


def test_a_batch_of_another_kind():
    forest = from_nested([[1, 2], 3])
    with pytest.raises(
        ValueError, match=r"expected a dict with 'arity' and 'values', as Forest.tensors, got \['arity'\]"
    ):
        Trees.from_batched({"arity": forest.tensors["arity"]})
    with pytest.raises(ValueError, match="got Forest"):
        Trees.from_batched(forest)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both ragged or both dense, got RaggedTensor and ndarray"):
        Trees.from_batched({**forest.padded(), "arity": forest.tensors["arity"]})
    with pytest.raises(ValueError, match="a single tree is a batch of one"):
        Trees.from_batched(next(iter(forest.dataset())))
    with pytest.raises(ValueError, match="expected an arity of whole numbers"):
        Trees.from_batched({"arity": np.array([["0"]]), "values": np.zeros((1, 1))})
    with pytest.raises(tf.errors.InvalidArgumentError, match="level order"):
        Trees.from_batched({"arity": np.array([[0, 0.5]]), "values": np.zeros((1, 2))})
    assert Trees.from_batched({"arity": np.array([[0, 1.0]]), "values": np.zeros((1, 2))}).arity.dtype == tf.int32


def test_dataset_keeps_trees_whole_through_shuffle_batch_prefetch():
    forest = random_forest([3, 1, 7, 2, 5, 4, 1], value_shape=(2,))
    dataset = forest.dataset(np.arange(7)).shuffle(7, seed=1).batch(3).prefetch(1)
    seen = []
    for x, y in dataset.map(lambda x, y: (Trees.from_batched(x), y)):
        expected = forest[y.numpy()]
        for part, array in host_view(expected).items():
            np.testing.assert_array_equal(getattr(x, part), array, part)
        seen.extend(y.numpy().tolist())
    assert sorted(seen) == list(range(7))
    assert seen != list(range(7))


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_generator_of_vectors(form):
    forest = random_forest([3, 1, 7, 2])

    def elements():
        for tree in forest:
            yield {"arity": tree.arity, "values": tree.values}

    vector = tf.TensorSpec([None], tf.int32)
    dataset = tf.data.Dataset.from_generator(elements, output_signature={"arity": vector, "values": vector})
    if form == "ragged":
        dataset = dataset.ragged_batch(4)
    else:
        dataset = dataset.padded_batch(4, padding_values={"arity": -1, "values": 0})
    trees = Trees.from_batched(next(iter(dataset)))
    np.testing.assert_array_equal(trees.child_index, forest.child_index)
    np.testing.assert_array_equal(trees.values, forest.values)


def test_dataset_names_are_the_users():
    forest = FORESTS["leaves"]
    x = next(iter(forest.dataset(dense={"dense": np.ones((2, 3))}).batch(2)))
    assert (sorted(x), x["dense"].shape) == (["dense", "trees"], [2, 3])
    with pytest.raises(ValueError, match="expected names other than 'trees'"):
        forest.dataset(dense={"trees": np.ones(2)})


@pytest.fixture(name="forest")
def _forest():
    return random_forest([5, 1, 9, 2, 4, 3, 1, 8, 6, 2])


def beside(trees: Any, forest: Forest) -> Any:
    """Dense inputs of the trees' kind: a model that is called takes either arrays or tensors, not both."""
    dense = np.ones((len(forest), 2), np.float32)
    return dense if isinstance(trees["arity"], np.ndarray) else tf.constant(dense)


def check_keras(model: Any, x: Any, dataset: tf.data.Dataset, forest: Forest) -> None:
    """Trains for a moment at rate zero and compares loss and predictions with what numpy says."""
    expected = expected_sums(forest)
    loss = np.mean((expected - 1) ** 2)
    model.fit(dataset, epochs=2, verbose=0)
    np.testing.assert_allclose(model.evaluate(dataset, verbose=0), loss, rtol=1e-5)
    np.testing.assert_allclose(model.predict(dataset, verbose=0), expected, rtol=1e-6)
    model.fit(x, np.ones((len(forest), 1), np.float32), batch_size=4, verbose=0)
    np.testing.assert_allclose(model.predict(x, batch_size=3, verbose=0), expected, rtol=1e-6)
    np.testing.assert_allclose(model.predict_on_batch(x), expected, rtol=1e-6)
    np.testing.assert_allclose(model(x), expected, rtol=1e-6)


@pytest.mark.parametrize("together", ["alone", "dict", "tuple"])
@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_keras_subclass_model(forest, together, form):
    trees = forest.tensors if form == "ragged" else forest.padded()
    dense = beside(trees, forest)
    x = {"alone": trees, "dict": {"trees": trees, "dense": dense}, "tuple": (trees, dense)}[together]
    y = np.ones((len(forest), 1), np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4).prefetch(1)
    check_keras(compiled(), x, dataset, forest)


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_keras_functional_model(forest, form, tmp_path):
    inputs = {"trees": Trees.inputs(), "dense": keras.Input((2,), name="dense_part")}
    dense_part = keras.layers.Dense(1, kernel_initializer="zeros")(inputs["dense"])
    model = compiled(keras.Model(inputs, SumOfNodes()(inputs["trees"]) + dense_part))
    trees = forest.tensors if form == "ragged" else forest.padded()
    x = {"trees": trees, "dense": beside(trees, forest)}
    dataset = tf.data.Dataset.from_tensor_slices((x, np.ones((len(forest), 1), np.float32))).batch(4)
    check_keras(model, x, dataset, forest)

    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(dataset, verbose=0), expected_sums(forest), rtol=1e-6)
    # A served model takes dense tensors: the padded form.
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve({**x, "trees": forest.padded()}), expected_sums(forest), rtol=1e-6)


def test_keras_validation_split_and_empty_batch(forest):
    model = compiled()
    history = model.fit(forest.tensors, np.ones((len(forest), 1)), validation_split=0.3, batch_size=4, verbose=0)
    np.testing.assert_allclose(history.history["val_loss"], [np.mean((expected_sums(forest[7:]) - 1) ** 2)], rtol=1e-5)
    assert model(forest[:0].tensors).shape == (0, 1)


def test_keras_traces_once_for_all_batch_sizes(forest):
    model = compiled()
    model.fit(forest.dataset(np.ones((10, 1), np.float32)).batch(4), verbose=0)
    calls = []
    original = model.sum_of_nodes.call

    def counting(inputs):
        calls.append(1)
        return original(inputs)

    model.sum_of_nodes.call = counting
    for size in (1, 3, 10):
        model.fit(forest.dataset(np.ones((10, 1), np.float32)).batch(size), verbose=0)
    assert not calls


class LabelOfNodes(keras.Model):
    """Scores for the five labels of every node."""

    def __init__(self, width: int | None = None) -> None:
        super().__init__()
        self.embedding = keras.layers.Embedding(10, 5)
        self.width = width

    def call(self, inputs):
        trees = Trees.from_batched(inputs)
        scores = self.embedding(trees.values)
        return scores if self.width is None else trees.pad(scores, self.width)


@pytest.mark.parametrize("width", [None, 9])
def test_targets_for_every_node_through_fit(forest, width):
    model = LabelOfNodes(width)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model.compile("sgd", loss, weighted_metrics=["sparse_categorical_accuracy"])
    targets = flat_targets if width is None else functools.partial(pad_targets, width=width)
    dataset = forest.dataset(forest.node_labels).batch(4).map(targets)
    model.fit(dataset, verbose=0)
    measured = model.evaluate(dataset, verbose=0, return_dict=True)
    scores = model.embedding(forest.values).numpy()
    accuracy = np.mean(scores.argmax(1) == forest.labels)
    np.testing.assert_allclose(measured["sparse_categorical_accuracy"], accuracy, rtol=1e-6)
    predicted = model.predict(forest.dataset().batch(4), verbose=0)
    if width is not None:
        predicted = predicted[forest.padded()["arity"] >= 0]
    np.testing.assert_allclose(predicted, scores, rtol=1e-6)


def test_pad_targets_weights():
    y = tf.RaggedTensor.from_row_lengths(np.array([[0.5, 1], [2, 3], [4, 5]], np.float32), [1, 2])
    x, padded, weights = pad_targets("x", y, tf.constant([2.0, 3.0]))
    assert x == "x"
    assert padded.shape == [2, 2, 2]
    assert weights.numpy().tolist() == [[2, 0], [3, 3]]
    with pytest.raises(ValueError, match="targets: expected a ragged one for each node"):
        pad_targets(None, tf.zeros([2]))
    assert pad_targets("x", y, width=1)[1].shape == [2, 1, 2]
    none = FORESTS["none"]
    assert pad_targets(None, none.node_labels)[2].shape == (0, 0)


def test_labels_are_asked_for_by_name():
    with pytest.raises(ValueError, match="expected trees with labels, got none"):
        _ = from_nested([1]).root_labels
    assert isinstance(from_nested([1]), Forest)

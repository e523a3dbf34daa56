"""The layers in Keras models: training, saving, serving, targets for nodes, several devices."""

import os
import pathlib
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.layers_reference import embedding, layer_outputs, random_forest
from tf_ext.recursion import layers
from tf_ext.recursion.trees import Trees, flat_targets

ROOT = pathlib.Path(__file__).parents[2]
FOREST = random_forest([5, 1, 9, 2, 4, 3, 1, 8, 6, 2] * 3)
LAYERS: dict[str, Any] = {
    "child_sum": lambda **kw: layers.ChildSumTreeLSTM(8, embedding=embedding(), **kw),
    "binary": lambda **kw: layers.NaryTreeLSTM(8, embedding=embedding(mask_zero=True), **kw),
    "rnn": lambda **kw: layers.TreeRNN(8, arity=None, embedding=embedding(), **kw),
    "rntn": lambda **kw: layers.RNTN(6, embedding=embedding(), kernel_initializer="identity", **kw),
}


def classifier(layer: Any, *, dense: bool = False, **kwargs: Any) -> Any:
    trees = Trees.inputs()
    h = layer(trees)
    inputs: Any = trees
    if dense:
        inputs = {"trees": trees, "dense": keras.Input((2,), name="dense_part")}
        h = keras.layers.Concatenate()([h, inputs["dense"]])
    model = keras.Model(inputs, keras.layers.Dense(5)(h))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, weighted_metrics=["accuracy"], **kwargs)
    return model


def in_a_new_process(code: str, *args: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_LOAD = """
import sys
import keras, numpy as np, tensorflow as tf
import tf_ext.recursion
folder = sys.argv[1]
x = dict(np.load(folder + "/x.npz"))
loaded = tf.saved_model.load(folder + "/served")
served = loaded.serve(x)
import tf_ext.recursion.layers  # as for all layers that are not Keras' own
model = keras.models.load_model(folder + "/model.keras")
np.savez(folder + "/y.npz", loaded=model.predict(x, verbose=0), served=served)
model.fit(x, np.load(folder + "/targets.npy"), verbose=0)
"""


@pytest.mark.parametrize(
    "name",
    ["child_sum", pytest.param("rnn", marks=pytest.mark.slow), "binary", pytest.param("rntn", marks=pytest.mark.slow)],
)
def test_fit_evaluate_predict_save_load_export(name, tmp_path):
    layer = LAYERS[name](dropout=0.1, recurrent_dropout=0.1, seed=1)
    model = classifier(layer)
    dataset = FOREST.dataset(FOREST.root_labels).shuffle(30, seed=1).batch(7).prefetch(1)
    before = model.evaluate(dataset, verbose=0)[0]
    history = model.fit(dataset, epochs=12, verbose=0, validation_data=dataset)
    assert history.history["val_loss"][-1] < 0.8 * before
    assert model.jit_compile is False  # left to Keras' automatic choice
    ragged = model.predict(FOREST.tensors, batch_size=11, verbose=0)
    np.testing.assert_allclose(model.predict(FOREST.padded(), verbose=0), ragged, rtol=1e-5, atol=1e-6)
    h = tf.gather(layer_outputs(layer, FOREST), FOREST.roots)
    np.testing.assert_allclose(model.layers[-1](h), ragged, rtol=1e-4, atol=1e-5)

    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "served", verbose=False)
    padded: dict[str, Any] = FOREST.padded()
    np.savez(tmp_path / "x.npz", **padded)
    np.save(tmp_path / "targets.npy", FOREST.root_labels)
    in_a_new_process(_LOAD, tmp_path)
    found = np.load(tmp_path / "y.npz")
    np.testing.assert_allclose(found["loaded"], ragged, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["served"], ragged, rtol=1e-5, atol=1e-6)

    model.save_weights(tmp_path / "of.weights.h5")
    other = classifier(LAYERS[name](execution="invoke"))
    other.load_weights(tmp_path / "of.weights.h5")
    np.testing.assert_allclose(other.predict(FOREST.tensors, verbose=0), ragged, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_config_makes_the_same_layer(name):
    layer = LAYERS[name](
        activation="relu",
        use_bias=False,
        recurrent_initializer="zeros",
        kernel_regularizer="l2",
        bias_constraint="non_neg",
        dropout=0.1,
        recurrent_dropout=0.2,
        return_nodes=True,
        execution="invoke",
        seed=4,
        dtype="mixed_bfloat16",
        name="of_trees",
    )
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
    assert (again.dropout, again.recurrent_dropout, again.execution, again.seed) == (0.1, 0.2, "invoke", 4)
    assert again.kernel_regularizer is not None
    assert again.embedding.input_dim == layer.embedding.input_dim
    assert again.supports_jit is False


def test_beside_dense_inputs():
    model = classifier(LAYERS["child_sum"](), dense=True)
    dense = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    dataset = FOREST.dataset(FOREST.root_labels, dense={"dense": dense}).batch(7)
    losses = model.fit(dataset, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert model.predict(dataset, verbose=0).shape == (30, 5)


@pytest.mark.parametrize("name", ["child_sum", "rntn"])
def test_an_output_target_and_weight_for_every_node(name):
    layer = LAYERS[name](return_nodes=True)
    model = classifier(layer)
    labels = FOREST.node_labels
    known = tf.where(tf.random.stateless_uniform(tf.shape(labels.flat_values), [1, 2]) < 0.8, labels.flat_values, -1)
    dataset = FOREST.dataset(labels.with_flat_values(known)).batch(7).map(flat_targets)
    losses = model.fit(dataset, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    scores = model.predict(FOREST.dataset().batch(7), verbose=0)
    np.testing.assert_allclose(scores, model.layers[-1](layer_outputs(layer, FOREST)), rtol=1e-4, atol=1e-5)
    there = known.numpy() >= 0
    assert not there.all()
    expected = (scores.argmax(1) == known.numpy())[there].mean()
    measured = model.evaluate(dataset, verbose=0, return_dict=True)["accuracy"]
    np.testing.assert_allclose(measured, expected, rtol=1e-5)


def test_layers_on_layers():
    """The outputs of one layer are the features of the next."""

    class Stacked(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = layers.ChildSumTreeLSTM(8, embedding=embedding(), return_nodes=True)
            self.second = layers.TreeRNN(5, arity=None)

        def call(self, batch):
            trees = Trees.from_batched(batch)
            return self.second(trees, self.first(trees))

    model = Stacked()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(FOREST.dataset(FOREST.root_labels).batch(7), verbose=0)
    assert model.predict(FOREST.tensors, verbose=0).shape == (30, 5)
    assert len(model.trainable_variables) == 1 + 3 + 3


def test_mixed_precision_trains():
    model = classifier(LAYERS["child_sum"](dtype="mixed_bfloat16", dropout=0.1, recurrent_dropout=0.1))
    losses = model.fit(FOREST.dataset(FOREST.root_labels).batch(7), epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]


_MIRRORED = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.recursion.layers_keras_test import FOREST, LAYERS, classifier
x, y = FOREST.padded(), FOREST.root_labels
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
keras.utils.set_random_seed(1)
single = classifier(LAYERS["child_sum"]())
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
keras.utils.set_random_seed(1)
with strategy.scope():
    model = classifier(LAYERS["child_sum"]())
    dropping = classifier(LAYERS["child_sum"](dropout=0.2, recurrent_dropout=0.2))
assert strategy.num_replicas_in_sync == 2
for one in (single, model):
    one.fit(dataset, epochs=2, verbose=0)
a, b = (one.predict(x, verbose=0) for one in (single, model))
print("apart", np.abs(a - b).max())
dropping.fit(dataset, verbose=0)
"""


def test_mirrored_strategy_does_as_one_device_does():
    apart = float(in_a_new_process(_MIRRORED).split("apart")[1])
    assert apart < 1e-4

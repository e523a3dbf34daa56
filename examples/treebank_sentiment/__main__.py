"""Trains a TreeLSTM on treebank lines: `python -m examples.treebank_sentiment`.

The sample was written for this example, in the format of the Stanford Sentiment Treebank: a label from 0 (very
negative) to 4 (very positive) for every phrase. Give the treebank's own `train.txt` and `test.txt` by
flags to train on these.
"""

from __future__ import annotations

import pathlib

import keras
import numpy as np
from absl import app, flags

from tf_ext.recursion import Forest, Trees, Vocabulary, flat_targets, from_sexpr, layers

_HERE = pathlib.Path(__file__).parent
_TRAIN = flags.DEFINE_string("train", str(_HERE / "train.txt"), "Treebank lines to learn from.")
_TEST = flags.DEFINE_string("test", str(_HERE / "test.txt"), "Treebank lines to measure with.")
_EPOCHS = flags.DEFINE_integer("epochs", 40, "How often to go through the training lines.", lower_bound=1)
_UNITS = flags.DEFINE_integer("units", 32, "Size of a phrase's vector.", lower_bound=1)


def main(_: list[str]) -> None:
    """Trains, and prints how many phrases and sentences of the test lines get the right label."""
    keras.utils.set_random_seed(1)
    vocabulary = Vocabulary()
    train = from_sexpr(pathlib.Path(_TRAIN.value).read_text(encoding="utf-8"), vocabulary=vocabulary)
    vocabulary.freeze()
    test = from_sexpr(pathlib.Path(_TEST.value).read_text(encoding="utf-8"), vocabulary=vocabulary)
    model = build(len(vocabulary), _UNITS.value)
    batches = train.dataset(train.node_labels).shuffle(len(train), seed=1).batch(8).map(flat_targets)
    model.fit(batches, epochs=_EPOCHS.value, shuffle=False, verbose=2 if _EPOCHS.value < 5 else 0)
    right = _right(model, test)
    common = np.bincount(train.required_labels).argmax()
    print(f"phrases:   {right.mean():.1%}  (always {common}: {np.mean(test.required_labels == common):.1%})")
    common = np.bincount(train.root_labels).argmax()
    print(f"sentences: {right[test.roots].mean():.1%}  (always {common}: {(test.root_labels == common).mean():.1%})")


def build(num_words: int, units: int) -> keras.Model:
    """A binary TreeLSTM with scores for the five labels of every phrase.

    Args:
        num_words: the size of the vocabulary.
        units: the size of a phrase's vector.

    Returns:
        The compiled model.
    """
    inputs = Trees.inputs()
    # Phrases of several words carry no word, which is number 0: masked, they have no features of their own.
    embedding = keras.layers.Embedding(num_words, units, mask_zero=True)
    h = layers.NaryTreeLSTM(units, embedding=embedding, dropout=0.2, return_nodes=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(5)(h))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.01), loss)
    return model


def _right(model: keras.Model, forest: Forest) -> np.ndarray:
    scores = model.predict(forest.dataset().batch(100), verbose=0)
    return scores.argmax(1) == forest.required_labels


if __name__ == "__main__":
    app.run(main)

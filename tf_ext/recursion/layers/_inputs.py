"""What a tree layer is given: batches of trees, features and masks in several forms, all made flat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_ext.recursion.trees import Trees


def positive(layer: str, name: str, value: Any) -> int:
    """`value` where it is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{layer}: expected {name} to be a positive integer, got {value!r}.")
    return value


def flat_trees(trees: Any) -> tuple[Trees, tf.Tensor | None]:
    """The flat form of a batch; for a padded one also where it has nodes, boolean [num_trees, width]."""
    if isinstance(trees, Trees):
        return trees, None
    flat = Trees.from_batched(trees)
    arity = trees["arity"]
    return flat, None if isinstance(arity, tf.RaggedTensor) else tf.convert_to_tensor(arity) >= 0


def flat_features(layer: str, trees: Trees, there: tf.Tensor | None, features: Any, embedding: Any) -> tf.Tensor:
    """[num_nodes, d], from the argument, the embedding or the trees' own values."""
    if features is not None:
        return _flat(features, there, rank=2)
    if embedding is not None:
        return embedding(trees.values)
    if trees.values.shape.rank != 2 or not trees.values.dtype.is_floating:
        raise _no_features(layer, f"values of type {trees.values.dtype.name} and shape {trees.values.shape}")
    return trees.values


def flat_mask(mask: Any, there: tf.Tensor | None) -> tf.Tensor | None:
    """Boolean [num_nodes]; Keras hands a mask in the structure of the argument that it belongs to."""
    if isinstance(mask, Mapping):
        mask = mask.get("values")
    elif isinstance(mask, Trees):
        mask = mask.values
    return None if mask is None else tf.cast(_flat(mask, there, rank=1), tf.bool)


def own_mask(embedding: Any, trees: Trees) -> tf.Tensor | None:
    """Which values an embedding counts as values."""
    return None if embedding is None else embedding.compute_mask(trees.values, None)


def feature_width(layer: str, trees_shape: Any, features_shape: Any, embedding: Any) -> int:
    """The number of features of a node, from shapes as Keras gives them to `build`; builds the embedding."""
    values = _values_shape(trees_shape)
    if features_shape is not None:
        width = features_shape[-1]
    elif embedding is not None:
        # A batch has the dimensions of trees and of nodes, where the flat form has that of nodes alone.
        of_node = values[1:] if isinstance(trees_shape, Trees) else values[2:]
        if not embedding.built:
            embedding.build((None, *of_node))
        width = embedding.compute_output_shape((None, *of_node))[-1]
    else:
        if len(values) != (2 if isinstance(trees_shape, Trees) else 3):
            raise _no_features(layer, f"values of shape {tuple(values)}")
        width = values[-1]
    if width is None:
        raise ValueError(f"{layer}: expected features of a size known when the model is built, got {trees_shape}.")
    return int(width)


def num_trees(trees_shape: Any) -> int | None:
    """The static number of trees, where it is known."""
    shape = trees_shape.roots if isinstance(trees_shape, Trees) else trees_shape["arity"]
    return None if shape is None else shape[0]


def _values_shape(trees_shape: Any) -> tuple[int | None, ...]:
    if isinstance(trees_shape, Trees):
        return tuple(trees_shape.values)
    return tuple(trees_shape["values"])


def _flat(tensor: Any, there: tf.Tensor | None, rank: int) -> tf.Tensor:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.flat_values
    tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank == rank + 1 and there is not None:
        return tf.boolean_mask(tensor, there)
    if tensor.shape.rank != rank:
        raise ValueError(
            f"expected features [num_nodes, d] and masks [num_nodes], or of the form of the batch, got {tensor.shape}."
        )
    return tensor


def _no_features(layer: str, came: str) -> ValueError:
    return ValueError(
        f"{layer}: expected a feature vector for every node, got {came}. Pass embedding=keras.layers.Embedding(...) "
        "for values that are integers, or features=... in the call."
    )

"""Keras models to TFLite models: the one module of `tf_ext.lite` that imports TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tf_ext.lite import errors

__all__ = ["from_keras", "is_keras", "keras_application"]

QUANTISATIONS = ("float32", "float16", "dynamic", "int8")
_SEED = 7


def is_keras(model: Any) -> bool:
    """Whether an object is a Keras model; imports nothing."""
    return any(base.__module__.split(".")[0] in ("keras", "tf_keras", "tensorflow") for base in type(model).__mro__)


def from_keras(model: Any, *, quantisation: str = "float32", examples: Any = None) -> bytes:
    """Converts a Keras model with `tf.lite.TFLiteConverter`.

    Args:
        model: a Keras model, built.
        quantisation: ``"float32"``; ``"float16"``: weights of half precision; ``"dynamic"``: weights of eight bits;
            ``"int8"``: weights and activations of eight bits, inputs and outputs too.
        examples: for ``"int8"``: an iterable of lists of inputs, each an array with a batch of one, which tell the
            range of every tensor.

    Returns:
        The bytes of a ``.tflite`` file.

    Raises:
        InvalidArgumentError: there is no such quantisation, or no examples where they are needed.
        UnavailableError: TensorFlow is absent.

    Example:
        >>> bundle = tf_ext.lite.make_bundle(tf_ext.lite.from_keras(model, quantisation="float16"), "model.tfxlite")
    """
    if quantisation not in QUANTISATIONS:
        raise errors.InvalidArgumentError(f"expected one of {', '.join(QUANTISATIONS)}, but got {quantisation!r}")
    if quantisation == "int8" and examples is None:
        raise errors.InvalidArgumentError("int8 needs `examples`: some inputs, from which the ranges are learnt")
    tf = _tensorflow()
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if quantisation != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantisation == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if quantisation == "int8":
        converter.representative_dataset = lambda: iter(examples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def keras_application(name: str, quantisation: str) -> bytes:
    """Converts one of `keras.applications`, with random weights that are the same each time.

    Args:
        name: the class, such as ``"MobileNetV2"``.
        quantisation: see `from_keras`.

    Returns:
        The bytes of a ``.tflite`` file; its input has the shape [1, 224, 224, 3].
    """
    tf = _tensorflow()
    tf.keras.utils.set_random_seed(_SEED)
    model = getattr(tf.keras.applications, name)(weights=None, input_shape=(224, 224, 3))
    return from_keras(model, quantisation=quantisation, examples=list(_pictures()))


def _pictures() -> Iterator[list[np.ndarray]]:
    generator = np.random.default_rng(_SEED)
    for _ in range(4):
        yield [generator.random((1, 224, 224, 3), dtype=np.float32)]


def _tensorflow() -> Any:
    try:
        import tensorflow as tf
    except ImportError as error:
        raise errors.UnavailableError(
            f"converting a Keras model needs TensorFlow, which cannot be imported ({error}); install it "
            "(pip install tensorflow-cpu), or give a .tflite file"
        ) from error
    return tf

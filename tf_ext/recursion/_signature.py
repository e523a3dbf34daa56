"""Checks arguments and results against declared signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion.errors import SignatureError

if TYPE_CHECKING:
    from tf_ext.recursion.subgraph import SubGraph


def check_inputs(name: str, signature: Sequence[Any]) -> tuple[Any, ...]:
    """The input signature as a tuple of nests of `tf.TensorSpec`."""
    if not isinstance(signature, (list, tuple)):
        raise SignatureError(
            f"SubGraph {name!r}: expected input_signature to be a list with one entry per argument, got {signature!r}."
        )
    return tuple(check_outputs(name, spec, "input_signature") for spec in signature)


def check_outputs(name: str, signature: Any, what: str = "output_signature") -> Any:
    """The signature itself, if it is a nest of `tf.TensorSpec`."""
    for spec in tf.nest.flatten(signature):
        if not isinstance(spec, tf.TensorSpec):
            raise SignatureError(
                f"SubGraph {name!r}: expected {what} to be a nest of tf.TensorSpec, got {spec!r} in it."
            )
        if spec.shape.rank is None:
            raise SignatureError(
                f"SubGraph {name!r}: {what} holds {spec!r}, whose number of dimensions is unknown; give it a shape with "
                "None for the dimensions that vary."
            )
    return signature


def mapped_arguments(subgraph: SubGraph, in_axes: Any, count: int) -> list[bool]:
    """Per positional argument, whether `map` takes it apart."""
    axes = list(in_axes) if isinstance(in_axes, (list, tuple)) else [in_axes] * count
    if len(axes) != count or any(axis not in (0, None) for axis in axes):
        raise ValueError(
            f"SubGraph {subgraph.name!r}.map: expected in_axes to be 0, None, or a sequence of them with one entry per "
            f"argument ({count}), got {in_axes!r}."
        )
    if not any(axis == 0 for axis in axes):
        raise ValueError(f"SubGraph {subgraph.name!r}.map: in_axes={in_axes!r} maps no argument; call it directly.")
    return [axis == 0 for axis in axes]


def check_keywords(subgraph: SubGraph, others: Mapping[str, Any]) -> None:
    """Refuses arguments by name: a declaration has none, and the body may come later."""
    if others:
        raise SignatureError(
            f"SubGraph {subgraph.name!r}: expected positional arguments, in the order of input_signature, got "
            f"{', '.join(f'{name}=' for name in others)}. Write the values without names."
        )


def bind(subgraph: SubGraph, args: Sequence[Any], mapped: Sequence[bool] | None = None) -> list[tf.Tensor]:
    """Converts arguments to tensors and checks them.

    Args:
      subgraph: whose input signature holds.
      args: positional arguments.
      mapped: per argument, whether it has a leading dimension that the signature does not name.

    Returns:
      The flat list of tensors.

    Raises:
      SignatureError: naming the argument, what was expected and what came.
    """
    expected = subgraph.input_signature
    if len(args) != len(expected):
        raise SignatureError(
            f"SubGraph {subgraph.name!r}: expected {len(expected)} argument(s) {expected}, got {len(args)}."
        )
    flat: list[tf.Tensor] = []
    for i, (spec, arg) in enumerate(zip(expected, args, strict=True)):
        leading = bool(mapped and mapped[i])
        flat.extend(_convert(f"SubGraph {subgraph.name!r}, argument {i}", spec, arg, leading))
    return flat


def check_results(subgraph: SubGraph, results: Any) -> list[tf.Tensor]:
    """Converts and checks what a body returned; see `bind`."""
    return _convert(f"SubGraph {subgraph.name!r}, result of its body", subgraph.output_signature, results, False)


def _convert(where: str, spec: Any, value: Any, leading: bool) -> list[tf.Tensor]:
    """Flat tensors of `value`, which has to have the structure, dtypes and shapes of `spec`."""
    try:
        parts = graphs.flatten_up_to(spec, value)  # where a tensor is expected, lists of numbers will do
    except (TypeError, ValueError):
        raise SignatureError(f"{where}: expected the structure of {spec}, got {value!r}.") from None
    tensors = []
    for one, part in zip(tf.nest.flatten(spec), parts, strict=True):
        try:
            tensor = tf.convert_to_tensor(part, dtype=None if tf.is_tensor(part) else one.dtype)
        except (TypeError, ValueError) as error:
            raise SignatureError(f"{where}: expected {one}, got {part!r} ({error}).") from None
        shape = tf.TensorShape([None]).concatenate(one.shape) if leading else one.shape
        if tensor.dtype != one.dtype or not shape.is_compatible_with(tensor.shape):
            row = " with a leading dimension for map" if leading else ""
            raise SignatureError(
                f"{where}: expected dtype {one.dtype.name} and shape {one.shape}{row}, got dtype {tensor.dtype.name} and "
                f"shape {tensor.shape}; convert it with tf.cast or tf.reshape, or change the signature."
            )
        if _tells_less(tensor.shape, shape):
            # Its name is all that a message of the run can say of it.
            tensor = tf.ensure_shape(tensor, shape, name="declared_shape_of_" + where.split(", ")[-1].replace(" ", "_"))
        tensors.append(tensor)
    return tensors


def _tells_less(given: tf.TensorShape, expected: tf.TensorShape) -> bool:
    """Whether only the run tells if a tensor has the expected shape."""
    if given.rank is None:
        return True
    return any(g is None and e is not None for g, e in zip(given.as_list(), expected.as_list(), strict=True))

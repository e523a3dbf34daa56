"""The cells of `models.py` in TensorFlow, on rows, shared by the peers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.recursion.models import Model

Tensors = Mapping[str, tf.Tensor]


class State(NamedTuple):
    """`h` and `c` of some nodes, one node per row."""

    h: tf.Tensor
    c: tf.Tensor


class Runner(NamedTuple):
    """One implementation, made ready for one forest.

    Attributes:
        infer: Returns the roots' `h`, `[batch, hidden]`.
        train: Returns the loss and the gradient of every weight by name.
    """

    infer: Callable[[], Any]
    train: Callable[[], tuple[Any, dict[str, Any]]]


class Parameters:
    """The weights of a model as variables, and its probe as a tensor.

    Args:
        model: Holds the weights.
        dtype: Of the variables.
        compute: Of the cells; other than `dtype` for mixed precision.
    """

    def __init__(self, model: Model, dtype: tf.DType = tf.float32, compute: tf.DType | None = None) -> None:
        self.hidden = model.hidden
        self.compute = compute or dtype
        self.variables = {name: tf.Variable(value, dtype=dtype, name=name) for name, value in model.weights.items()}
        self.probe = tf.constant(model.probe, dtype)

    def read(self) -> dict[str, tf.Tensor]:
        """Reads every weight but the embedding, once."""
        names = [name for name in self.variables if name != "embedding"]
        return {name: tf.cast(self.variables[name].read_value(), self.compute) for name in names}

    def lookup(self, tokens: tf.Tensor | int | list[int]) -> tf.Tensor:
        """Looks rows of the embedding up, from the variable: so its gradient is `IndexedSlices`."""
        return tf.cast(tf.gather(self.variables["embedding"], tokens), self.compute)

    def loss(self, h: tf.Tensor) -> tf.Tensor:
        """Returns the mean over the trees of `h . probe`."""
        return tf.reduce_mean(tf.linalg.matvec(tf.cast(h, self.probe.dtype), self.probe))

    def differentiate(self, forward: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, dict[str, Any]]:
        """Runs `forward` and returns the loss of its result and the gradients."""
        with tf.GradientTape() as tape:
            loss = self.loss(forward())
        return loss, tape.gradient(loss, self.variables)


def pack(arrays: Sequence[npt.NDArray[np.int32]]) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins integer arrays, and tells their sizes: an argument of a `tf.function` costs more than a level of a tree."""
    return tf.constant(np.concatenate(arrays), tf.int32), tf.constant([len(array) for array in arrays], tf.int32)


def unpack(packed: tf.Tensor, sizes: tf.Tensor, num: int) -> list[tf.Tensor]:
    """Takes the arrays apart again, inside of the function."""
    return list(tf.split(packed, sizes, num=num))


def dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns `x @ kernel + bias` for rows `x`."""
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def leaf(gates: tf.Tensor) -> State:
    """Computes a node without children from the gates i, o, u: `[..., 3 * hidden]`, before the squashing."""
    squash, update = _split(gates, 2, 1)
    i, o = _split(tf.sigmoid(squash), 1, 1)
    c = i * tf.tanh(update)
    return State(o * tf.tanh(c), c)


def pair(gates: tf.Tensor, c: tf.Tensor) -> State:
    """Computes a node of two children.

    Args:
        gates: i, o, f_l, f_r, u: `[..., 5 * hidden]`, before the squashing.
        c: The children's `c` side by side, `[..., 2 * hidden]`.
    """
    squash, update = _split(gates, 4, 1)
    i, o, forget = _split(tf.sigmoid(squash), 1, 1, 2)
    kept_left, kept_right = _split(forget * c, 1, 1)
    c = i * tf.tanh(update) + kept_left + kept_right
    return State(o * tf.tanh(c), c)


def sum_of_children(gates: tf.Tensor, kept: tf.Tensor) -> State:
    """Computes a child-sum node.

    Args:
        gates: i, o, u: `[..., 3 * hidden]`, before the squashing.
        kept: The sum over the children of `sigmoid(f_k) * c_k`, `[..., hidden]`.
    """
    squash, update = _split(gates, 2, 1)
    i, o = _split(tf.sigmoid(squash), 1, 1)
    c = i * tf.tanh(update) + kept
    return State(o * tf.tanh(c), c)


def _split(x: tf.Tensor, *shares: int) -> list[tf.Tensor]:
    unit = x.shape[-1] // sum(shares)
    return list(tf.split(x, [share * unit for share in shares], axis=-1))

"""What the tree layers share: arguments, weights, and the way from a batch to rows of nodes and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_ext.recursion.layers import _inputs
from tf_ext.recursion.subgraph import EXECUTIONS, SubGraph
from tf_ext.recursion.trees import Trees

_WEIGHTS = ("kernel", "recurrent", "bias")
_KINDS = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}
_DEFAULT_INITIALIZERS = {"kernel": "glorot_uniform", "recurrent": "orthogonal", "bias": "zeros"}


class Recursion(NamedTuple):
    """How a layer runs over a batch.

    Attributes:
        subgraph: takes a node (int32 scalar) and `carried`; its first result is the node's output, a vector of `units`.
            Calls for node number `num_nodes`, which is none, are left out of the outputs.
        carried: what every root is given from above.
    """

    subgraph: SubGraph
    carried: tuple[tf.Tensor, ...] = ()


class TreeLayer(keras.layers.Layer):
    """The base of layers whose output for a node depends on the node's features and on its children's outputs.

    The features of all nodes are multiplied by the kernel at once, outside of the recursion; inside, a node looks its
    row up.

    Args:
        units: the size of a node's output.
        activation: of the output.
        use_bias: whether there is a bias.
        dropout: the rate at which features are dropped, for each node anew.
        recurrent_dropout: the rate at which a node's output is dropped on its way to the parent.
        embedding: a layer that turns the values of all nodes, [num_nodes, ...], into features [num_nodes, d], such as
            `keras.layers.Embedding`; None where values are features. Where it masks nodes (`mask_zero=True`), their
            features are zeros.
        return_nodes: whether to return an output for every node rather than for every tree.
        execution: `"invoke"`, `"batched"` or `"auto"`, see `SubGraph.__call__`.
        seed: of the dropout.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint`, and the same for `recurrent` and
            `bias`; `activity_regularizer`, `name`, `dtype` and what else every Keras layer takes.

    Raises:
        ValueError: if an argument has another value, or Keras runs on another backend than TensorFlow.
    """

    _kernel_blocks = 1  # the kernel has so many columns, times units

    def __init__(
        self,
        units: int,
        *,
        activation: Any = "tanh",
        use_bias: bool = True,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        embedding: keras.layers.Layer | None = None,
        return_nodes: bool = False,
        execution: str = "auto",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        of_weights = {
            f"{weight}_{kind}": kwargs.pop(
                f"{weight}_{kind}", _DEFAULT_INITIALIZERS[weight] if kind == "initializer" else None
            )
            for weight in _WEIGHTS
            for kind in _KINDS
        }
        super().__init__(**kwargs)
        if keras.config.backend() != "tensorflow":
            raise ValueError(
                f"{self.name}: expected Keras to run on TensorFlow, got {keras.config.backend()!r}. Set the "
                "environment variable KERAS_BACKEND=tensorflow before the first import of keras."
            )
        if execution not in EXECUTIONS:
            raise ValueError(f"{self.name}: expected execution to be one of {EXECUTIONS}, got {execution!r}.")
        for name, rate in (("dropout", dropout), ("recurrent_dropout", recurrent_dropout)):
            if not 0 <= rate < 1:
                raise ValueError(f"{self.name}: expected {name} to be at least 0 and less than 1, got {rate!r}.")
        self.units = _inputs.positive(self.name, "units", units)
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        self.embedding = embedding
        self.return_nodes = return_nodes
        self.execution = execution
        self.seed = seed
        for name, given in of_weights.items():
            setattr(self, name, _KINDS[name.split("_")[1]].get(given))
        self.seed_generator = keras.random.SeedGenerator(seed) if dropout or recurrent_dropout else None
        # Keras would choose XLA by itself, which cannot compile the operator that runs a recursion.
        self.supports_jit = False

    def build(self, trees_shape: Any, features_shape: Any = None) -> None:
        """Makes the weights; Keras calls it with the shapes of the arguments of `call`."""
        width = _inputs.feature_width(self.name, trees_shape, features_shape, self.embedding)
        self.kernel = self._add("kernel", "kernel", (width, self._kernel_blocks * self.units))
        self._build_recurrent()
        biases = (self._kernel_blocks * self.units,)
        self.bias: Any = self._add("bias", "bias", biases) if self.use_bias else None

    def call(
        self,
        trees: Any,
        features: Any = None,
        mask: Any = None,
        features_mask: Any = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Runs the recursion over a batch.

        Args:
            trees: `Trees`, or a batch that `Trees.from_batched` takes.
            features: the features of the nodes where they are not the trees' own values: [num_nodes, d] in the order of
                the nodes, or of the form of the batch (ragged or padded, [num_trees, nodes, d]).
            mask: boolean, likewise [num_nodes] or [num_trees, nodes]: which nodes have features; those of the others
                count as zeros.
            features_mask: the mask of `features`, as Keras passes it on.
            training: whether to drop out.

        Returns:
            [num_trees, units], the roots' outputs, or with `return_nodes` [num_nodes, units], those of all nodes in the
            order of the nodes.
        """
        flat, there = _inputs.flat_trees(trees)
        x = _inputs.flat_features(self.name, flat, there, features, self.embedding)
        x = tf.cast(x, self.compute_dtype)
        for given in (mask, features_mask, _inputs.own_mask(self.embedding, flat)):
            node_mask = _inputs.flat_mask(given, there)
            if node_mask is not None:
                x = tf.where(node_mask[:, tf.newaxis], x, tf.zeros([], x.dtype))
        if training and self.dropout:
            x = keras.random.dropout(x, self.dropout, seed=self.seed_generator)
        rows = tf.matmul(x, tf.convert_to_tensor(self.kernel))
        if self.bias is not None:
            rows = tf.nn.bias_add(rows, tf.convert_to_tensor(self.bias))
        kept = None
        if training and self.recurrent_dropout:
            # One mask for every node, drawn at once: a node's output goes to one parent only.
            ones = tf.ones([flat.num_nodes, self.units], rows.dtype)
            kept = keras.random.dropout(ones, self.recurrent_dropout, seed=self.seed_generator)
        return self._run(flat, self._recursion(flat, rows, kept))

    def compute_mask(self, *_: Any) -> None:
        """None: no mask goes further, since every node has an output."""

    def compute_output_shape(self, trees_shape: Any, features_shape: Any = None) -> tuple[int | None, int]:
        """The shape of what `call` returns."""
        batch = None if self.return_nodes else _inputs.num_trees(trees_shape)
        return (batch, self.units)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a layer again."""
        names = ("units", "use_bias", "dropout", "recurrent_dropout", "return_nodes", "execution", "seed")
        config = super().get_config() | {name: getattr(self, name) for name in names}
        config["activation"] = keras.activations.serialize(self.activation)
        config["embedding"] = None if self.embedding is None else keras.saving.serialize_keras_object(self.embedding)
        for weight in _WEIGHTS:
            for kind, package in _KINDS.items():
                config[f"{weight}_{kind}"] = package.serialize(getattr(self, f"{weight}_{kind}"))
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TreeLayer:
        """Makes a layer from what `get_config` returned."""
        config = dict(config)
        if config.get("embedding") is not None:
            config["embedding"] = keras.saving.deserialize_keras_object(config["embedding"])
        return cls(**config)

    def _build_recurrent(self) -> None:
        """Makes the weights for what children hand up."""
        raise NotImplementedError

    def _recursion(self, trees: Trees, rows: tf.Tensor, kept: tf.Tensor | None) -> Recursion:
        """Defines the recursion.

        Args:
            trees: the batch.
            rows: [num_nodes, kernel blocks * units], each node's features times the kernel, plus bias.
            kept: [num_nodes, units], what to multiply a node's output with on its way to the parent, or None.
        """
        raise NotImplementedError

    def _add(self, name: str, kind: str, shape: tuple[int, ...], initializer: Any = None) -> Any:
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer or getattr(self, f"{kind}_initializer"),
            regularizer=getattr(self, f"{kind}_regularizer"),
            constraint=getattr(self, f"{kind}_constraint"),
        )

    def _run(self, trees: Trees, recursion: Recursion) -> tf.Tensor:
        in_axes = (0, *[None] * len(recursion.carried))
        found = recursion.subgraph.map(
            trees.roots,
            *recursion.carried,
            in_axes=in_axes,
            execution=self.execution,
            return_calls=self.return_nodes,
        )
        if not self.return_nodes:
            return found[0]
        _, calls = found
        nodes, outputs = calls.arguments[0], calls.results[0]
        in_order = tf.scatter_nd(nodes[:, tf.newaxis], outputs, [trees.num_nodes + 1, self.units])
        return in_order[:-1]


def product(x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """A vector times a matrix, in the form whose gradient the runtime defers."""
    return tf.squeeze(tf.matmul(x[tf.newaxis], matrix), 0)

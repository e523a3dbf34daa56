"""Builds the gradient graph of a block graph.

The gradients of products with environment matrices are deferred: the graph hands out the rows of x and of dy, and the
runtime makes one product of all rows of a run. Gradients of row lookups stay slices.
"""

from __future__ import annotations

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._block_graph import BlockGraph
from tf_ext.recursion._environment import Environment
from tf_ext.recursion.errors import UnsupportedOperationError


class GradientBuilder:
    """Gradient graphs for the blocks of one program; numbers the products that they defer."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.errors: list[str] = []
        self.products: list[tuple[int, bool]] = []
        self.dense: set[int] = set()
        self.slices: set[int] = set()

    def build(self, forward: BlockGraph) -> BlockGraph | None:
        """The gradient graph of `forward`, which gets fetches for what has to be kept; None if nothing can flow back.

        What stands against a gradient is noted in `errors`: it matters only if one is asked for.
        """
        fetches = list(forward.fetches)
        try:
            return self._build(forward)
        except Exception as error:  # of gradient functions, TensorFlow's or the user's own
            forward.fetches = fetches
            lines = str(error).strip().splitlines()
            self.errors.append(lines[0] if lines else type(error).__name__)
            return None

    def _build(self, forward: BlockGraph) -> BlockGraph | None:
        ys = [(t, target) for t, target, stacked in forward.fetches if _differentiable(t) and _can_flow(t)]
        if not ys:
            return None
        backward = graphs.new_graph("gradient", forward.graph)
        xs = [(t, source) for t, source in forward.feeds if source.startswith(("slot:", "env:"))]
        xs = [(t, source) for t, source in xs if _differentiable(t) or t.dtype == tf.resource]
        result = BlockGraph(backward, forward.batched)
        with backward.as_default():
            dys = [graphs.placeholder(backward, t.dtype, t.shape) for t, _ in ys]
            gradients = graphs.multi_gradients(
                [t for t, _ in ys],
                [t for t, _ in xs] + [p.y for p in forward.products],
                dys,
                forward.graph,
                stop=[p.barrier for p in forward.products],
            )
            for (tensor, source), gradient in zip(xs, gradients, strict=False):
                self._target(result, tensor, source, gradient)
            self._defer(result, forward, gradients[len(xs) :])
        result.feeds = [(t, target.replace("slot:", "dout:")) for t, (_, target) in zip(dys, ys, strict=True)]
        if not result.fetches:
            return None
        _feed_captures(result, forward)
        return result

    def _target(
        self, result: BlockGraph, tensor: tf.Tensor, source: str, gradient: tf.Tensor | tf.IndexedSlices | None
    ) -> None:
        if gradient is None:
            return
        kind, index = source.split(":")
        if kind == "slot":
            dense = _own(result, tf.convert_to_tensor(gradient))
            result.fetches.append((dense, f"dslot:{index}", True))
        elif isinstance(gradient, tf.IndexedSlices):
            self.slices.add(int(index))
            result.fetches.append((_own(result, gradient.values), f"sv:{index}", True))
            result.fetches.append((tf.cast(_own(result, gradient.indices), tf.int64), f"si:{index}", True))
        else:
            value = self._environment.value_of(int(index)) if tensor.dtype == tf.resource else int(index)
            if value is None:
                readers = ", ".join(sorted({op.type for op in tensor.consumers()}))
                raise UnsupportedOperationError(
                    f"a body reads a variable ({readers}) that a body also assigns; the gradient of such a read is not "
                    "supported. Read the variable outside and pass its value as an argument, or do not assign it inside."
                )
            self.dense.add(value)
            result.fetches.append((_own(result, gradient), f"denv:{value}", True))

    def _defer(self, result: BlockGraph, forward: BlockGraph, gradients: list[tf.Tensor | None]) -> None:
        counts: dict[int, int] = {}
        for product, gradient in zip(forward.products, gradients, strict=True):
            if gradient is None:
                continue
            key = (product.env, product.transposed)
            if key not in self.products:
                self.products.append(key)
            number = self.products.index(key)
            occurrence = counts.get(number, 0)
            counts[number] = occurrence + 1
            self.dense.add(product.env)
            x = result.graph.capture(product.x)
            result.fetches.append((x, f"px:{number}:{occurrence}", True))
            result.fetches.append((_own(result, tf.convert_to_tensor(gradient)), f"py:{number}:{occurrence}", True))


def _own(result: BlockGraph, tensor: tf.Tensor) -> tf.Tensor:
    """A gradient as a tensor of the gradient's graph: some functions return one of the forward graph as it is."""
    return result.graph.capture(tensor)


def _feed_captures(result: BlockGraph, forward: BlockGraph) -> None:
    """Everything that the gradient takes from the forward graph is fed: again from its source, or saved."""
    sources = {t.ref(): source for t, source in forward.feeds}
    saved = {t.ref(): target for t, target, _ in forward.fetches if target.startswith("saved:")}
    for outer, inner in result.graph.captures:
        if outer.graph is not forward.graph:
            raise UnsupportedOperationError(
                f"the gradient of a body needs {outer.name!r}, which lies outside of the block that is differentiated"
            )
        tensor = graphs.read_through(outer)
        if tensor.op.type == "Const":
            result.constants.append((inner, tensor.op))
            continue
        source = sources.get(tensor.ref())
        if source is None:
            if tensor.ref() not in saved:
                saved[tensor.ref()] = f"saved:{len(saved)}"
                forward.fetches.append((tensor, saved[tensor.ref()], True))
            source = saved[tensor.ref()]
        result.feeds.append((inner, source))


def _differentiable(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def _can_flow(tensor: tf.Tensor) -> bool:
    """Whether an output depends on anything that is fed."""
    found = graphs.ancestors([tensor.op], lambda op: [t.op for t in op.inputs])
    return any(op.type == "Placeholder" for op in found)

"""Gradients that a body gives itself, with `tf.custom_gradient`.

TensorFlow keeps such a gradient as a Python function, which refers to tensors of the body by closure. It is traced here
once, for one call, and its operators are then converted to a block's gradient graph like those of the body itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._environment import Environment
from tf_ext.recursion.errors import UnsupportedOperationError

if TYPE_CHECKING:
    from tf_ext.recursion._block_graph import Value
    from tf_ext.recursion._emit import PlainEmitter

_ATTRIBUTE = "_gradient_op_type"
_NAME = "TfExtCustomGradient"
_FUNCTIONS = "_tf_ext_custom_gradients"  # attribute of a block's graph: gradient functions by operator name


def is_custom(op: tf.Operation) -> bool:
    """Whether `op` is what `tf.custom_gradient` leaves in a graph."""
    attr = op.node_def.attr
    return op.type == "IdentityN" and _ATTRIBUTE in attr and attr[_ATTRIBUTE].s.startswith(b"CustomGradient")


def holds_custom(op: tf.Operation) -> bool:
    """Whether a function that `op` runs as a whole has a gradient of its own."""
    return any(
        is_custom(inner) or holds_custom(inner) for g in graphs.nested_graphs(op) for inner in g.get_operations()
    )


@dataclasses.dataclass
class _Traced:
    """A gradient function, for one call: from `gradients` of the outputs to `results`, one per input or None."""

    gradients: list[tf.Tensor] = dataclasses.field(default_factory=list)
    results: list[tf.Tensor | None] = dataclasses.field(default_factory=list)
    captures: list[tuple[tf.Tensor, tf.Tensor]] = dataclasses.field(default_factory=list)
    error: Exception | None = None


class CustomGradients:
    """The custom gradients of one trace."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._traced: dict[tf.Operation, _Traced] = {}

    def captures(self, op: tf.Operation) -> list[tf.Tensor]:
        """The tensors of the body that the gradient of `op` reads."""
        return [outer for outer, _ in self._trace(op).captures] if is_custom(op) else []

    def emit(self, emitter: PlainEmitter, op: tf.Operation, inputs: list[Value]) -> tf.Operation:
        """Copies `op` to a block; its gradient there is the traced one."""
        attrs = graphs.plain_attrs(op)
        attrs[_ATTRIBUTE] = tf.compat.v1.AttrValue(s=_NAME.encode())
        copy = graphs.copy_op(op, emitter.graph, [value.tensor for value in inputs], attrs=attrs)
        traced = self._trace(op)
        captured = [emitter.value(outer) for outer, _ in traced.captures]
        if not hasattr(emitter.graph, _FUNCTIONS):
            setattr(emitter.graph, _FUNCTIONS, {})
        getattr(emitter.graph, _FUNCTIONS)[copy.name] = lambda dys: _convert(emitter, traced, captured, inputs, dys)
        return copy

    def _trace(self, op: tf.Operation) -> _Traced:
        if op not in self._traced:
            self._traced[op] = traced = _Traced()
            try:
                self._fill(traced, op)
            except Exception as error:  # the user's own function; matters only where a gradient is asked for
                self._traced[op] = _Traced(error=error)
        return self._traced[op]

    def _fill(self, traced: _Traced, op: tf.Operation) -> None:
        graph = graphs.new_graph("custom_gradient", op.graph)
        with graph.as_default():
            traced.gradients = [graphs.placeholder(graph, t.dtype, t.shape) for t in op.outputs]
            function = graphs.stock_gradient(op.get_attr(_ATTRIBUTE).decode())
            results = function(op, *traced.gradients)
            traced.results = [None if r is None else graph.capture(tf.convert_to_tensor(r)) for r in results]
        traced.captures = [(self._reachable(outer, op), inner) for outer, inner in graph.captures]

    def _reachable(self, tensor: tf.Tensor, op: tf.Operation) -> tf.Tensor:
        """The tensor that stands for `tensor` in the body, or branch, of `op`."""
        if getattr(tensor, "graph", None) is op.graph:
            return tensor
        for outer, inner in op.graph.captures:
            if graphs.is_captured_from(outer, tensor):
                return inner
        caller = self._environment.outer_graph
        if hasattr(tensor, "numpy"):
            tensor = caller.capture(tensor)
        if tensor.graph is not caller:
            raise UnsupportedOperationError(
                f"the custom gradient {op.name!r} reads {tensor.name!r} from around the branch that it is in; read it in "
                "the function that the gradient belongs to"
            )
        inner = graphs.placeholder(op.graph, tensor.dtype, tensor.shape, tensor)
        self._environment.bind(inner, tensor)
        return inner


def _convert(
    emitter: PlainEmitter, traced: _Traced, captured: list[Value], inputs: list[Value], dys: tuple[tf.Tensor, ...]
) -> list[tf.Tensor | None]:
    """Emits the traced gradient in the current graph, for gradients `dys` that are stacked as the inputs are."""
    if traced.error is not None:
        raise traced.error
    known = dict(zip((inner.ref() for _, inner in traced.captures), captured, strict=True))
    for placeholder, value, dy in zip(traced.gradients, inputs, dys, strict=True):
        known[placeholder.ref()] = dataclasses.replace(value, tensor=dy)
    inner = emitter.inside(tf.compat.v1.get_default_graph(), known)
    results: list[tf.Tensor | None] = []
    for value, result in zip(inputs, traced.results, strict=True):
        if result is None:
            results.append(None)
            continue
        gradient = inner.value(result)
        if value.stacked:
            results.append(inner.output(gradient).tensor)
        else:
            results.append(tf.reduce_sum(gradient.tensor, 0) if gradient.stacked else gradient.tensor)
    return results


@tf.RegisterGradient(_NAME)
def _gradient(op: tf.Operation, *dys: tf.Tensor) -> Any:
    function: Callable[[tuple[tf.Tensor, ...]], Any] = getattr(op.graph, _FUNCTIONS)[op.name]
    return function(dys)

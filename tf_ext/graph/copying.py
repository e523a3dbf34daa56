"""Copies of operators in other graphs."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework import ops


def plain_attrs(op: tf.Operation) -> dict[str, tf.compat.v1.AttrValue]:
    """The operator's attributes without those that tie it to its graph (colocation, output shapes)."""
    keep = ("_gradient_op_type",)
    return {k: v for k, v in op.node_def.attr.items() if not k.startswith("_") or k in keep}


def copy_op(
    op: tf.Operation,
    graph: tf.Graph,
    inputs: Sequence[tf.Tensor],
    control_inputs: Sequence[tf.Operation] = (),
    attrs: dict[str, tf.compat.v1.AttrValue] | None = None,
) -> tf.Operation:
    """Creates an operator like `op` in `graph`, on other inputs.

    Args:
      op: the operator to copy.
      graph: where the copy goes; tensors of enclosing graphs among `inputs` are captured.
      inputs: one tensor per input of `op`.
      control_inputs: operators of `graph` that have to run before the copy.
      attrs: attributes in place of the original's.

    Returns:
      The copy.
    """
    with graph.as_default(), tf.control_dependencies(None), tf.control_dependencies(list(control_inputs)):
        copy = graph._create_op_internal(
            op.type,
            list(inputs),
            dtypes=None,
            name=op.name.rsplit("/", 1)[-1].lstrip("_") or op.type,
            attrs=plain_attrs(op) if attrs is None else attrs,
            op_def=op.op_def,
        )
    # The gradient of a call of a `tf.function`, which makes the call return what the gradient needs.
    copy._gradient_function = op._gradient_function
    return copy


def record_on_tapes(op: tf.Operation) -> None:
    """Lets the active gradient tapes see an operator that was made by `copy_op`, as they see those of `tf.*` functions."""
    try:
        gradient = ops.gradient_registry.lookup(op.type)
    except LookupError:
        return
    if gradient is None:
        return

    def backward(*output_gradients: tf.Tensor) -> list[tf.Tensor | None]:
        gradients = gradient(op, *output_gradients)
        return list(gradients) if isinstance(gradients, (list, tuple)) else [gradients]

    record.record_operation(op.type, list(op.outputs), list(op.inputs), backward)


def copy_library(source: tf.Graph, target: tf.Graph) -> None:
    """Makes the functions that `source` knows known to `target`."""
    for function in source._functions.values():
        target._add_function_recursive(function)


def extract_graph_def(graph: tf.Graph, roots: Sequence[str]) -> tf.compat.v1.GraphDef:
    """The part of a graph that the operators named `roots` depend on, without what ties it to its surroundings."""
    full = graph.as_graph_def(add_shapes=False)
    nodes = {node.name: node for node in full.node}
    wanted: set[str] = set()
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name not in wanted:
            wanted.add(name)
            stack.extend(text.lstrip("^").split(":")[0] for text in nodes[name].input)
    part = tf.compat.v1.GraphDef(library=full.library, versions=full.versions)
    part.node.extend(node for node in full.node if node.name in wanted)
    for node in part.node:
        for name in [name for name in node.attr if name.startswith("_")]:
            del node.attr[name]
        node.device = ""
        node.ClearField("experimental_debug_info")
    return part

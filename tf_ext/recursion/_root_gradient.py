"""The gradient of the root operator."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_ext.ops import recursion as kernels
from tf_ext.recursion.errors import UnsupportedOperationError


@tf.RegisterGradient("TfExtRecursion")
@tf.RegisterGradient("TfExtStatefulRecursion")
def _gradient(op: tf.Operation, *gradients: tf.Tensor | None) -> list[Any]:
    """Runs the recursion backwards over the tape that the forward run is told here to keep."""
    op = op.outputs[-1].op  # under a tape TensorFlow passes a stand-in for the operator
    head = tf.compat.v1.GraphDef.FromString(op.get_attr("program")).node[0].attr
    if head["gradient_error"].s:
        raise UnsupportedOperationError(f"The recursion has no gradient: {head['gradient_error'].s.decode()}")
    kernels.keep_tape(op)
    num_args, num_env = len(op.get_attr("Targs")), len(op.get_attr("Tenv"))
    results, calls = len(op.get_attr("Tresults")), len(op.get_attr("Tcalls"))
    tables = list(head["slices_env"].list.i)
    # One that has both comes as a whole.
    dense = sorted({*head["dense_env"].list.i, *(j for j in tables if _is_computed(op.inputs[num_args + j]))})
    kept = [k for k, j in enumerate(tables) if j not in dense]
    slices = [tables[k] for k in kept]
    args = [i for i in range(num_args) if op.inputs[i].dtype.is_floating]
    given = [_or_zeros(g, t) for g, t in zip(gradients, op.outputs, strict=True)]
    dargs, denv, values, indices = kernels.recursion_grad(
        op.outputs[-1],
        [g for g in given[:results] if g is not None],
        [g for g in given[results : results + calls] if g is not None],
        arg_grads=args,
        arg_types=[op.inputs[i].dtype for i in args],
        env_dense=dense,
        env_types=[op.inputs[num_args + j].dtype for j in dense],
        env_slices=slices,
        slice_types=[tf.as_dtype(head["slices_types"].list.type[k]) for k in kept],
        slice_shapes=[tf.TensorShape(head["slices_shapes"].list.shape[k]) for k in kept],
    )
    found: list[Any] = [None] * (num_args + num_env)
    for i, gradient in zip(args, dargs, strict=True):
        gradient.set_shape(op.inputs[i].shape)
        found[i] = gradient
    for j, v, i in zip(slices, values, indices, strict=True):
        found[num_args + j] = tf.IndexedSlices(v, i, dense_shape=_dense_shape(op.inputs[num_args + j]))
    for j, gradient in zip(dense, denv, strict=True):
        gradient.set_shape(op.inputs[num_args + j].shape)
        found[num_args + j] = gradient
    return found


def _or_zeros(gradient: tf.Tensor | tf.IndexedSlices | None, output: tf.Tensor) -> tf.Tensor | None:
    if not output.dtype.is_floating:
        return None
    return tf.zeros_like(output) if gradient is None else tf.convert_to_tensor(gradient)


def _is_computed(table: tf.Tensor) -> bool:
    """Returns whether a table of rows has a gradient that somebody goes on to differentiate.

    That makes slices a whole tensor at the latest, once for every use. What is a variable, an argument or a constant
    keeps them: few rows of a large table may be all that an optimizer need touch.
    """
    while tf.is_symbolic_tensor(table) and table.op.type in _SAME_ROWS:
        table = table.op.inputs[0]
    return tf.is_symbolic_tensor(table) and table.op.type not in _GIVEN


_SAME_ROWS = frozenset({"Identity", "Cast", "StopGradient"})
_GIVEN = frozenset(
    {"ReadVariableOp", "VarHandleOp", "Placeholder", "PlaceholderWithDefault", "Const", "Arg", "Variable", "VariableV2"}
)


def _dense_shape(table: tf.Tensor) -> tf.Tensor:
    if table.dtype == tf.resource:
        return tf.raw_ops.VariableShape(input=table, out_type=tf.int64)
    return tf.shape(table, out_type=tf.int64)


@tf.RegisterGradient("TfExtRecursionGrad")
def _second_order(op: tf.Operation, *_: Any) -> Any:
    raise UnsupportedOperationError(
        "The gradient of a recursion's gradient was asked for; tf_ext.recursion gives first-order gradients only. Compute "
        "second-order gradients with eager recursion, or by finite differences of the first-order ones."
    )

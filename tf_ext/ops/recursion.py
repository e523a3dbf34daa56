"""Typed wrappers of the recursion operators (custom_ops/recursion/ops.cc)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_ext.ops import _library


def call(
    args: Sequence[tf.Tensor], callee: int, results: Sequence[tf.TensorSpec], mapped: Sequence[bool], reduce: str
) -> list[tf.Tensor]:
    """The placeholder of a call while a body is traced; it is never run.

    Args:
      args: flat arguments.
      callee: number of the SubGraph.
      results: what the call returns.
      mapped: per argument, whether `map` takes it apart; empty for a single call.
      reduce: what `map` does with the results.

    Returns:
      One tensor per result.
    """
    outputs = _library.load().tf_ext_recursion_call(
        args=args, callee=callee, mapped=mapped, reduce=reduce, Tresults=[spec.dtype for spec in results]
    )
    for tensor, spec in zip(outputs, results, strict=True):
        tensor.set_shape(spec.shape)
    return list(outputs)


def row_at(table: tf.Tensor, indices: tf.Tensor, wrap: bool) -> tf.Tensor:
    """Rows of a table.

    Args:
      table: [rows, ...].
      indices: integers of any shape.
      wrap: whether negative indices count from the end, as in `table[i]`; otherwise they are errors, as in `tf.gather`.

    Returns:
      indices.shape + table.shape[1:].
    """
    return _library.load().tf_ext_row_at(table=table, indices=indices, wrap=wrap)


def call_random(
    shape: tf.Tensor,
    seed: tf.Tensor,
    uid: tf.Tensor,
    limits: Sequence[tf.Tensor],
    distribution: str,
    dtype: tf.DType,
    salt: int,
) -> tf.Tensor:
    """Random numbers of a call's own stream.

    Args:
      shape: of the numbers of one call.
      seed: int64 [2], the same for the whole run.
      uid: int64, the call's identity; [n] draws for n calls, stacked.
      limits: `minval` and `maxval` for the distribution `"uniform_int"`.
      distribution: `"uniform"`, `"normal"`, `"truncated_normal"` or `"uniform_int"`.
      dtype: of the numbers.
      salt: tells the draws of one call apart.

    Returns:
      uid.shape + shape.
    """
    _library.load()
    # Not by the generated function, which would take the type from `limits`, even where there are none.
    attrs = {key: tf.compat.v1.AttrValue() for key in ("distribution", "dtype", "salt", "num_limits", "Tshape")}
    attrs["distribution"].s = distribution.encode()
    attrs["dtype"].type = dtype.as_datatype_enum
    attrs["Tshape"].type = shape.dtype.as_datatype_enum
    attrs["salt"].i, attrs["num_limits"].i = salt, len(limits)
    graph = tf.compat.v1.get_default_graph()
    return graph.create_op("TfExtCallRandom", [shape, seed, uid, *limits], [dtype], attrs=attrs).outputs[0]


def recursion(
    args: Sequence[tf.Tensor],
    env: Sequence[tf.Tensor],
    result_types: Sequence[tf.DType],
    call_types: Sequence[tf.DType],
    *,
    program: bytes,
    execution: str,
    many: bool,
    sequential: bool,
    read_only: Sequence[int],
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Runs a recursion (docs/design/recursion.md, "Operators").

    Args:
      args: of the root call; with a leading dimension when `many`.
      env: values that are the same in all calls.
      result_types: of the root call's results.
      call_types: of the arguments and results of every call, when these are asked for.
      program: the encoded recursion.
      execution: `"invoke"` or `"batched"`.
      many: whether there is one root call per row of the arguments.
      sequential: whether calls have effects and keep the order of the program.
      read_only: indices into `env` of resources that are not written to.

    Returns:
      (results, what was collected of the calls).
    """
    library = _library.load()
    operator = library.tf_ext_stateful_recursion if sequential else library.tf_ext_recursion
    results, calls, tape = operator(
        args=args,
        env=env,
        Tresults=result_types,
        Tcalls=call_types,
        program=program,
        execution=execution,
        map=many,
        record=False,
        sequential=sequential,
        collect=bool(call_types),
    )
    # Automatic control dependencies need not order this operator after other readers of the same variables.
    attr = tf.compat.v1.AttrValue()
    attr.list.i.extend(len(args) + i for i in read_only)
    tape.op._set_attr("_read_only_resource_inputs", attr)
    return list(results), list(calls)


def keep_tape(op: tf.Operation) -> None:
    """Lets a root operator keep what its gradient needs; without one asked for, it does not."""
    op._set_attr("record", tf.compat.v1.AttrValue(b=True))


def recursion_grad(
    tape: tf.Tensor,
    dresults: Sequence[tf.Tensor],
    dcalls: Sequence[tf.Tensor],
    *,
    arg_grads: Sequence[int],
    arg_types: Sequence[tf.DType],
    env_dense: Sequence[int],
    env_types: Sequence[tf.DType],
    env_slices: Sequence[int],
    slice_types: Sequence[tf.DType],
    slice_shapes: Sequence[tf.TensorShape],
) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
    """Runs a recursion backwards over its tape.

    Args:
      tape: of the forward run.
      dresults: gradients of the floating results.
      dcalls: gradients of the floating values collected of the calls.
      arg_grads: which arguments get gradients.
      arg_types: their types.
      env_dense: which environment values get dense gradients.
      env_types: their types.
      env_slices: which environment values get gradients as slices.
      slice_types: their types.
      slice_shapes: the shapes of their rows.

    Returns:
      Gradients of arguments, dense gradients, values and indices of slices.
    """
    dargs, denv, values, indices = _library.load().tf_ext_recursion_grad(
        tape=tape,
        dresults=dresults,
        dcalls=dcalls,
        Tdargs=arg_types,
        Tdenv=env_types,
        Tvalues=slice_types,
        Tindices=[tf.int64] * len(env_slices),
        arg_grads=arg_grads,
        env_dense=env_dense,
        env_slices=env_slices,
        slice_shapes=slice_shapes,
    )
    return list(dargs), list(denv), list(values), list(indices)

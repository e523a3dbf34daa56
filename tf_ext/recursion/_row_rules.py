"""How common operators act on stacked rows; a rule returns None where it does not apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.ops import recursion as kernels
from tf_ext.recursion._block_graph import Value

if TYPE_CHECKING:
    from tf_ext.recursion._vectorize import BatchedEmitter

Rule = Callable[["BatchedEmitter", tf.Operation, list[Value]], "list[Value] | None"]
RULES: dict[str, Rule] = {}

_ELEMENTWISE = """
    Abs Cast Ceil CheckNumerics Cos Cosh Elu Erf Erfc Exp Expm1 Floor IsFinite IsInf IsNan Inv LeakyRelu Log Log1p
    LogicalNot Neg OnesLike PreventGradient Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus
    Softsign Sqrt Square StopGradient Tan Tanh ZerosLike
"""
_BROADCASTING = """
    Add AddV2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual LogicalAnd LogicalOr Maximum Minimum
    Mul NotEqual Pow RealDiv SelectV2 SquaredDifference Sub TruncateDiv TruncateMod Xdivy Xlogy
"""
_LAST_AXIS = "Softmax LogSoftmax"
_REDUCTIONS = "All Any Max Mean Min Prod Sum"


def rule(types: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operator types."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(types.split(), function))
        return function

    return register


@rule(_ELEMENTWISE)
def _elementwise(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if op.control_inputs:
        return None
    return _like(emitter, op, [inputs[0].tensor], inputs[0].stacked)


@rule(_LAST_AXIS)
def _last_axis(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if not inputs[0].row_shape.rank:
        return None
    return _like(emitter, op, [inputs[0].tensor], inputs[0].stacked)


@rule(_BROADCASTING)
def _broadcasting(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    """Operands are aligned at the right: a stacked one of lower rank gets ones between its row and the rows' dimension."""
    ranks = [value.row_shape.rank for value in inputs]
    if None in ranks or not any(value.stacked for value in inputs):
        return None
    full = max(ranks)
    aligned = []
    for value, rank in zip(inputs, ranks, strict=True):
        if value.stacked and rank < full:
            value = emitter.reshape(value, [1] * (full - rank) + value.row_shape.as_list())
        aligned.append(value.tensor)
    return _like(emitter, op, aligned, True)


@rule("EnsureShape")
def _ensure_shape(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if not inputs[0].stacked:
        return None
    row = tf.TensorShape(op.get_attr("shape"))
    name = op.name.split("/")[-1]  # tells whose shape was declared
    return [Value(tf.ensure_shape(inputs[0].tensor, tf.TensorShape([None]).concatenate(row), name=name), True)]


@rule("ExpandDims Squeeze Reshape")
def _reshape(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    shape = op.outputs[0].shape
    if shape.rank is None or (None in shape.as_list() and inputs[0].stacked):
        return None
    if any(value.stacked for value in inputs[1:]):
        return None
    if not inputs[0].stacked:
        return None
    return [emitter.reshape(inputs[0], shape.as_list())]


@rule("GatherV2")
def _gather(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    params, indices, _ = inputs
    position = graphs.constant_value(op.inputs[2])
    if position is None or op.get_attr("batch_dims") != 0 or params.row_shape.rank is None:
        return None
    position = int(position) % max(params.row_shape.rank, 1)
    if params.stacked and indices.stacked:
        return [Value(tf.gather(params.tensor, indices.tensor, axis=position + 1, batch_dims=1), True)]
    if params.stacked:
        return [Value(tf.gather(params.tensor, indices.tensor, axis=position + 1), True)]
    if indices.stacked and position == 0:
        return [Value(tf.gather(params.tensor, indices.tensor, axis=0), True)]
    return None


@rule("ResourceGather")
def _resource_gather(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if inputs[0].stacked or op.get_attr("batch_dims") != 0:
        return None
    result = _like(emitter, op, [value.tensor for value in inputs], inputs[1].stacked)
    lead = tf.TensorShape([None] if inputs[1].stacked else [])
    result[0].tensor.set_shape(lead.concatenate(op.outputs[0].shape))
    return result


@rule("ResourceGatherNd")
def _resource_gather_nd(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if inputs[0].stacked:
        return None
    return _like(emitter, op, [value.tensor for value in inputs], inputs[1].stacked)


@rule("TfExtRowAt")
def _row_at(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if inputs[0].stacked:
        return None
    tensor = kernels.row_at(inputs[0].tensor, inputs[1].tensor, op.get_attr("wrap"))
    return [Value(tensor, inputs[1].stacked)]


@rule("ConcatV2")
def _concat(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    axis = graphs.constant_value(op.inputs[-1])
    if axis is None or not any(value.stacked for value in inputs[:-1]):
        return None
    parts = [emitter.stack(value).tensor for value in inputs[:-1]]
    rank = parts[0].shape.rank
    if rank is None:
        return None
    return [Value(tf.concat(parts, int(axis) % (rank - 1) + 1), True)]


@rule("Pack")
def _pack(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if not any(value.stacked for value in inputs):
        return None
    axis = op.get_attr("axis")
    parts = [emitter.stack(value).tensor for value in inputs]
    return [Value(tf.stack(parts, axis=axis + 1 if axis >= 0 else axis), True)]


@rule("Unpack")
def _unpack(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    if not inputs[0].stacked:
        return None
    axis = op.get_attr("axis")
    parts = tf.unstack(inputs[0].tensor, num=op.get_attr("num"), axis=axis + 1 if axis >= 0 else axis)
    return [Value(part, True) for part in parts]


@rule("Split SplitV")
def _split(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    x, axis_input = (inputs[1], op.inputs[0]) if op.type == "Split" else (inputs[0], op.inputs[2])
    axis = graphs.constant_value(axis_input)
    if axis is None or not x.stacked or x.row_shape.rank is None:
        return None
    position = int(axis) % x.row_shape.rank + 1
    if op.type == "Split":
        parts = tf.split(x.tensor, op.get_attr("num_split"), axis=position)
    elif inputs[1].stacked:
        return None
    else:
        parts = tf.split(x.tensor, inputs[1].tensor, axis=position, num=op.get_attr("num_split"))
    return [Value(part, True) for part in parts]


@rule("Transpose")
def _transpose(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    order = graphs.constant_value(op.inputs[1])
    if order is None or not inputs[0].stacked:
        return None
    return [Value(tf.transpose(inputs[0].tensor, [0, *[int(d) + 1 for d in order]]), True)]


@rule(_REDUCTIONS)
def _reduce(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    axes = graphs.constant_value(op.inputs[1])
    rank = inputs[0].row_shape.rank
    if axes is None or rank is None or not inputs[0].stacked:
        return None
    shifted = [int(axis) % max(rank, 1) + 1 for axis in axes.reshape([-1])]
    return _like(emitter, op, [inputs[0].tensor, tf.constant(shifted, op.inputs[1].dtype)], True)


@rule("Shape")
def _shape(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    shape = op.inputs[0].shape
    if not inputs[0].stacked:
        return None
    if shape.is_fully_defined():
        return [Value(tf.constant(shape.as_list(), op.outputs[0].dtype))]
    return [Value(tf.shape(inputs[0].tensor, out_type=op.outputs[0].dtype)[1:])]


@rule("Assert")
def _assert(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    """Holds if it holds for all rows; otherwise the message is that of the first row for which it does not."""
    condition, *data = inputs
    if condition.stacked:
        row = tf.argmin(tf.cast(condition.tensor, tf.int32))
        data = [Value(tf.gather(value.tensor, row)) if value.stacked else value for value in data]
        condition = Value(tf.reduce_all(condition.tensor))
    elif any(value.stacked for value in data):
        data = [Value(value.tensor[0]) if value.stacked else value for value in data]
    return emitter.copy(op, [value.tensor for value in [condition, *data]])


@rule("MatMul")
def _matmul(emitter: BatchedEmitter, op: tf.Operation, inputs: list[Value]) -> list[Value] | None:
    a, b = inputs
    ta, tb = op.get_attr("transpose_a"), op.get_attr("transpose_b")
    if a.stacked and b.stacked:
        return [Value(tf.linalg.matmul(a.tensor, b.tensor, transpose_a=ta, transpose_b=tb), True)]
    if a.stacked and not ta and a.row_shape.is_fully_defined():
        return emitter.times_matrix(a, b, tb)
    return None


def _like(emitter: BatchedEmitter, op: tf.Operation, inputs: list[tf.Tensor], stacked: bool) -> list[Value]:
    """The same operator on other inputs."""
    copy = graphs.copy_op(op, emitter.graph, inputs)
    return [Value(tensor, stacked) for tensor in copy.outputs]

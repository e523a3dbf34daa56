"""The values that are the same for all calls of one run, and the work on them that need not be repeated in each call.

What bodies capture is the environment. Operators whose inputs all come from it are moved out to the caller's graph
("hoisted"): reading a variable, casting a weight, taking the row splits of a ragged tensor apart. They run once a step,
and TensorFlow's own gradient takes over where the recursion's ends.
"""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._ir import Outer

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"})

# Deterministic operators that cannot fail on the shapes they are given. Whatever may fail (divisions of integers, gathers,
# asserts) stays where it is: the call that contains it may never be made.
_HOISTABLE = frozenset(
    """
    Abs Add AddN AddV2 BatchMatMulV2 BiasAdd BroadcastTo Cast Concat ConcatV2 Cos Elu Equal Erf Exp ExpandDims Fill Floor
    Greater GreaterEqual Identity Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr MatMul Max Maximum Mean Min
    Minimum Mul Neg NotEqual OnesLike Pack PreventGradient Prod Rank ReadVariableOp RealDiv Relu Reshape Rsqrt SelectV2
    Shape Sigmoid Sin Size Softmax Softplus Split SplitV Sqrt Square Squeeze StopGradient StridedSlice Sub Sum Tanh Tile
    Transpose Unpack VariableShape ZerosLike
    """.split()
)

_DIVISIONS = frozenset({"FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"})

_LARGE_CONSTANT_BYTES = 4096


class Environment:
    """Maps tensors of bodies to values of the caller's graph, and numbers those that the recursion reads."""

    def __init__(self, outer_graph: tf.Graph) -> None:
        self.outer_graph = outer_graph
        self.tensors: list[tf.Tensor] = []
        self.written: set[object] = set()
        self.moved: set[tf.Operation] = set()  # assignments done once per run, outside
        self._numbers: dict[object, int] = {}
        self._renamed: dict[object, tf.Tensor] = {}
        self._outer: dict[object, tf.Tensor] = {}
        self._invariant: dict[object, bool] = {}
        self._reads: dict[object, tf.Tensor] = {}

    def resolve(self, tensor: tf.Tensor) -> tf.Tensor:
        """The tensor that `tensor` is another name of."""
        tensor = graphs.read_through(tensor)
        while tensor.ref() in self._renamed:
            tensor = graphs.read_through(self._renamed[tensor.ref()])
        return tensor

    def rename(self, placeholder: tf.Tensor, tensor: tf.Tensor) -> None:
        """Says that a placeholder is another name of `tensor`."""
        self._renamed[placeholder.ref()] = tensor

    def is_renamed(self, placeholder: tf.Tensor) -> bool:
        """Whether `rename` was called for a placeholder."""
        return placeholder.ref() in self._renamed

    def bind(self, inner: tf.Tensor, outer: tf.Tensor) -> None:
        """Says that `inner`, a placeholder of a body, stands for `outer`."""
        self._outer[inner.ref()] = outer
        self._invariant[inner.ref()] = True

    def number(self, outer: tf.Tensor) -> int:
        """The environment index of a tensor of the caller's graph."""
        if outer.ref() not in self._numbers:
            self._numbers[outer.ref()] = len(self.tensors)
            self.tensors.append(outer)
        return self._numbers[outer.ref()]

    def captured(self, tensor: tf.Tensor) -> tf.Tensor | None:
        """The tensor of the caller's graph that a placeholder was bound to."""
        return self._outer.get(tensor.ref()) if tensor.op.type == "Placeholder" else None

    def forget_invariance(self) -> None:
        """Has to be called when what is written or moved changes."""
        self._invariant = dict.fromkeys(self._outer, True)

    def mark_written(self, resources: Iterable[tf.Tensor]) -> None:
        """Says which resources (of the caller's graph) bodies write to: reads of these stay in the bodies."""
        self.written.update(resource.ref() for resource in resources)
        self.forget_invariance()

    def lookup(self, tensor: tf.Tensor) -> Outer | None:
        """What `tensor` is in the caller's graph, hoisting what computes it; None where it depends on the call."""
        if not self.is_invariant(tensor) or not self._depends_on_environment(tensor):
            return None
        return Outer(self._hoist(tensor))

    def is_invariant(self, tensor: tf.Tensor) -> bool:
        """Whether the tensor is the same in all calls (constants included) and may be computed outside."""
        known = self._invariant.get(tensor.ref())
        if known is None:
            known = self._compute_invariant(tensor)
            self._invariant[tensor.ref()] = known
        return known

    def _compute_invariant(self, tensor: tf.Tensor) -> bool:
        stack = [tensor]
        while stack:  # iterative: bodies may be long chains of operators
            current = stack[-1]
            if current.ref() in self._invariant:
                stack.pop()
                continue
            op = current.op
            if op.type == "Const":
                self._invariant[current.ref()] = True
                continue
            if not _is_hoistable(op) or not op.inputs or self._is_tied(op):
                self._invariant[current.ref()] = False
                continue
            missing = [t for t in op.inputs if t.ref() not in self._invariant]
            if missing:
                stack.extend(missing)
                continue
            self._invariant[current.ref()] = all(self._invariant[t.ref()] for t in op.inputs)
        return self._invariant[tensor.ref()]

    def _is_tied(self, op: tf.Operation) -> bool:
        """Whether the operator's place in the order of the program matters."""
        if any(control not in self.moved for control in op.control_inputs):
            return True
        return any(
            t.dtype == tf.resource and t.ref() in self._outer and self._outer[t.ref()].ref() in self.written
            for t in op.inputs
        )

    def _depends_on_environment(self, tensor: tf.Tensor) -> bool:
        """Whether an invariant tensor is more than constants (which are cheaper repeated than passed in)."""
        stack, seen = [tensor], set()
        while stack:
            current = stack.pop()
            if current.ref() in seen:
                continue
            seen.add(current.ref())
            if current.ref() in self._outer or _is_large_constant(current.op):
                return True
            stack.extend(current.op.inputs)
        return False

    def outer(self, tensor: tf.Tensor) -> tf.Tensor:
        """An invariant tensor, or constant, as a value of the caller's graph."""
        return self._hoist(tensor)

    def value_of(self, variable: int) -> int | None:
        """The environment index of the value of a variable, given that of its resource; None if bodies write to it.

        A dense gradient of the variable is given to its value, and passed on by TensorFlow.
        """
        resource = self.tensors[variable]
        if resource.ref() in self.written:
            return None
        if resource.ref() not in self._reads:
            with self.outer_graph.as_default(), tf.control_dependencies(None):
                dtype, _ = graphs.variable_spec(resource)
                self._reads[resource.ref()] = tf.raw_ops.ReadVariableOp(resource=resource, dtype=dtype)
        return self.number(self._reads[resource.ref()])

    def _hoist(self, tensor: tf.Tensor) -> tf.Tensor:
        stack = [tensor]
        while stack:
            current = stack[-1]
            if current.ref() in self._outer:
                stack.pop()
                continue
            missing = [t for t in current.op.inputs if t.ref() not in self._outer]
            if missing:
                stack.extend(missing)
                continue
            inputs = [self._outer[t.ref()] for t in current.op.inputs]
            copy = graphs.copy_op(current.op, self.outer_graph, inputs)
            with self.outer_graph.as_default():
                graphs.record_on_tapes(copy)
            for inner, outer in zip(current.op.outputs, copy.outputs, strict=True):
                self._outer[inner.ref()] = outer
        return self._outer[tensor.ref()]


def _is_hoistable(op: tf.Operation) -> bool:
    if op.type in _DIVISIONS:
        divisor = graphs.constant_value(op.inputs[1])
        return divisor is not None and bool((divisor != 0).all())
    return op.type in _HOISTABLE


def _is_large_constant(op: tf.Operation) -> bool:
    return op.type == "Const" and op.node_def.ByteSize() > _LARGE_CONSTANT_BYTES

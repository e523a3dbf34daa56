"""Which operators of a body have effects, and in which order they have to run.

A recursion without effects may run its calls in any order. With effects (assignments, prints, queues) it keeps the order
of the program: every operator with an effect, and every call that leads to one, follows the one before it.
"""

from __future__ import annotations

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._environment import READS, Environment
from tf_ext.recursion._tracing import Body, Trace
from tf_ext.recursion.errors import UnsupportedOperationError

CALLS = frozenset({"TfExtRecursionCall", "TfExtStatefulRecursionCall"})
# Rewritten to draw from the call's own stream, so that they have no state that calls share.
RANDOM = frozenset({"RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"})
_CHECKS = frozenset({"Assert"})
# Without effects, and defined for all operands.
_TOTAL = frozenset(
    """
    Abs Add AddV2 Cast Const Equal Greater GreaterEqual Identity IsFinite IsInf IsNan Less LessEqual LogicalAnd LogicalNot
    LogicalOr Maximum Minimum Mul Neg NoOp NotEqual OnesLike Placeholder Shape Sign Size Sub ZerosLike
    """.split()
)


class Effects:
    """Answers for all graphs of one trace."""

    def __init__(self, trace: Trace, environment: Environment) -> None:
        """Looks at all bodies; `environment` knows their captures and what was moved out of them."""
        self._environment = environment
        self._is_choice: dict[tf.Operation, bool] = {}
        self._ordered: dict[tf.Operation, bool] = {}
        for graph in all_graphs(trace.bodies):
            _refuse_hidden_calls(graph)
            environment.mark_written(self._writes(graph))
        self._effectful: set[int] = set()
        self._spread(trace.bodies)

    def is_split(self, op: tf.Operation) -> bool:
        """Whether the body is cut at `op`: a call, or a conditional that is more than a choice of two numbers."""
        return op.type in CALLS or (graphs.is_conditional(op) and not self.is_choice(op))

    def is_choice(self, op: tf.Operation) -> bool:
        """Whether `op` is a conditional of which both branches can be computed and one result taken.

        So for the numbers and truth values that `and`, `or` and small conditional expressions leave behind; where
        gradients may flow, what is not chosen must not be computed (0 * inf).
        """
        if op not in self._is_choice:
            self._is_choice[op] = op.type in ("If", "StatelessIf") and all(
                t.shape.rank == 0 and not t.dtype.is_floating and not t.dtype.is_complex for t in op.outputs
            )
            self._is_choice[op] &= all(
                inner.type in _TOTAL or self.is_choice(inner)
                for graph in (graphs.branch_graphs(op) if self._is_choice[op] else ())
                for inner in graph.get_operations()
            )
        return self._is_choice[op]

    def is_ordered(self, op: tf.Operation) -> bool:
        """Whether `op` has to keep its place in the program's order."""
        if op not in self._ordered:
            self._ordered[op] = op not in self._environment.moved and self._compute_ordered(op)
        return self._ordered[op]

    @property
    def any(self) -> bool:
        """Whether any body has effects."""
        return bool(self._effectful)

    def chain(self, graph: tf.Graph) -> list[tf.Operation]:
        """The operators of `graph` that have to run, each after the one before."""
        return [op for op in graph.get_operations() if self.is_ordered(op)]

    def checks(self, graph: tf.Graph) -> list[tf.Operation]:
        """Operators that have to run although nothing reads them, in any order."""
        return [op for op in graph.get_operations() if op.type in _CHECKS or holds_check(op)]

    def first_ordered(self, bodies: list[Body]) -> tf.Operation | None:
        """An operator with an effect, for messages."""
        for graph in all_graphs(bodies):
            for op in graph.get_operations():
                if self.is_ordered(op) and not self.is_split(op):
                    return op
        return None

    def _compute_ordered(self, op: tf.Operation) -> bool:
        if op.type in CALLS:
            return op.get_attr("callee") in self._effectful
        if op.type in ("Placeholder", "Const", "NoOp") or op.type in RANDOM or op.type in _CHECKS:
            return False
        if op.type in READS:
            return any(self._outer_resource(t) in self._environment.written for t in op.inputs)
        if graphs.is_conditional(op):
            return any(self._is_effect_inside(inner) for g in graphs.branch_graphs(op) for inner in g.get_operations())
        nested = list(graphs.nested_graphs(op)) if graphs.is_stateful(op) else []
        if nested:
            return any(self._is_effect_inside(inner) for g in nested for inner in g.get_operations())
        return graphs.is_stateful(op)

    def _is_effect_inside(self, op: tf.Operation) -> bool:
        """Like `is_ordered`, in a function that runs as a whole: there random numbers come from a shared state."""
        return self.is_ordered(op) or op.type in RANDOM

    def _outer_resource(self, tensor: tf.Tensor) -> object:
        outer = self._environment.lookup(tensor) if tensor.dtype == tf.resource else None
        return outer.tensor.ref() if outer is not None else None

    def _writes(self, graph: tf.Graph) -> list[tf.Tensor]:
        """Captured resources that operators of `graph` may write to."""
        found = []
        for op in graph.get_operations():
            if op.type in READS or op.type in CALLS or op.type == "Identity" or op in self._environment.moved:
                continue
            if graphs.is_conditional(op):
                continue  # its branches are looked at by themselves
            read_only = _read_only_inputs(op)
            for i, tensor in enumerate(op.inputs):
                if tensor.dtype == tf.resource and i not in read_only:
                    outer = self._environment.lookup(tensor)
                    if outer is not None:
                        found.append(outer.tensor)
        return found

    def _spread(self, bodies: list[Body]) -> None:
        """A body that calls a body with effects has effects itself."""
        while True:
            self._ordered.clear()
            found = {
                number
                for number, body in enumerate(bodies)
                if any(self.is_ordered(op) for op in body.graph.get_operations())
            }
            if found == self._effectful:
                return
            self._effectful = found


def _refuse_hidden_calls(graph: tf.Graph) -> None:
    """Calls are refused inside loops as they are made, but some transformations put them there later."""
    for op in graph.get_operations():
        if not graphs.is_conditional(op) and op.type not in CALLS and graphs.runs_op(op, CALLS):
            raise UnsupportedOperationError(
                f"A SubGraph is called inside {op.name!r} ({op.type}), a loop or function within a body; expected calls in "
                "the body itself or in branches of tf.cond and tf.switch_case. Call it for many rows with .map()."
            )


def _read_only_inputs(op: tf.Operation) -> set[int]:
    try:
        return set(op.get_attr("_read_only_resource_inputs"))
    except ValueError:
        return set()


def holds_check(op: tf.Operation) -> bool:
    """Whether an assertion is in a branch, loop or function that `op` runs."""
    if op.type in CALLS or not graphs.is_stateful(op):
        return False
    return any(
        inner.type in _CHECKS or holds_check(inner) for g in graphs.nested_graphs(op) for inner in g.get_operations()
    )


def bind_captures(bodies: list[Body], environment: Environment) -> None:
    """Lets captured tensors be recognised in bodies and in the branches of their conditionals."""
    for body in bodies:
        for outer, inner in body.graph.captures:
            environment.bind(inner, outer)
    for graph in all_graphs(bodies):
        for op in graph.get_operations():
            for branch in graphs.branch_graphs(op) if graphs.is_conditional(op) else ():
                for inner, tensor in zip(branch.inputs, op.inputs[1:], strict=True):
                    outer_value = environment.captured(tensor)
                    if outer_value is not None:
                        environment.bind(inner, outer_value)


def all_graphs(bodies: list[Body]) -> list[tf.Graph]:
    """The bodies' graphs and those of the branches in them, parents before children."""
    found: list[tf.Graph] = []
    stack = [body.graph for body in bodies]
    while stack:
        graph = stack.pop()
        found.append(graph)
        for op in graph.get_operations():
            if graphs.is_conditional(op):
                stack.extend(graphs.branch_graphs(op))
    return found

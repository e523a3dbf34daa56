"""Random numbers in bodies: each call draws from a stream of its own, told by the call's path.

So calls never share masks, nothing depends on the order of execution, and both executors draw the same numbers. The seed
is drawn once per run in the caller's graph: by the operator that TensorFlow's own seeds belong to, or by advancing the
state of the Keras seed generator that the body uses.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._effects import RANDOM, all_graphs
from tf_ext.recursion._environment import Environment
from tf_ext.recursion._tracing import Trace

_STATEFUL = {
    "RandomUniform": "uniform",
    "RandomStandardNormal": "normal",
    "TruncatedNormal": "truncated_normal",
    "RandomUniformInt": "uniform_int",
}
_STATELESS = {
    "StatelessRandomUniformV2": "uniform",
    "StatelessRandomNormalV2": "normal",
    "StatelessTruncatedNormalV2": "truncated_normal",
}


@dataclasses.dataclass(frozen=True)
class Draw:
    """How to draw: `seed` (int64 [2], of the caller's graph), the distribution, and a number that tells draws apart."""

    seed: tf.Tensor
    distribution: str
    salt: int


class Randomness:
    """The random operators of one trace."""

    def __init__(self, trace: Trace, environment: Environment) -> None:
        """Looks for seed generators; has to come before `Effects`, which then ignores what was moved out."""
        self._environment = environment
        self._seeds: dict[tf.Operation, tf.Tensor] = {}
        self._salts: dict[tf.Operation, int] = {}
        self._generators = _seed_generators(trace, environment)
        environment.moved = {op for generator in self._generators for op in generator.assigns}
        environment.forget_invariance()

    def draw(self, op: tf.Operation) -> Draw | None:
        """How `op` draws from its call's stream; None if it is not random or its seed is the user's own."""
        if op.type in RANDOM:
            distribution, seed = _STATEFUL[op.type], self._seed_of_stateful(op)
        elif op.type in _STATELESS:
            distribution, seed = _STATELESS[op.type], self._seed_of_generator(op)
        else:
            return None
        if seed is None:
            return None
        return Draw(seed, distribution, self._salts.setdefault(op, len(self._salts)))

    def advance(self) -> None:
        """Moves the seed generators on by one run."""
        for generator in self._generators:
            generator.advance(self._environment)

    def _seed_of_stateful(self, op: tf.Operation) -> tf.Tensor:
        if op not in self._seeds:
            with self._environment.outer_graph.as_default(), tf.control_dependencies(None):
                limits = tf.constant([-(2**62), 2**62], tf.int64)
                self._seeds[op] = tf.raw_ops.RandomUniformInt(
                    shape=[2],
                    minval=limits[0],
                    maxval=limits[1],
                    seed=op.get_attr("seed"),
                    seed2=op.get_attr("seed2"),
                )
        return self._seeds[op]

    def _seed_of_generator(self, op: tf.Operation) -> tf.Tensor | None:
        key = op.inputs[1].op
        if key.type != "StatelessRandomGetKeyCounter":
            return None
        outer = self._environment.lookup(self._environment.resolve(key.inputs[0]))
        if outer is None or not any(
            generator.leads_to(outer.tensor, self._environment) for generator in self._generators
        ):
            return None
        if key not in self._seeds:
            with self._environment.outer_graph.as_default(), tf.control_dependencies(None):
                self._seeds[key] = tf.cast(outer.tensor, tf.int64)
        return self._seeds[key]


@dataclasses.dataclass
class _Generator:
    """A seed state (say, of `keras.random.SeedGenerator`) that bodies read, advance, and use for nothing but seeds."""

    resource: tf.Tensor
    reads: list[tf.Operation]
    assigns: list[tf.Operation]

    def leads_to(self, tensor: tf.Tensor, environment: Environment) -> bool:
        """Whether a tensor of the caller's graph depends on the state."""
        outer = [environment.lookup(op.outputs[0]) for op in self.reads]
        reads = {value.tensor.op for value in outer if value is not None}
        return bool(graphs.ancestors([tensor.op], lambda op: [t.op for t in op.inputs]) & reads)

    def advance(self, environment: Environment) -> None:
        value = environment.lookup(self.assigns[-1].inputs[1])
        assert value is not None
        with environment.outer_graph.as_default(), tf.control_dependencies(None):
            tf.raw_ops.AssignVariableOp(resource=self.resource, value=value.tensor)


def _seed_generators(trace: Trace, environment: Environment) -> list[_Generator]:
    """The captured variables that serve as seed states only."""
    uses: dict[object, _Generator] = {}
    others: set[object] = set()
    all_ops = [op for graph in all_graphs(trace.bodies) for op in graph.get_operations()]
    for op in all_ops:
        for tensor in op.inputs:
            outer = environment.captured(tensor) if tensor.dtype == tf.resource else None
            if outer is None:
                continue
            use = uses.setdefault(outer.ref(), _Generator(outer, [], []))
            if op.type == "ReadVariableOp":
                use.reads.append(op)
            elif op.type == "AssignVariableOp":
                use.assigns.append(op)
            elif not graphs.is_conditional(op):
                others.add(outer.ref())
    candidates = [use for ref, use in uses.items() if use.assigns and ref not in others]
    environment.moved = {op for use in candidates for op in use.assigns}
    return [use for use in candidates if _serves_seeds_only(use, environment)]


def _serves_seeds_only(generator: _Generator, environment: Environment) -> bool:
    """Whether what is read flows only into seeds and into the assigned value, which is the same in all calls.

    Two integers, as in Keras: a counter of something else, which has to count calls, is not taken for a seed state.
    """
    if any(not op.outputs[0].dtype.is_integer or op.outputs[0].shape.as_list() != [2] for op in generator.reads):
        return False
    seeds = False
    stack, seen = [t for op in generator.reads for t in op.outputs], set()
    while stack:
        tensor = stack.pop()
        for op in tensor.consumers():
            seeds |= op.type == "StatelessRandomGetKeyCounter"
            if op in seen or op in generator.assigns or op.type == "StatelessRandomGetKeyCounter":
                continue
            if not op.outputs or not environment.is_invariant(op.outputs[0]):
                return False
            seen.add(op)
            stack.extend(op.outputs)
    return seeds and all(environment.is_invariant(op.inputs[1]) for op in generator.assigns)

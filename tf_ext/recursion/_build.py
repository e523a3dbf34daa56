"""From a SubGraph to the program that the runtime executes: trace, lower, emit, differentiate, encode."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import tensorflow as tf
from absl import logging

from tf_ext import graph as graphs
from tf_ext.recursion import _randomness
from tf_ext.recursion._block_graph import BlockGraph
from tf_ext.recursion._effects import Effects, bind_captures
from tf_ext.recursion._emit import PlainEmitter
from tf_ext.recursion._encoding import Encoder, Gradients, Limits
from tf_ext.recursion._environment import Environment
from tf_ext.recursion._gradients import GradientBuilder
from tf_ext.recursion._lowering import Lowering
from tf_ext.recursion._tracing import Trace
from tf_ext.recursion._vectorize import BatchedEmitter
from tf_ext.recursion.errors import BatchingError

if TYPE_CHECKING:
    from tf_ext.recursion.subgraph import SubGraph


@dataclasses.dataclass(frozen=True)
class Program:
    """What the root operator needs.

    Attributes:
      encoded: the serialized program.
      env: the tensors of the caller's graph that it reads.
      execution: `"invoke"` or `"batched"`.
      has_effects: whether calls have to keep the order of the program.
      read_only: indices into `env` of the resources that it does not write to.
      randomness: advances the seed generators that the bodies use.
    """

    encoded: bytes
    env: list[tf.Tensor]
    execution: str
    has_effects: bool
    read_only: list[int]
    randomness: _randomness.Randomness


def build_program(subgraph: SubGraph, execution: str) -> Program:
    """Traces and lowers everything that can be reached from `subgraph`, in the current graph."""
    trace = Trace(subgraph)
    environment = Environment(trace.outer_graph)
    bind_captures(trace.bodies, environment)
    randomness = _randomness.Randomness(trace, environment)
    effects = Effects(trace, environment)
    lowering = Lowering(trace, environment, effects)
    block_graphs = None
    if execution != "invoke":
        try:
            block_graphs = _emit(lowering, randomness, BatchedEmitter)
        except BatchingError as error:
            if execution == "batched":
                raise BatchingError(
                    f"SubGraph {subgraph.name!r} cannot run with execution='batched': {error}. Use execution='invoke', or "
                    "'auto' to let it be chosen."
                ) from error
            logging.warning("SubGraph %r runs with execution='invoke': %s.", subgraph.name, error)
    kind = "plain" if block_graphs is None else "batched"
    if block_graphs is None:
        block_graphs = _emit(lowering, randomness, PlainEmitter)
    return Program(
        encoded=_encode(trace, lowering, block_graphs, kind),
        env=list(environment.tensors),
        execution="invoke" if kind == "plain" else "batched",
        has_effects=effects.any,
        read_only=[
            i
            for i, t in enumerate(environment.tensors)
            if t.dtype == tf.resource and t.ref() not in environment.written
        ],
        randomness=randomness,
    )


def _emit(lowering: Lowering, randomness: _randomness.Randomness, emitter: type[PlainEmitter]) -> dict[int, BlockGraph]:
    return {block.index: emitter(lowering, block, randomness).build() for block in lowering.blocks}


def _encode(trace: Trace, lowering: Lowering, block_graphs: dict[int, BlockGraph], kind: str) -> bytes:
    env = lowering.environment.tensors
    builder = GradientBuilder(lowering.environment)
    encoder = Encoder()
    numbers: dict[int, dict[str, int]] = {}
    for index, forward in block_graphs.items():
        backward = builder.build(forward)
        numbers[index] = {kind: encoder.add_graph(forward), f"{kind}_grad": encoder.add_graph(backward)}
    subgraphs = [body.subgraph for body in trace.bodies]
    tables = {table for block in lowering.blocks for call in block.calls for table in call.tables}
    if any(dtype.is_complex for function in lowering.functions for dtype in function.slot_types):
        builder.errors.append(
            "its calls pass complex values, through which no gradient flows; pass real and imaginary parts"
        )
    slices = sorted(builder.slices | {table for table in tables if table >= 0 and env[table].dtype.is_floating})
    return encoder.encode(
        lowering.functions,
        lowering.blocks,
        numbers,
        [t.dtype for t in env],
        Gradients(
            builder.products,
            sorted(builder.dense),
            slices,
            [_row_shape(env[j]) for j in slices],
            "; ".join(builder.errors),
        ),
        Limits(min(s.max_depth for s in subgraphs), min(s.max_live_calls for s in subgraphs)),
    )


def _row_shape(table: tf.Tensor) -> tuple[tf.DType, tf.TensorShape]:
    """Type and shape of one row of a table, which may be a variable."""
    if table.dtype == tf.resource:
        return graphs.variable_spec(table)[0], graphs.variable_spec(table)[1][1:]
    return table.dtype, table.shape[1:]

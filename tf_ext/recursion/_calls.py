"""Calls: a placeholder operator inside bodies, the operator that runs the whole recursion elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.ops import recursion as kernels
from tf_ext.recursion._build import Program, build_program
from tf_ext.recursion._tracing import Trace
from tf_ext.recursion.errors import UnsupportedOperationError

if TYPE_CHECKING:
    from tf_ext.recursion.subgraph import SubGraph


class Calls(NamedTuple):
    """What every call of a SubGraph was given and returned, in an order that depends on the calls alone.

    Attributes:
      arguments: as `input_signature`, with a leading dimension, the number of calls.
      results: as `output_signature`, likewise.
    """

    arguments: Any
    results: Any


def call_in_body(
    trace: Trace, subgraph: SubGraph, args: list[tf.Tensor], mapped: Sequence[bool] = (), reduce: str = ""
) -> Any:
    """Notes a call in the body that is being traced."""
    trace.check_place(subgraph)
    specs = tf.nest.flatten(subgraph.output_signature)
    if reduce == "stack":
        specs = [tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in specs]
    results = kernels.call(args, trace.number(subgraph), specs, flat_mapped(subgraph, mapped), reduce)
    return tf.nest.pack_sequence_as(subgraph.output_signature, results)


def flat_mapped(subgraph: SubGraph, mapped: Sequence[bool]) -> list[bool]:
    """`mapped` per tensor rather than per argument."""
    if not mapped:
        return []
    pairs = zip(subgraph.input_signature, mapped, strict=True)
    return [flag for spec, flag in pairs for _ in tf.nest.flatten(spec)]


def call_root(subgraph: SubGraph, args: list[tf.Tensor], *, execution: str, return_calls: bool) -> Any:
    """Runs the recursion that begins with one call."""
    return _in_function(lambda *a: _run(subgraph, list(a), execution, return_calls, many=False), args)


def map_root(
    subgraph: SubGraph, args: list[tf.Tensor], mapped: Sequence[bool], *, execution: str, return_calls: bool
) -> Any:
    """Runs the recursions that begin with one call per row."""

    def run(*tensors: tf.Tensor) -> Any:
        flags = flat_mapped(subgraph, mapped)
        rows = tf.shape(tensors[flags.index(True)])[0]
        stacked = [t if flag else _repeat(t, rows) for t, flag in zip(tensors, flags, strict=True)]
        return _run(subgraph, stacked, execution, return_calls, many=True)

    return _in_function(run, args)


def _repeat(tensor: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    repeated = tf.broadcast_to(tensor, tf.concat([[rows], tf.shape(tensor)], 0))
    repeated.set_shape([None, *tensor.shape])
    return repeated


def _in_function(run: Callable[..., Any], args: list[tf.Tensor]) -> Any:
    """In eager mode the recursion still needs a graph to live in; it is traced anew each time, as closures may change."""
    if tf.executing_eagerly():
        # A concrete function, since TensorFlow warns of functions that it sees traced time and again.
        return tf.function(run, autograph=False).get_concrete_function(*args)(*args)
    return run(*args)


def _check_surroundings(subgraph: SubGraph, program: Program) -> None:
    """Refuses what would fail later in words that do not say what to do."""
    here = tf.compat.v1.get_default_graph()
    if graphs.is_compiled_by_xla(here):
        raise UnsupportedOperationError(
            f"SubGraph {subgraph.name!r} was called in a tf.function with jit_compile=True. XLA has no recursion: leave "
            "jit_compile out there (in Keras: model.compile(jit_compile=False))."
        )
    for tensor in program.env:
        if tf.is_symbolic_tensor(tensor) and not graphs.is_visible(tensor, here):
            raise UnsupportedOperationError(
                f"SubGraph {subgraph.name!r} uses tensor {tensor.name!r} of graph {tensor.graph.name!r}, which cannot be "
                "seen where it is called. Define a SubGraph in the tf.function that calls it, or pass the tensor as an "
                "argument."
            )


def _run(subgraph: SubGraph, args: list[tf.Tensor], execution: str, return_calls: bool, many: bool) -> Any:
    program = build_program(subgraph, execution)
    _check_surroundings(subgraph, program)
    outputs, calls = _root_operator(program, subgraph, args, return_calls, many)
    program.randomness.advance()
    results = tf.nest.pack_sequence_as(subgraph.output_signature, outputs)
    if not return_calls:
        return results
    count = len(args)
    arguments = tf.nest.pack_sequence_as(list(subgraph.input_signature), calls[:count])
    return results, Calls(tuple(arguments), tf.nest.pack_sequence_as(subgraph.output_signature, calls[count:]))


def _root_operator(
    program: Program, subgraph: SubGraph, args: list[tf.Tensor], collect: bool, many: bool
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    specs = tf.nest.flatten(subgraph.output_signature)
    arg_specs = tf.nest.flatten(list(subgraph.input_signature))
    outputs, calls = kernels.recursion(
        args,
        program.env,
        [spec.dtype for spec in specs],
        [spec.dtype for spec in arg_specs + specs] if collect else [],
        program=program.encoded,
        execution=program.execution,
        many=many,
        sequential=program.has_effects,
        read_only=program.read_only,
    )
    rows = args[0].shape[:1] if many else tf.TensorShape([])
    for tensor, spec in zip(outputs, specs, strict=True):
        tensor.set_shape(rows.concatenate(spec.shape))
    for tensor, spec in zip(calls, arg_specs + specs if collect else [], strict=True):
        tensor.set_shape(tf.TensorShape([None]).concatenate(spec.shape))
    return outputs, calls

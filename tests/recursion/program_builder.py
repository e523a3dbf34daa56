"""Programs of the recursion runtime, written by hand: what the tests of the executors run.

A block's computation is given once, for rows: `body` gets tensors with a leading dimension. The graph for a single call
is the same body over a batch of one, so that both executions run what a test describes::

    program = Program()
    double = program.function("double", [row()], [row()], results=[1])
    program.block(double, graph=program.graph(double, ["slot:0"], lambda x: {"slot:1": 2 * x}), rank=1)
    run(program, [tf.constant([1.0, 2.0])], map=True).results
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tf_ext import ops

Body = Callable[..., dict[str, Any]]
Execution = Literal["invoke", "batched"]


def row(*shape: int | None, dtype: tf.DType = tf.float32) -> tf.TensorSpec:
    """A slot with rows of this shape."""
    return tf.TensorSpec(shape, dtype)


INTEGER = row(dtype=tf.int32)
FLAG = row(dtype=tf.bool)


@dataclasses.dataclass(frozen=True)
class Once:
    """Marks an output of a body that is one row, the same for all."""

    value: tf.Tensor


class Program:
    """Collects records; `serialized` encodes them as docs/design/recursion.md says."""

    def __init__(
        self,
        env: Sequence[tf.TensorSpec] = (),
        root: int = 0,
        max_depth: int = 1_000_000,
        max_live_calls: int = 10_000_000,
        products: Sequence[tuple[int, bool]] = (),
    ) -> None:
        self.env = list(env)
        self.functions: list[node_def_pb2.NodeDef] = []
        self.slots: list[list[tf.TensorSpec]] = []
        self.num_blocks = 0
        self.num_graphs = 0
        self.records: list[node_def_pb2.NodeDef] = []
        self.header = node_def_pb2.NodeDef(name="program", op="Program")
        _set(self.header, root=root, max_depth=max_depth, max_live_calls=max_live_calls)
        self.header.attr["env_types"].list.type.extend(spec.dtype.as_datatype_enum for spec in env)
        _set(self.header, product_env=[p[0] for p in products], product_transposed=[p[1] for p in products])

    def function(
        self,
        name: str,
        args: Sequence[tf.TensorSpec],
        slots: Sequence[tf.TensorSpec],
        results: Sequence[int],
        entry: int | None = None,
        is_branch: bool = False,
    ) -> int:
        """A function whose entry is the next block to be added, unless `entry` says otherwise."""
        node = node_def_pb2.NodeDef(name=name, op="Function")
        every = [*args, *slots]
        entry = self.num_blocks if entry is None else entry
        _set(node, num_args=len(args), entry=entry, results=list(results), is_branch=is_branch)
        node.attr["slot_types"].list.type.extend(spec.dtype.as_datatype_enum for spec in every)
        node.attr["slot_shapes"].list.shape.extend(spec.shape.as_proto() for spec in every)
        self.functions.append(node)
        self.slots.append(every)
        return len(self.functions) - 1

    def graph(
        self, function: int, sources: Sequence[str], body: Body, saved: Sequence[tf.TensorSpec] = ()
    ) -> tuple[int, int]:
        """Adds the graphs (plain, batched) of a body that gets `sources` and returns values by target."""
        return tuple(self._graph(function, sources, body, saved, batched) for batched in (False, True))  # type: ignore[return-value]

    def _spec(self, function: int, source: str, saved: Sequence[tf.TensorSpec], batched: bool) -> tf.TensorSpec:
        kind, _, index = source.partition(":")
        if kind == "env":
            return self.env[int(index)]
        if kind == "saved":
            return saved[int(index)]
        if kind == "n":
            return tf.TensorSpec([], tf.int32)
        spec = tf.TensorSpec([], tf.int64) if kind == "uid" else self.slots[function][int(index)]
        return tf.TensorSpec([None, *spec.shape], spec.dtype) if batched else spec

    def _graph(
        self, function: int, sources: Sequence[str], body: Body, saved: Sequence[tf.TensorSpec], batched: bool
    ) -> int:
        feeds, fetches, stacked = [], {}, []
        with tf.Graph().as_default() as graph:
            inputs = []
            for source in sources:
                spec = self._spec(function, source, saved, batched)
                feed = tf.compat.v1.placeholder(spec.dtype, spec.shape)
                feeds.append(feed.op.name)
                rows = source.split(":")[0] in ("slot", "dout", "uid")
                inputs.append(tf.expand_dims(feed, 0) if rows and not batched else feed)
            for target, value in body(*inputs).items():
                rows = target.split(":")[0] in ("slot", "dslot")
                once = isinstance(value, Once)
                tensor = tf.convert_to_tensor(value.value if once else value)
                if rows and not batched and not once:
                    tensor = tf.squeeze(tensor, 0)
                fetches[target] = tensor.name
                stacked.append(not once)
        node = node_def_pb2.NodeDef(name=f"graph_{self.num_graphs}", op="Graph")
        _set(node, feeds=feeds, sources=list(sources), fetches=list(fetches.values()), targets=list(fetches))
        node.attr["stacked"].list.b.extend(stacked)
        node.attr["def"].s = graph.as_graph_def().SerializeToString()
        self.records.append(node)
        self.num_graphs += 1
        return self.num_graphs - 1

    def block(
        self,
        function: int,
        graph: tuple[int, int] = (-1, -1),
        grad: tuple[int, int] = (-1, -1),
        moves: Sequence[tuple[int, int]] = (),
        next: int = -1,
        side: int = -1,
        switch: int = -1,
        targets: Sequence[int] = (),
        rank: int = 0,
    ) -> int:
        """Adds a block."""
        node = node_def_pb2.NodeDef(name=f"block_{self.num_blocks}", op="Block")
        _set(node, function=function, plain=graph[0], batched=graph[1], plain_grad=grad[0], batched_grad=grad[1])
        _set(node, moves=[slot for move in moves for slot in move], next=next, side=side, rank=rank)
        _set(node, switch=switch, targets=list(targets))
        self.records.append(node)
        self.num_blocks += 1
        return self.num_blocks - 1

    def call(
        self,
        block: int,
        callees: Sequence[int],
        args: Sequence[int],
        results: Sequence[int],
        mode: str = "one",
        mapped: Sequence[bool] | None = None,
        **attributes: Any,
    ) -> None:
        """Adds a call to a block; `attributes`: selector, reduce, start, limit, tables, site."""
        node = node_def_pb2.NodeDef(name=f"call_{len(self.records)}", op="Call")
        _set(node, block=block, callees=list(callees), args=list(args), results=list(results), mode=mode)
        node.attr["mapped"].list.b.extend(mapped or [False] * len(args))
        _set(node, **{"site": len(self.records), **attributes})
        self.records.append(node)

    def serialized(self) -> bytes:
        """The program as the root operator takes it."""
        return graph_pb2.GraphDef(node=[self.header, *self.functions, *self.records]).SerializeToString()


def _set(node: node_def_pb2.NodeDef, **attributes: Any) -> None:
    for name, value in attributes.items():
        attr = node.attr[name]
        if isinstance(value, list):
            attr.list.SetInParent()
            if value and isinstance(value[0], str):
                attr.list.s.extend(text.encode() for text in value)
            elif value and isinstance(value[0], bool):
                attr.list.b.extend(value)
            else:
                attr.list.i.extend(value)
        elif isinstance(value, str):
            attr.s = value.encode()
        elif isinstance(value, bool):
            attr.b = value
        else:
            attr.i = value


@dataclasses.dataclass(frozen=True)
class Result:
    """What the root operator returned."""

    results: list[tf.Tensor]
    calls: list[tf.Tensor]
    tape: tf.Tensor
    program: Program
    args: list[tf.Tensor]
    env: list[tf.Tensor]


def run(
    program: Program,
    args: Sequence[Any],
    env: Sequence[Any] = (),
    execution: Execution = "batched",
    map: bool = False,
    record: bool = False,
    collect: bool = False,
    sequential: bool = False,
) -> Result:
    """Runs a program."""
    root = program.header.attr["root"].i
    slots = program.slots[root]
    results = [slots[i] for i in program.functions[root].attr["results"].list.i]
    given = [tf.convert_to_tensor(a, s.dtype) for a, s in zip(args, slots, strict=False)]
    values = [tf.convert_to_tensor(e, s.dtype) for e, s in zip(env, program.env, strict=True)]
    collected = [*slots[: len(given)], *results] if collect else []
    output = ops.load().tf_ext_recursion(
        args=given,
        env=values,
        Tresults=[spec.dtype for spec in results],
        Tcalls=[spec.dtype for spec in collected],
        program=program.serialized(),
        execution=execution,
        map=map,
        record=record,
        sequential=sequential,
        collect=collect,
    )
    return Result(output.results, output.calls, output.tape, program, given, values)


def gradients(
    result: Result,
    dresults: Sequence[Any],
    arg_grads: Sequence[int] = (),
    env_dense: Sequence[int] = (),
    env_slices: Sequence[int] = (),
    dcalls: Sequence[Any] = (),
) -> Any:
    """Runs the gradient: named outputs `dargs`, `denv`, `values`, `indices`."""
    env = result.env
    return ops.load().tf_ext_recursion_grad(
        tape=result.tape,
        dresults=[tf.convert_to_tensor(d) for d in dresults],
        dcalls=[tf.convert_to_tensor(d) for d in dcalls],
        Tdargs=[result.args[a].dtype for a in arg_grads],
        Tdenv=[env[e].dtype for e in env_dense],
        Tvalues=[env[e].dtype for e in env_slices],
        Tindices=[tf.int64 for _ in env_slices],
        arg_grads=list(arg_grads),
        env_dense=list(env_dense),
        env_slices=list(env_slices),
        slice_shapes=[env[e].shape[1:] for e in env_slices],
    )

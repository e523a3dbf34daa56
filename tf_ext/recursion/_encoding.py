"""Writes a lowered recursion as the `GraphDef` that the runtime reads (docs/design/recursion.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_ext import graph as graphs
from tf_ext.recursion._block_graph import BlockGraph
from tf_ext.recursion._fusion import fuse
from tf_ext.recursion._ir import Block, Call, Function


@dataclasses.dataclass(frozen=True)
class Limits:
    """When a recursion is taken to be without end."""

    max_depth: int
    max_live_calls: int


@dataclasses.dataclass(frozen=True)
class Gradients:
    """Which environment values get gradients, and how.

    Attributes:
      products: (environment value, transposed) of each deferred product.
      dense: environment values with dense gradients.
      slices: environment values with gradients as slices.
      rows: type and shape of a row of each of `slices`.
      error: why the recursion has no gradient, if it has none.
    """

    products: list[tuple[int, bool]]
    dense: list[int]
    slices: list[int]
    rows: list[tuple[tf.DType, tf.TensorShape]]
    error: str


class Encoder:
    """Collects records; graphs are numbered as they are added."""

    def __init__(self) -> None:
        self._graphs: list[Any] = []
        self._functions: dict[str, Any] = {}

    def add_graph(self, block_graph: BlockGraph | None) -> int:
        """Adds a graph and returns its number, -1 for none."""
        if block_graph is None or not (block_graph.fetches or block_graph.must_run):
            return -1
        roots = [t.op.name for t, _, _ in block_graph.fetches] + [op.name for op in block_graph.must_run]
        roots += [t.op.name for t, _ in block_graph.feeds]
        graph_def = graphs.extract_graph_def(block_graph.graph, roots)
        self._functions.update((f.signature.name, f) for f in graph_def.library.function)
        graph_def.ClearField("library")
        fetches = fuse(graph_def, block_graph.graph, block_graph.batched, [t for t, _, _ in block_graph.fetches])
        _fill_in(graph_def, block_graph)
        node = _record(
            "Graph",
            f"graph_{len(self._graphs)}",
            {
                "feeds": [t.op.name for t, _ in block_graph.feeds],
                "sources": [source for _, source in block_graph.feeds],
                "fetches": fetches,
                "targets": [target for _, target, _ in block_graph.fetches],
                "stacked": [stacked for _, _, stacked in block_graph.fetches],
            },
        )
        node.attr["def"].s = graph_def.SerializeToString(deterministic=True)
        self._graphs.append(node)
        return len(self._graphs) - 1

    def encode(
        self,
        functions: Sequence[Function],
        blocks: Sequence[Block],
        block_graphs: dict[int, dict[str, int]],
        env_types: Sequence[tf.DType],
        gradients: Gradients,
        limits: Limits,
    ) -> bytes:
        """The serialized program; `block_graphs` names the graphs of each block by kind."""
        program = tf.compat.v1.GraphDef()
        head = _record("Program", "program", {"root": 0, **dataclasses.asdict(limits)})
        head.attr["env_types"].list.type.extend(t.as_datatype_enum for t in env_types)
        head.attr["product_env"].list.i.extend(env for env, _ in gradients.products)
        head.attr["product_transposed"].list.b.extend(transposed for _, transposed in gradients.products)
        # For the gradient function, which has nothing but this after loading a SavedModel.
        head.attr["dense_env"].list.i.extend(gradients.dense)
        head.attr["slices_env"].list.i.extend(gradients.slices)
        head.attr["slices_types"].list.type.extend(dtype.as_datatype_enum for dtype, _ in gradients.rows)
        head.attr["slices_shapes"].list.shape.extend(shape.as_proto() for _, shape in gradients.rows)
        head.attr["gradient_error"].s = gradients.error.encode()
        program.node.append(head)
        for function in functions:
            program.node.append(_function(function))
        for block in blocks:
            program.node.append(_block(block, block_graphs[block.index]))
            program.node.extend(_call(block, call) for call in block.calls)
        program.node.extend(self._graphs)
        for name in sorted(self._functions):
            program.library.function.append(self._functions[name])
        return program.SerializeToString(deterministic=True)


def _fill_in(graph_def: Any, block_graph: BlockGraph) -> None:
    """Puts constants in the places of their placeholders."""
    constants = {placeholder.op.name: op for placeholder, op in block_graph.constants}
    for node in graph_def.node:
        if node.name in constants:
            constant = constants[node.name].node_def
            node.op = constant.op
            node.attr.clear()
            for key in ("dtype", "value"):
                node.attr[key].CopyFrom(constant.attr[key])


def _function(function: Function) -> Any:
    node = _record(
        "Function",
        function.name,
        {
            "num_args": function.num_args,
            "entry": function.entry,
            "results": function.results,
            "is_branch": function.is_branch,
        },
    )
    node.attr["slot_types"].list.type.extend(t.as_datatype_enum for t in function.slot_types)
    node.attr["slot_shapes"].list.shape.extend(s.as_proto() for s in function.slot_shapes)
    return node


def _block(block: Block, block_graphs: dict[str, int]) -> Any:
    return _record(
        "Block",
        f"block_{block.index}",
        {
            "function": block.function,
            "moves": [slot for move in block.moves for slot in move],
            "side": block.side,
            "next": block.next,
            "switch": block.switch,
            "targets": block.targets,
            "rank": block.rank,
            **{kind: block_graphs.get(kind, -1) for kind in ("plain", "batched", "plain_grad", "batched_grad")},
        },
    )


def _call(block: Block, call: Call) -> Any:
    return _record("Call", f"call_{call.site}", {"block": block.index, **dataclasses.asdict(call)})


def _record(op: str, name: str, attrs: dict[str, Any]) -> Any:
    node = tf.compat.v1.NodeDef(op=op, name=name)
    for key, value in attrs.items():
        attr = node.attr[key]
        if isinstance(value, bool):
            attr.b = value
        elif isinstance(value, int):
            attr.i = value
        elif isinstance(value, str):
            attr.s = value.encode()
        elif not value:
            attr.list.SetInParent()
        elif isinstance(value[0], bool):
            attr.list.b.extend(value)
        elif isinstance(value[0], int):
            attr.list.i.extend(value)
        else:
            attr.list.s.extend(item.encode() for item in value)
    return node

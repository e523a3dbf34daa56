"""Which processors this machine has for TFLite models."""

from __future__ import annotations

import os

import numpy as np

from tf_ext.lite import _flatbuffer, errors

__all__ = ["found"]


def found() -> list[tuple[str, str]]:
    """Returns the name of each kind of processor, and what is to be said of it.

    A GPU and an NPU are told by running a small model on them, in a process of its own.
    """
    return [("cpu", _cores()), *((name, _accelerator(name)) for name in ("gpu", "npu"))]


def _cores() -> str:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    told = ", ".join(str(core) for core in allowed)
    return f"cores {told}" if len(allowed) > 1 else f"core {told}"


def _accelerator(name: str) -> str:
    from tf_ext.lite import _accelerators
    from tf_ext.lite.model import Model

    model = Model(_doubling(), name="doubling")
    value = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    try:
        with _accelerators.Accelerator(name) as accelerator:
            made = accelerator.run(model.data, [value], [model.tensors[index] for index in model.outputs])[0]
    except errors.LiteError as error:
        return f"absent: {' '.join(str(error).split())}"
    return "runs models" if np.allclose(made, 2 * value, atol=1e-3) else f"computes wrongly: {made.ravel()[:4]}"


def _doubling() -> bytes:
    """A model that adds its input to itself."""
    schema = _flatbuffer.schema()
    tensors = []
    for name in (b"x", b"y"):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = name, [1, 4, 4, 1], schema.TensorType.FLOAT32
        tensors.append(tensor)
    operator = schema.OperatorT()
    operator.inputs, operator.outputs = [0, 0], [1]
    operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    code = schema.OperatorCodeT()
    code.version = 1
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.ADD
    graph, model = schema.SubGraphT(), schema.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, [operator], [0], [1]
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], [code]
    model.buffers = [_flatbuffer.aligned_buffer(None)]
    return _flatbuffer.pack(model)

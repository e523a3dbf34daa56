"""Small TFLite models, made of the schema alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_ext.lite import _flatbuffer

_TYPES = {name: code for code, name in _flatbuffer.TYPES.items()}


class Graph:
    """Adds tensors and operators, one after the other; `data` gives the file.

    Ids of tensors come back from `input`, `constant` and `op`.
    """

    def __init__(self) -> None:
        self.schema = _flatbuffer.schema()
        self.buffers = [self.schema.BufferT()]
        self.tensors: list[Any] = []
        self.operators: list[Any] = []
        self.codes: list[tuple[int, bytes | None]] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def tensor(self, shape, type="float32", *, name=None, variable=False, signature=None, quantized=None) -> int:
        made = self.schema.TensorT()
        made.shape, made.type, made.isVariable = list(shape), _TYPES.get(type, type), variable
        made.name = (name or f"t{len(self.tensors)}").encode()
        made.shapeSignature = signature
        if quantized:
            made.quantization = self.schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [quantized[0]], [quantized[1]]
        self.tensors.append(made)
        return len(self.tensors) - 1

    def input(self, shape, type="float32", **more) -> int:
        self.inputs.append(self.tensor(shape, type, **more))
        return self.inputs[-1]

    def constant(self, array, **more) -> int:
        index = self.tensor(array.shape, str(array.dtype), **more)
        buffer = self.schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        self.buffers.append(buffer)
        self.tensors[index].buffer = len(self.buffers) - 1
        return index

    def op(self, kind, inputs, shape, type="float32", *, options=None, custom=None, **more) -> int:
        """Adds an operator with one output; `options` are the fields of its options."""
        output = self.tensor(shape, type, **more)
        self.add(kind, inputs, [output], options=options, custom=custom)
        return output

    def add(self, name, inputs, outputs, *, options=None, custom=None) -> None:
        operator = self.schema.OperatorT()
        code = (getattr(self.schema.BuiltinOperator, name), custom)
        if code not in self.codes:
            self.codes.append(code)
        operator.opcodeIndex = self.codes.index(code)
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if options is not None:
            kind, fields = options
            operator.builtinOptions = getattr(self.schema, f"{kind}T")()
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, kind)
            for field, value in fields.items():
                setattr(operator.builtinOptions, field, value)
        self.operators.append(operator)

    def model(self) -> Any:
        made = self.schema.ModelT()
        made.version, made.description = 3, b"tiny"
        made.operatorCodes = []
        for code, custom in self.codes:
            entry = self.schema.OperatorCodeT()
            entry.builtinCode, entry.deprecatedBuiltinCode = code, min(code, 127)
            entry.customCode, entry.version = custom, 1
            made.operatorCodes.append(entry)
        made.subgraphs, made.buffers = [self.subgraph()], self.buffers
        return made

    def subgraph(self) -> Any:
        graph = self.schema.SubGraphT()
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs, graph.name = self.inputs, self.outputs, b"main"
        return graph

    def data(self, *outputs) -> bytes:
        self.outputs = list(outputs) or self.outputs
        return pack(self.model())


def pack(model) -> bytes:
    for index, buffer in enumerate(model.buffers):
        model.buffers[index] = _flatbuffer.aligned_buffer(buffer.data)
    return _flatbuffer.pack(model)


def residual(seed: int = 0, *, depth: int = 5, half: bool = True) -> bytes:
    """Convolutions with weights of half precision, skip connections, two inputs and two outputs of the model."""
    random, graph = np.random.default_rng(seed), Graph()
    size = (1, 6, 6, 4)
    first, second = graph.input(size, name="left"), graph.input(size, name="right")
    x = graph.op("ADD", [first, second], size, options=("AddOptions", {}))
    early = x
    for _ in range(depth):
        kernel = random.normal(0, 0.4, (4, 3, 3, 4))
        bias = graph.constant(random.normal(0, 0.1, 4).astype("float32"))
        if half:
            packed = graph.constant(kernel.astype("float16"))
            weights = graph.op("DEQUANTIZE", [packed], kernel.shape)
        else:
            weights = graph.constant(kernel.astype("float32"))
        same = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1, "padding": 0}
        y = graph.op("CONV_2D", [x, weights, bias], size, options=("Conv2DOptions", same))
        y = graph.op("LOGISTIC", [y], size)
        x = graph.op("MUL", [x, y], size, options=("MulOptions", {}))
    last = graph.op("ADD", [x, early], size, options=("AddOptions", {}), name="sum")
    return graph.data(last, x)


def adding(*, shape=(1, 4), type="float32", **more) -> tuple[Graph, int, int]:
    """A graph that adds 1, its input and its output."""
    graph = Graph()
    x = graph.input(shape, type, name="x", **more)
    one = graph.constant(np.ones(1, type))
    return graph, x, graph.op("ADD", [x, one], shape, type, options=("AddOptions", {}), name="y", **more)


def looping() -> bytes:
    """`WHILE x < 10: x += 1`, then `x + 1`: three graphs."""
    main, x, _ = adding(shape=(1,), type="int32")
    model = main.model()
    condition, body = Graph(), adding(shape=(1,), type="int32")[0]
    for graph in (condition, body):
        graph.buffers, graph.codes = main.buffers, main.codes
    value = condition.input((1,), "int32")
    ten = condition.constant(np.array([10], "int32"))
    condition.outputs = [condition.op("LESS", [value, ten], (1,), "bool")]
    one = body.constant(np.ones(1, "int32"))
    body.operators[0].inputs[1] = one
    body.outputs = [len(body.tensors) - 2]
    looped = main.tensor((1,), "int32")
    main.add("WHILE", [x], [looped], options=("WhileOptions", {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}))
    main.operators.reverse()
    main.operators[1].inputs[0] = looped
    main.outputs = [2]
    model = main.model()
    model.subgraphs = [main.subgraph(), condition.subgraph(), body.subgraph()]
    return pack(model)

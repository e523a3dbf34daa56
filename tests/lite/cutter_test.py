"""Parts of a model, run one after the other, compute what the model computes; damaged models are refused."""

import random

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from tests.lite import tiny
from tf_ext.lite import _flatbuffer, _runners, cutter, errors, model_zoo
from tf_ext.lite.model import Model

pytestmark = pytest.mark.usefixtures("litert")

FAST = ("face_detection_sparse", "face_landmark", "hand_landmark_lite", "mobilenet_v2_int8", "selfie_segmentation")


def run_chain(model: Model, boundaries) -> list[np.ndarray]:
    inputs = _runners.random_inputs([model.tensors[index] for index in model.inputs])
    values = dict(zip(model.inputs, inputs, strict=True))
    for part in cutter.chain(model, boundaries):
        made = _runners.cpu(part.data).run([values[index] for index in part.inputs])
        values.update(zip(part.outputs, made, strict=True))
    return [values[index] for index in model.outputs]


def run_whole(model: Model) -> list[np.ndarray]:
    return _runners.cpu(model.data).run(_runners.random_inputs([model.tensors[index] for index in model.inputs]))


def same(a, b) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def boundaries_of(model: Model) -> list[int]:
    return [index for index in range(len(model.operators)) if model.cuttable(index)]


@pytest.fixture(scope="module")
def residual() -> Model:
    return Model(tiny.residual(), name="residual")


@pytest.fixture(scope="module")
def keras_made() -> dict[str, Model]:
    keras = pytest.importorskip("keras")
    from tf_ext.lite import converter

    keras.utils.set_random_seed(3)
    x = inputs = keras.Input((16, 16, 3), batch_size=None)
    for filters, strides in ((8, 2), (8, 1), (16, 2)):
        y = keras.layers.Conv2D(filters, 3, strides, padding="same", activation="relu6")(x)
        y = keras.layers.DepthwiseConv2D(3, padding="same")(y)
        x = keras.layers.Add()([y, keras.layers.Conv2D(filters, 1, strides, padding="same")(x)])
    x = keras.layers.Dense(5, activation="softmax")(keras.layers.GlobalAveragePooling2D()(x))
    network = keras.Model(inputs, x)
    examples = [[np.random.default_rng(i).random((1, 16, 16, 3), np.float32)] for i in range(4)]
    made = {
        kind: converter.from_keras(network, quantisation=kind, examples=examples) for kind in converter.QUANTISATIONS
    }
    return {kind: Model(data, name=kind) for kind, data in made.items()}


@hypothesis.given(seed=st.integers(0, 10**6), share=st.floats(0, 1))
@hypothesis.settings(max_examples=40, deadline=None)
def test_any_cuts_of_a_residual_network_change_nothing(residual, seed, share):
    places = boundaries_of(residual)
    chosen = sorted(random.Random(seed).sample(places, round(share * len(places))))
    assert same(run_chain(residual, chosen), run_whole(residual))


def test_cuts_everywhere_but_where_only_constants_are(residual):
    constant = [operator.id for operator in residual.operators if operator.name == "DEQUANTIZE"]
    assert sorted(residual.constant_operators) == constant
    assert boundaries_of(residual) == [index for index in range(1, len(residual.operators)) if index not in constant]


def test_weights_of_half_precision_are_unpacked_in_each_part_that_needs_them(residual):
    shared = tiny.Graph()
    x = shared.input((1, 4))
    packed = shared.constant(np.arange(16, dtype="float16").reshape(4, 4) / 16)
    weights = shared.op("DEQUANTIZE", [packed], (4, 4))
    options = ("FullyConnectedOptions", {})
    y = shared.op("FULLY_CONNECTED", [x, weights, -1], (1, 4), options=options)
    z = shared.op("FULLY_CONNECTED", [y, weights, -1], (1, 4), options=options)
    model = Model(shared.data(z))
    parts = cutter.chain(model, [2])
    assert [part.inputs for part in parts] == [(x,), (y,)]  # no weights are handed on
    assert [[o.name for o in Model(part.data).operators] for part in parts] == [["DEQUANTIZE", "FULLY_CONNECTED"]] * 2
    assert same(run_chain(model, [2]), run_whole(model))


@pytest.mark.parametrize("kind", ["float32", "float16", "dynamic", "int8"])
def test_a_model_of_keras_cut_everywhere(keras_made, kind):
    model = keras_made[kind]
    assert same(run_chain(model, boundaries_of(model)), run_whole(model))
    for seed in range(3):
        places = boundaries_of(model)
        chosen = sorted(random.Random(seed).sample(places, 3))
        assert same(run_chain(model, chosen), run_whole(model))


def test_quantisation_stays(keras_made):
    model = keras_made["int8"]
    middle = boundaries_of(model)[3]
    part = cutter.cut(model, middle, len(model.operators))
    made, tensor = Model(part.data), part.inputs[0]
    mine, theirs = made.graph.tensors[made.inputs[0]].quantization, model.graph.tensors[tensor].quantization
    assert mine.scale == theirs.scale
    assert mine.zeroPoint == theirs.zeroPoint


def check_real(name: str, cuts: int, seed: int) -> None:
    try:
        model = Model(model_zoo.path(name))
    except errors.NotFoundError as error:
        pytest.skip(str(error))
    whole = run_whole(model)
    places = boundaries_of(model)
    chosen = sorted(random.Random(seed).sample(places, cuts))
    assert same(run_chain(model, chosen), whole)
    assert same(run_chain(model, []), whole)


@pytest.mark.parametrize("name", FAST)
def test_real_models_cut_in_four(name):
    check_real(name, 3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("name", sorted(model_zoo.ENTRIES))
def test_all_real_models_cut_in_seven(name, seed):
    check_real(name, 6, seed)


def test_the_whole_keeps_the_order_of_inputs_and_outputs(residual):
    whole = cutter.cut(residual, 0, len(residual.operators))
    assert (whole.inputs, whole.outputs) == (residual.inputs, residual.outputs)
    assert Model(whole.data).input_names == ("left", "right")


def test_constants_are_aligned(residual):
    part = cutter.cut(residual, 0, len(residual.operators))
    model = Model(part.data)
    buffers = [one.data for one in model.schema.buffers if one.data is not None and len(one.data)]
    assert len(buffers) == 10
    base = np.frombuffer(model.data, np.uint8).ctypes.data
    assert {(buffer.ctypes.data - base) % 16 for buffer in buffers} == {0}


def test_metadata_of_the_whole_is_left_out_of_parts(residual):
    schema = Model(residual.data).schema
    for name, content in ((b"TFLITE_METADATA", b"inputs"), (b"min_runtime_version", b"1.5.0")):
        entry, buffer = _flatbuffer.schema().MetadataT(), _flatbuffer.schema().BufferT()
        buffer.data = np.frombuffer(content, np.uint8)
        schema.buffers.append(buffer)
        entry.name, entry.buffer = name, len(schema.buffers) - 1
        schema.metadata = [*(schema.metadata or []), entry]
    model = Model(tiny.pack(schema))
    whole, part = (Model(cutter.cut(model, 0, end).data).schema for end in (len(model.operators), 3))
    assert [one.name for one in whole.metadata] == [b"TFLITE_METADATA", b"min_runtime_version"]
    assert [one.name for one in part.metadata] == [b"min_runtime_version"]
    assert part.buffers[part.metadata[0].buffer].data.tobytes() == b"1.5.0"


def test_custom_operators_keep_their_options():
    graph = tiny.Graph()
    x = graph.input((1, 4))
    y = graph.op("ABS", [x], (1, 4))
    z = graph.op("CUSTOM", [y], (1, 4), custom=b"Twirl")
    graph.operators[1].customOptions = np.array([1, 2, 250], np.uint8)
    model = Model(graph.data(z))
    assert [(o.name, o.custom) for o in model.operators] == [("ABS", False), ("Twirl", True)]
    made = Model(cutter.cut(model, 1, 2).data)
    assert made.operators[0].name == "Twirl"
    assert list(made.graph.operators[0].customOptions) == [1, 2, 250]


def two_signatures() -> bytes:
    main, _, y = tiny.adding()
    other = tiny.Graph()
    other.buffers, other.codes = main.buffers, main.codes
    u = other.input((1, 2))
    two = other.constant(np.full(1, 2, "float32"))
    other.outputs = [other.op("ADD", [u, two], (1, 2), options=("AddOptions", {}))]
    main.outputs = [y]
    model = main.model()
    model.subgraphs.append(other.subgraph())
    model.signatureDefs = []
    for number, (name, graph) in enumerate((("one", main), ("two", other))):
        entry = main.schema.SignatureDefT()
        entry.signatureKey, entry.subgraphIndex = name.encode(), number
        entry.inputs, entry.outputs = [main.schema.TensorMapT()], [main.schema.TensorMapT()]
        entry.inputs[0].name, entry.inputs[0].tensorIndex = b"given", graph.inputs[0]
        entry.outputs[0].name, entry.outputs[0].tensorIndex = b"made", graph.outputs[0]
        model.signatureDefs.append(entry)
    return tiny.pack(model)


def test_one_of_several_signatures_is_cut():
    data = two_signatures()
    model = Model(data, signature="two")
    assert (model.signature, model.input_names, model.output_names) == ("two", ("given",), ("made",))
    part = cutter.cut(model, 0, 1)
    assert _runners.cpu(part.data).run([np.array([[1, 2]], np.float32)])[0].tolist() == [[3, 4]]
    with pytest.raises(errors.InvalidArgumentError, match="several signatures.*one, two"):
        Model(data)
    with pytest.raises(errors.NotFoundError, match="no signature 'three'; it has one, two"):
        Model(data, signature="three")


def test_a_model_with_a_loop_runs_as_a_whole():
    model = Model(tiny.looping())
    assert model.whole == "WHILE calls another graph of the model"
    assert not any(model.cuttable(index) for index in range(3))
    part = cutter.cut(model, 0, 2)
    assert _runners.cpu(part.data).run([np.array([3], np.int32)])[0].tolist() == [11]
    with pytest.raises(errors.InvalidArgumentError, match="WHILE calls another graph"):
        cutter.cut(model, 1, 2)


def test_nothing_is_cut_between_a_shape_and_its_use():
    graph = tiny.Graph()
    x = graph.input((1, 4))
    y = graph.op("ABS", [x], (1, 4))
    shape = graph.op("SHAPE", [y], (2,), "int32", options=("ShapeOptions", {"outType": 2}))
    z = graph.op("RESHAPE", [y, shape], (1, 4))
    model = Model(graph.data(z))
    assert [model.cuttable(index) for index in range(4)] == [False, True, False, False]
    with pytest.raises(errors.InvalidArgumentError, match="must not be cut before operator 2"):
        cutter.cut(model, 2, 3)


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (2, 2), (3, 1), (0, 99)])
def test_a_range_that_is_none_is_refused(residual, begin, end):
    with pytest.raises(errors.InvalidArgumentError, match="expected operators"):
        cutter.cut(residual, begin, end)


def refused(data: bytes) -> str:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        Model(data, name="net")
    return str(caught.value)


def test_variables_resources_and_dynamic_shapes_are_refused_by_name():
    graph, x, y = tiny.adding()
    state = graph.tensor((1, 4), name="state", variable=True)
    graph.add("ADD", [y, state], [graph.tensor((1, 4))], options=("AddOptions", {}))
    assert "its variable 'state' keeps a state" in refused(graph.data(y))

    graph, x, y = tiny.adding()
    graph.op("VAR_HANDLE", [], (1,), graph.schema.TensorType.RESOURCE)
    assert "VAR_HANDLE (operator 1) keeps a state" in refused(graph.data(y))

    graph, x, y = tiny.adding(shape=(1, 4), signature=[-1, -1])
    assert "the shape of its input 'x' is dynamic (1x4 in the file)" in refused(graph.data(y))

    graph, x, y = tiny.adding(shape=(0, 4))
    assert "is dynamic (0x4 in the file)" in refused(graph.data(y))

    graph = tiny.Graph()
    x = graph.input((1,), graph.schema.TensorType.STRING, name="words")
    assert "its input 'words' has the type string" in refused(graph.data(graph.op("ABS", [x], (1,))))


def test_an_open_batch_counts_as_the_one_in_the_file():
    graph, _, y = tiny.adding(shape=(1, 4), signature=[-1, 4])
    assert Model(graph.data(y)).tensors[0].shape == (1, 4)


def test_what_no_operator_makes_is_no_output():
    graph, x, y = tiny.adding()
    assert "no operator makes its output 'x'" in refused(graph.data(y, x))
    graph, x, y = tiny.adding()
    assert "one tensor is two of its outputs" in refused(graph.data(y, y))


def test_a_file_that_is_absent_or_no_model_is_named(tmp_path):
    with pytest.raises(errors.NotFoundError, match=r"none\.tflite cannot be read: No such file"):
        Model(tmp_path / "none.tflite")
    (tmp_path / "text.tflite").write_text("hello world, how are you")
    with pytest.raises(errors.DataLossError, match="text was expected to be a TFLite model"):
        Model(tmp_path / "text.tflite")
    with pytest.raises(errors.DataLossError, match="3 bytes in all"):
        Model(b"TFL")


def damage(model, change) -> str:
    schema = Model(model.data).schema
    change(schema.subgraphs[0])
    with pytest.raises(errors.DataLossError) as caught:
        Model(tiny.pack(schema), name="net")
    return str(caught.value)


def test_what_contradicts_itself_is_told(residual):
    def swap(graph):
        graph.operators[-1], graph.operators[-2] = graph.operators[-2], graph.operators[-1]

    def set_to(path, value):
        def change(graph):
            target = graph
            for step in path[:-1]:
                target = target[step] if isinstance(step, int) else getattr(target, step)
            if isinstance(path[-1], int):
                target[path[-1]] = value
            else:
                setattr(target, path[-1], value)

        return change

    assert "before it is made" in damage(residual, swap)
    assert "an input of operator 0 is tensor 999" in damage(residual, set_to(["operators", 0, "inputs"], [999, 1]))
    assert "has the code 77" in damage(residual, set_to(["operators", 0, "opcodeIndex"], 77))
    assert "refers to buffer 500" in damage(residual, set_to(["tensors", 0, "buffer"], 500))
    assert "bytes of data" in damage(residual, set_to(["tensors", 3, "shape"], [5]))
    assert "an output of the graph is tensor 400" in damage(residual, set_to(["outputs"], [400]))


def survive(data: bytes) -> None:
    """A damaged model is refused, or it can be cut; nothing else may happen."""
    try:
        model = Model(data)
        for index in (0, len(model.operators) // 2):
            if index == 0 or model.cuttable(index):
                cutter.cut(model, index, len(model.operators))
    except errors.LiteError:
        pass


@hypothesis.given(length=st.integers(0, 10**6))
@hypothesis.settings(max_examples=60, deadline=None)
def test_truncated_models_are_refused(residual, length):
    cut_off = residual.data[: length % len(residual.data)]
    with pytest.raises(errors.LiteError):
        Model(cut_off)


@hypothesis.given(
    changes=st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255)), min_size=1
    )
)
@hypothesis.settings(max_examples=300, deadline=None)
def test_corrupted_models_never_crash(residual, changes):
    data = bytearray(residual.data)
    for place, value in changes:
        data[8 + place % (len(data) - 8)] = value
    survive(bytes(data))


@pytest.mark.slow
def test_corrupted_real_models_never_crash():
    model = Model(model_zoo.path("face_landmark")) if "face_landmark" in model_zoo.present() else pytest.skip("absent")
    generator = random.Random(5)
    for _ in range(150):
        data = bytearray(model.data)
        for _ in range(generator.choice([1, 4, 64])):
            # Most of the file is weights; what tells how to read them lies at its ends.
            place = generator.choice(
                [generator.randrange(8, 60_000), generator.randrange(len(data) - 60_000, len(data))]
            )
            data[place] = generator.choice([0, 1, 127, 128, 255, generator.randrange(256)])
        survive(bytes(data))

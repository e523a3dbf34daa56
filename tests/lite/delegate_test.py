"""The delegate in the interpreters that people use: the same outputs, one engine, and clear refusals."""

import functools
import json
import pathlib
import struct
import threading
import zlib

import numpy as np
import pytest

from tests.lite import tiny
from tf_ext import lite
from tf_ext.lite import _flatbuffer, _runners, errors, model_zoo
from tf_ext.lite.bundle import make_bundle
from tf_ext.lite.model import Model

pytestmark = pytest.mark.usefixtures("litert")

OPTIONS = {"workers": "cpu,cpu"}


def interpreter_of(library):
    if library == "tensorflow":
        tf = pytest.importorskip("tensorflow")
        return tf.lite.Interpreter
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter


class Made:
    """A model, its bundle, inputs, and the outputs that plain LiteRT gives."""

    def __init__(self, data, folder, name):
        self.file, self.bundle = folder / f"{name}.tflite", folder / f"{name}.tfxlite"
        self.file.write_bytes(data)
        make_bundle(data, self.bundle, name=name, parts=3, warmup=0, runs=3, cache=False)
        model = Model(data)
        self.inputs = _runners.random_inputs([model.tensors[index] for index in model.inputs], seed=3)
        self.outputs = _runners.cpu(data).run(self.inputs)

    def load(self, library="ai_edge_litert", options=OPTIONS):
        delegate = lite.load_delegate(self.bundle, options, library=library)
        made = interpreter_of(library)(str(self.file), experimental_delegates=[delegate])
        made.allocate_tensors()
        return made

    def run(self, interpreter):
        for detail, value in zip(interpreter.get_input_details(), self.inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    def is_right(self, outputs):
        return all(map(np.array_equal, outputs, self.outputs))


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nets")
    return [Made(tiny.residual(seed, depth=3 + seed), folder, f"net{seed}") for seed in range(2)]


@pytest.mark.parametrize("library", ["tensorflow", "ai_edge_litert"])
def test_outputs_are_those_of_plain_litert(nets, library):
    for net in nets:
        interpreter = net.load(library)
        assert net.is_right(net.run(interpreter))
        assert net.is_right(net.run(interpreter))


def test_interpreters_in_many_threads_give_their_own_outputs(nets):
    """Concurrent interpreters gave wrong outputs (tensorflow#51930)."""
    wrong = []

    def work(index):
        net = nets[index % 2]
        interpreter = net.load()
        wrong.extend(index for _ in range(50) if not net.is_right(net.run(interpreter)))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert wrong == []


def test_a_second_interpreter_of_another_model_while_the_first_is_open(nets):
    """The second model failed while the first was open (LiteRT#5264)."""
    first, second = nets[0].load(), nets[1].load()
    for _ in range(3):
        assert nets[1].is_right(nets[1].run(second))
        assert nets[0].is_right(nets[0].run(first))


def test_the_bundle_of_another_model_is_refused(nets):
    delegate = lite.load_delegate(nets[0].bundle, OPTIONS, library="ai_edge_litert")
    with pytest.raises(RuntimeError, match="it is the bundle of another model"):
        interpreter_of("ai_edge_litert")(str(nets[1].file), experimental_delegates=[delegate])


def constants_crc32(data):
    """What a plan may tell of a model's constants, as `Bundle::constants_crc32` in C++ describes it."""
    made, crc = _flatbuffer.schema().ModelT.InitFromPackedBuf(data, 0), 0
    for index, tensor in enumerate(made.subgraphs[0].tensors):
        stored = made.buffers[tensor.buffer].data
        content = b"" if stored is None else bytes(stored)
        if content:
            crc = zlib.crc32(struct.pack("<IQ", index, len(content)) + content[:64] + content[-64:], crc)
    return crc


def with_constants(data, folder, model):
    """Makes a bundle of `data` that tells the constants of `model`."""
    made = make_bundle(data, folder, name="net", warmup=0, runs=3, cache=False)
    path = folder / "plan.json"
    plan = json.loads(path.read_text())
    plan["model"]["constants_crc32"] = constants_crc32(model)
    path.write_text(json.dumps(plan))
    return made


@pytest.mark.parametrize("library", ["tensorflow", "ai_edge_litert"])
@pytest.mark.parametrize("half", [True, False])
def test_the_bundle_of_a_model_with_other_weights_is_refused(tmp_path, library, half):
    first, second = tiny.residual(1, half=half), tiny.residual(2, half=half)
    (tmp_path / "first.tflite").write_bytes(first)
    for name, constants in (("same", first), ("other", second)):
        with_constants(first, tmp_path / name, constants)
    load = functools.partial(lite.load_delegate, options=OPTIONS, library=library)
    model = str(tmp_path / "first.tflite")
    interpreter_of(library)(model, experimental_delegates=[load(tmp_path / "same")]).allocate_tensors()
    delegate = load(tmp_path / "other")
    with pytest.raises(RuntimeError, match="has other weights: it is the bundle of another model"):
        interpreter_of(library)(model, experimental_delegates=[delegate])


@pytest.mark.parametrize("name", ["face_landmark", "face_detection_sparse", "iris_landmark", "mobilenet_v2_int8"])
def test_constants_of_real_models_are_recognised(tmp_path, name):
    if name not in model_zoo.present():
        pytest.skip(f"python -m tf_ext.lite.model_zoo {name}")
    path = model_zoo.path(name)
    data = pathlib.Path(path).read_bytes()
    with_constants(data, tmp_path / name, data)
    for library in ("tensorflow", "ai_edge_litert"):
        delegate = lite.load_delegate(tmp_path / name, OPTIONS, library=library)
        interpreter_of(library)(str(path), experimental_delegates=[delegate]).allocate_tensors()


def test_resized_inputs_are_refused(nets):
    interpreter = nets[0].load()
    detail = interpreter.get_input_details()[0]
    interpreter.resize_tensor_input(detail["index"], [2, *detail["shape"][1:]])
    with pytest.raises(RuntimeError, match="Inputs cannot be resized"):
        interpreter.allocate_tensors()


def test_inputs_of_the_same_size_and_another_shape_are_refused(nets):
    interpreter = nets[0].load()
    for detail in interpreter.get_input_details():
        interpreter.resize_tensor_input(detail["index"], [1, 4, 6, 6])
    with pytest.raises(RuntimeError, match=r"the shape \[1, 6, 6, 4\] .* but has \[1, 4, 6, 6\]"):
        interpreter.allocate_tensors()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wrokers": "cpu"}, "there is no option 'wrokers'; there are runtime, workers, policy"),
        ({"policy": "best"}, "no policy 'best'"),
        ({"runtime": "/nothing/here.so"}, "LiteRT was expected in /nothing/here.so"),
    ],
)
def test_wrong_options_are_named(nets, options, said):
    with pytest.raises(errors.InvalidArgumentError, match=said):
        lite.load_delegate(nets[0].bundle, options, library="ai_edge_litert")


def test_other_options_than_the_first_delegate_s_are_refused(nets):
    first = nets[0].load()
    with pytest.raises(errors.InvalidArgumentError, match="made with other options"):
        nets[1].load(options={"workers": "cpu", "policy": "fixed"})
    assert nets[0].is_right(nets[0].run(first))


def test_a_damaged_bundle_is_refused(nets, tmp_path):
    damaged = tmp_path / "damaged.tfxlite"
    damaged.write_bytes(nets[0].bundle.read_bytes()[:-100])
    with pytest.raises(errors.InvalidArgumentError, match="it is cut short"):
        lite.load_delegate(damaged, OPTIONS, library="ai_edge_litert")

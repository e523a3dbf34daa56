"""The engine from Python: outputs, arrays, waiting, cancelling, policies, statistics, and what goes wrong."""

import gc
import json
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.lite import tiny
from tf_ext.lite import _library, _runners, errors, load, model_zoo
from tf_ext.lite._arrays import aligned
from tf_ext.lite.bundle import make_bundle
from tf_ext.lite.engine import Engine
from tf_ext.lite.model import Model

pytestmark = [
    pytest.mark.usefixtures("litert"),
    pytest.mark.skipif(_library.find() is None, reason=f"the library is not built: {_library.REPAIR}"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Bundles: `residual` in three parts, `adding` of int32."""
    folder = tmp_path_factory.mktemp("bundles")
    make_bundle(tiny.residual(), folder / "residual.tfxlite", name="residual", parts=3, runs=3, cache=False)
    graph, _, y = tiny.adding(type="int32")
    make_bundle(graph.data(y), folder / "adding", name="adding", runs=3, cache=False)
    return folder


@pytest.fixture(scope="module")
def engine(folder):
    with Engine(workers="cpu,cpu") as made:
        yield made


@pytest.fixture(scope="module")
def residual(engine, folder):
    return engine.add(folder / "residual.tfxlite")


@pytest.fixture(scope="module")
def adding(engine, folder):
    return engine.add(folder / "adding")


def wanted(inputs) -> list[np.ndarray]:
    return _runners.cpu(tiny.residual()).run(inputs)


def some(seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.random((1, 6, 6, 4), np.float32) for _ in range(2)]


def slow_model(folder: pathlib.Path) -> pathlib.Path:
    """Takes some tens of milliseconds."""
    path = folder / "slow.tfxlite"
    if not path.exists():
        graph = tiny.Graph()
        x = graph.input((1, 256, 256, 16))
        kernel = graph.constant(np.full((16, 7, 7, 16), 1e-3, np.float32))
        bias = graph.constant(np.zeros(16, np.float32))
        same = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1, "padding": 0}
        y = graph.op("CONV_2D", [x, kernel, bias], (1, 256, 256, 16), options=("Conv2DOptions", same))
        make_bundle(graph.data(y), path, runs=3, cache=False)
    return path


def test_a_model_tells_what_it_takes_and_gives(residual):
    assert residual.name == "residual"
    assert [(one.name, one.type, one.shape) for one in residual.inputs] == [
        ("left", np.float32, (1, 6, 6, 4)),
        ("right", np.float32, (1, 6, 6, 4)),
    ]
    assert residual.outputs[0].name == "sum"
    assert len(residual.outputs) == 2


@pytest.mark.parametrize("form", ["list", "mapping", "aligned", "unaligned"])
def test_outputs_are_those_of_plain_litert(engine, residual, form):
    inputs = some(1)
    given: dict | list = inputs
    if form == "mapping":
        given = {"right": inputs[1], "left": inputs[0]}
    elif form in ("aligned", "unaligned"):
        given = []
        for array in inputs:
            whole = aligned((array.size + 1,), np.float32)
            place = whole[1:] if form == "unaligned" else whole[:-1]
            assert place.ctypes.data % 64 == (4 if form == "unaligned" else 0)
            place[:] = array.ravel()
            given.append(place.reshape(array.shape))
    outputs = engine.request(residual, given)
    assert list(outputs) == [one.name for one in residual.outputs]
    assert all(map(np.array_equal, outputs.values(), wanted(inputs)))


def test_a_single_array_and_a_folder(engine, adding):
    assert engine.request(adding, np.array([[1, 2, 3, 4]], np.int32))["y"].tolist() == [[2, 3, 4, 5]]


def test_outputs_are_written_where_they_are_wanted(engine, adding):
    out = aligned((1, 4), np.int32)
    made = engine.request(adding, [np.zeros((1, 4), np.int32)], out=[out])
    assert made["y"] is out
    assert out.tolist() == [[1, 1, 1, 1]]
    odd = np.zeros(5, np.int32)[1:].reshape(1, 4)
    engine.request(adding, [np.zeros((1, 4), np.int32)], out={"y": odd})
    assert odd.tolist() == [[1, 1, 1, 1]]


def test_arrays_that_do_not_fit_are_told(engine, residual, adding):
    left, right = some()
    for inputs, told in (
        ([left], "expected 2 inputs, got 1"),
        ({"left": left, "write": right}, r"expected the inputs \['left', 'right'\], got \['left', 'write'\]"),
        ([left, right.astype("float64")], "expected the input 'right' as float32 .* got float64"),
        (
            [left, right[:, :3]],
            r"'right' as float32 of the shape \(1, 6, 6, 4\), got float32 of the shape \(1, 3, 6, 4\)",
        ),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=told):
            engine.request(residual, inputs)
    with pytest.raises(errors.InvalidArgumentError, match="contiguous array to write into"):
        engine.request(adding, np.zeros((1, 4), np.int32), out=[np.zeros((1, 8), np.int32)[:, ::2]])
    with pytest.raises(errors.InvalidArgumentError, match="more than 0 seconds, got -1"):
        engine.request(adding, np.zeros((1, 4), np.int32), slo=-1)


def test_many_threads_and_requests_never_mix_up(engine, residual):
    references = {seed: wanted(some(seed)) for seed in range(8)}
    wrong: list[int] = []

    def ask(seed: int) -> None:
        for _ in range(25):
            requests = [engine.request_async(residual, some(seed)) for _ in range(2)]
            for request in requests:
                if not all(map(np.array_equal, request.result(60).values(), references[seed])):
                    wrong.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_request_is_waited_for_with_a_limit(folder):
    with Engine(workers="cpu") as engine:
        model = engine.add(slow_model(folder), warm_up=True)
        inputs = load.random_inputs(model)
        requests = [engine.request_async(model, inputs) for _ in range(5)]
        last = requests[-1]
        with pytest.raises(errors.WaitTimeoutError, match=r"after 0\.001 s; it goes on"):
            last.result(0.001)
        assert not last.ended()
        first = last.result(60)
        assert last.ended()
        assert last.result() == first  # again


def test_what_waits_can_be_cancelled(folder):
    with Engine(workers="cpu") as engine:
        model = engine.add(slow_model(folder), warm_up=True)
        inputs = load.random_inputs(model)
        requests = [engine.request_async(model, inputs) for _ in range(6)]
        assert requests[-1].cancel()
        with pytest.raises(errors.CancelledError):
            requests[-1].result(60)
        requests[0].result(60)
        assert not requests[0].cancel()
        assert not requests[-1].cancel()


def test_requests_that_nobody_holds_end_all_the_same(engine, adding):
    before = engine.statistics()["models"][adding.index]["done"]
    for _ in range(50):
        engine.request_async(adding, np.zeros((1, 4), np.int32))
    gc.collect()
    deadline = time.monotonic() + 30
    while engine.statistics()["models"][adding.index]["done"] < before + 50:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.request_async(adding, np.zeros((1, 4), np.int32)).result(30)
    assert len(engine._running) <= 1


def test_an_objective_that_cannot_be_met_drops_the_request(folder):
    with Engine("least_slack", workers="cpu") as engine:
        model = engine.add(slow_model(folder), warm_up=True)
        with pytest.raises(errors.DeadlineExceededError):
            engine.request(model, load.random_inputs(model), slo=1e-4)
        engine.request(model, load.random_inputs(model), slo=60)


def test_too_many_requests_are_refused_and_none_is_lost(folder):
    with Engine(workers="cpu", queue_limit=2) as engine:
        model = engine.add(slow_model(folder), warm_up=True)
        inputs, requests, refused = load.random_inputs(model), [], 0
        for _ in range(12):
            try:
                requests.append(engine.request_async(model, inputs))
            except errors.QueueFullError:
                refused += 1
        assert refused
        assert all(request.result(60) for request in requests)


def test_a_bundle_from_memory(engine, folder):
    model = engine.add((folder / "residual.tfxlite").read_bytes())
    gc.collect()
    assert all(map(np.array_equal, engine.request(model, some(5)).values(), wanted(some(5))))


def test_a_worker_can_be_chosen(folder):
    with Engine(workers="cpu,cpu") as engine:
        model = engine.add(folder / "adding")
        for _ in range(5):
            engine.request(model, np.zeros((1, 4), np.int32), worker=1)
        assert [worker["runs"] for worker in engine.statistics()["workers"]] == [0, 5]
        with pytest.raises(errors.LiteError):
            engine.request(model, np.zeros((1, 4), np.int32), worker=7)


def pieces_that_begin(snapshot, job) -> list[int]:
    model = snapshot.models[job.model]
    return [index for index in range(model.num_pieces) if model.pieces[index].begin == job.unit]


def test_a_policy_may_be_a_function(folder):
    seen: list[int] = []

    def last_worker(snapshot):
        seen.append(snapshot.num_jobs)
        jobs = [snapshot.jobs[index] for index in range(snapshot.num_jobs)]
        return [
            (index, snapshot.num_workers - 1, pieces_that_begin(snapshot, job)[0]) for index, job in enumerate(jobs)
        ]

    with Engine(last_worker, workers="cpu,cpu") as engine:
        model = engine.add(folder / "residual.tfxlite")
        assert all(map(np.array_equal, engine.request(model, some(2)).values(), wanted(some(2))))
        assert sum(seen) >= 1
        assert engine.statistics()["workers"][0]["runs"] == 0


def test_what_a_policy_raises_comes_out_and_nothing_is_lost(folder):
    def broken(snapshot):
        raise ZeroDivisionError("no plan")

    with Engine(broken, workers="cpu") as engine:
        model = engine.add(folder / "adding")
        request = engine.request_async(model, np.zeros((1, 4), np.int32))
        with pytest.raises(ZeroDivisionError, match="no plan"):
            request.result(30)
        assert request.result(30)["y"].tolist() == [[1, 1, 1, 1]]
        assert engine.request(model, np.ones((1, 4), np.int32))["y"].tolist() == [[2, 2, 2, 2]]


def test_policies_by_name(folder):
    from tf_ext.lite import simulator

    for policy in simulator.policies():
        with Engine(policy, workers="cpu,cpu") as engine:
            model = engine.add(folder / "residual.tfxlite")
            requests = [engine.request_async(model, some(seed)) for seed in range(3)]
            for seed, request in enumerate(requests):
                assert all(map(np.array_equal, request.result(30).values(), wanted(some(seed)))), policy
    with pytest.raises(errors.NotFoundError, match="fastest"):
        Engine("fastest", workers="cpu")


def test_statistics_and_trace(folder, tmp_path):
    with Engine(workers="cpu,cpu", trace=True) as engine:
        model = engine.add(folder / "residual.tfxlite")
        for _ in range(4):
            engine.request(model, some())
        found = engine.statistics()
        engine.save_trace(tmp_path / "trace.json")
    assert [worker["processor"] for worker in found["workers"]] == ["cpu", "cpu"]
    assert sum(worker["runs"] for worker in found["workers"]) >= 4
    assert found["models"][0]["done"] == 4
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    assert sum(event.get("ph") == "X" for event in events) >= 4


def test_what_cannot_be_is_told_when_the_engine_is_made(folder, tmp_path):
    with pytest.raises(errors.LiteError, match="tpu@0"):
        Engine(workers="tpu@0").add(folder / "adding")
    with pytest.raises(errors.UnavailableError, match=r"none\.so"):
        Engine(workers="cpu", runtime=tmp_path / "none.so")
    with Engine(workers="cpu") as engine:
        with pytest.raises(errors.NotFoundError):
            engine.add(tmp_path / "none.tfxlite")
        (tmp_path / "bad.tfxlite").write_bytes(b"TFXLITE1" + bytes(100))
        with pytest.raises(errors.DataLossError):
            engine.add(tmp_path / "bad.tfxlite")


def test_a_closed_engine_says_so(folder):
    engine = Engine(workers="cpu")
    model = engine.add(folder / "adding")
    engine.close()
    engine.close()
    with pytest.raises(errors.InvalidArgumentError, match="the engine is closed"):
        engine.request(model, np.zeros((1, 4), np.int32))


def test_closing_waits_for_what_runs_in_other_threads(folder):
    engine = Engine(workers="cpu")
    model = engine.add(slow_model(folder), warm_up=True)
    ended: list[str] = []

    def ask() -> None:
        try:
            engine.request(model, load.random_inputs(model))
            ended.append("done")
        except errors.LiteError as error:
            ended.append(type(error).__name__)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.02)
    engine.close()
    thread.join(30)
    assert ended in (["done"], ["CancelledError"], ["InvalidArgumentError"])


def test_corrupted_bundles_never_end_the_process(folder):
    """In a process of its own, which must end by itself: the reader is C++."""
    code = f"""
import random
from tf_ext.lite import Engine, errors
import numpy as np
data = open({str(folder / "residual.tfxlite")!r}, "rb").read()
generator, kinds = random.Random(4), set()
length = int.from_bytes(data[8:16], "little") + 16
with Engine(workers="cpu") as engine:
    for turn in range(150):
        damaged = bytearray(data)
        for _ in range(generator.choice([1, 3, 20])):
            damaged[generator.randrange(8, length)] = generator.choice(b'0192-,:[]{{}}"ae. \\x00\\xff')
        if turn % 3 == 0:
            damaged = damaged[: generator.randrange(len(damaged))]
        try:
            model = engine.add(bytes(damaged))
            engine.request(model, [np.zeros(one.shape, one.type) for one in model.inputs])
            kinds.add("ran")
        except errors.LiteError as error:
            kinds.add(type(error).__name__)
print(sorted(kinds))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "DataLossError" in done.stdout


def test_importing_takes_no_tensorflow():
    code = (
        "import sys, tf_ext.lite.engine, tf_ext.lite.bundle, tf_ext.lite.delegate; print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["face_detection_sparse", "iris_landmark", "selfie_segmentation", "mobilenet_v2_int8"])
def test_real_models_equal_plain_litert(tmp_path, name):
    if name not in model_zoo.present():
        pytest.skip(f"python -m tf_ext.lite.model_zoo {name}")
    path = model_zoo.path(name)
    bundle = make_bundle(path, tmp_path / name, parts=2, runs=3)
    with Engine(workers="cpu,cpu") as engine:
        model = engine.add(bundle)
        inputs = load.random_inputs(model)
        plain = _runners.cpu(Model(path).data).run(inputs)
        for request in [engine.request_async(model, inputs) for _ in range(4)]:
            assert all(map(np.array_equal, request.result(60).values(), plain))


def test_a_model_with_a_loop_runs_as_a_whole(engine, tmp_path):
    found = make_bundle(tiny.looping(), tmp_path / "loop.tfxlite", parts=3, runs=3, cache=False)
    assert [piece.units for piece in found.plan.pieces] == [(0, 1)]
    model = engine.add(found)
    for start, end in ((3, 11), (10, 11), (42, 43)):
        (made,) = engine.request(model, np.array([start], np.int32)).values()
        assert made.tolist() == [end]

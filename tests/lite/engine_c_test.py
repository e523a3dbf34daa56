"""The C interface itself, called as an app in C would: wrong arguments, memory, callbacks, descriptors, options."""

import ctypes
import json
import os
import threading
from ctypes import byref, c_int32, c_int64, c_void_p

import numpy as np
import pytest

from tests.lite import faults
from tests.lite.faults import SIZE, Faults
from tf_ext.lite import _library
from tf_ext.lite._arrays import aligned
from tf_ext.lite._library import Buffer, JobCallback, RequestOptions, Tensor

pytestmark = pytest.mark.skipif(_library.find() is None, reason=f"the library is not built: {_library.REPAIR}")

OK, INVALID, NOT_FOUND, DATA_LOSS, UNAVAILABLE, QUEUE_FULL, DEADLINE, CANCELLED, TIMEOUT = range(9)
INPUT = np.arange(SIZE, dtype=np.float32)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    return faults.build_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def fault(runtime):
    made = Faults(runtime)
    yield made
    made.reset()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return faults.write_bundle(tmp_path_factory.mktemp("bundle") / "sum")


class App:
    """An engine with one model, by its handle."""

    def __init__(self, **options):
        self.lib = _library.load()
        self.handle = c_void_p()
        keys, values = zip(*options.items(), strict=True)
        status = self.lib.TfExtLiteEngineCreate(strings(*keys), strings(*values), len(options), byref(self.handle))
        self.status, self.error = status, self.lib.TfExtLiteLastError().decode()
        self.model = -1

    def add(self, path):
        model = c_int32(-1)
        status = self.lib.TfExtLiteAddModel(self.handle, str(path).encode(), byref(model))
        self.model = model.value
        return status

    def told(self):
        return self.lib.TfExtLiteLastError().decode()

    def text(self, made):
        try:
            return json.loads(ctypes.string_at(made))
        finally:
            self.lib.TfExtLiteFree(made)

    def start(self, buffers, *, callback=None, options=None):
        job = c_int64(-1)
        call = callback if callback is not None else ctypes.cast(None, JobCallback)
        reference = None if options is None else byref(options)
        status = self.lib.TfExtLiteRequestAsync(
            self.handle, self.model, buffers.ins, 1, buffers.outs, 1, reference, call, None, byref(job)
        )
        return status, job.value

    def close(self):
        self.lib.TfExtLiteEngineDelete(self.handle)
        self.handle = c_void_p()


class Buffers:
    """An input and an output, `shift` floats behind an aligned address."""

    def __init__(self, shift=0):
        self.input = aligned((SIZE + shift,), np.float32)[shift:]
        self.output = aligned((SIZE + shift,), np.float32)[shift:]
        self.input[:], self.output[:] = INPUT, 0
        self.ins, self.outs = (Buffer * 1)(of(self.input)), (Buffer * 1)(of(self.output))

    def is_done(self):
        return np.array_equal(self.output, INPUT + 3)


def of(array):
    return Buffer(array.ctypes.data, array.nbytes)


def strings(*texts):
    return (ctypes.c_char_p * len(texts))(*(None if text is None else str(text).encode() for text in texts))


def how(**fields):
    return RequestOptions(**{"size": ctypes.sizeof(RequestOptions), "worker": -1, **fields})


@pytest.fixture
def app(fault, bundle):
    made = App(runtime=fault.runtime, workers="cpu,cpu")
    assert made.status == OK, made.error
    assert made.add(bundle) == OK
    yield made
    if made.handle:
        made.close()


def test_a_request(app):
    for shift in (0, 1, 5):
        buffers = Buffers(shift)
        assert app.lib.TfExtLiteRequest(app.handle, app.model, buffers.ins, 1, buffers.outs, 1, None) == OK
        assert buffers.is_done()
        assert np.array_equal(buffers.input, INPUT)


def test_what_a_model_takes_and_gives(app):
    tensor = Tensor()
    assert app.lib.TfExtLiteInputCount(app.handle, app.model) == 1
    assert app.lib.TfExtLiteOutputCount(app.handle, app.model) == 1
    assert app.lib.TfExtLiteOutput(app.handle, app.model, 0, byref(tensor)) == OK
    assert (tensor.name, tensor.type, tensor.rank, tensor.shape[0], tensor.bytes) == (b"t2", b"float32", 1, 16, 64)
    assert app.lib.TfExtLiteInputCount(app.handle, 7) == -1
    assert app.lib.TfExtLiteInput(app.handle, 7, 0, byref(tensor)) == NOT_FOUND
    assert app.lib.TfExtLiteInput(app.handle, app.model, 1, byref(tensor)) == NOT_FOUND
    assert "has 1 inputs, from 0; there is no 1" in app.told()


def test_null_pointers_are_refused(app, bundle):
    lib, model, buffers = app.lib, app.model, Buffers()
    some = c_int32()
    for status in (
        lib.TfExtLiteEngineCreate(None, None, 1, byref(c_void_p())),
        lib.TfExtLiteEngineCreate(None, None, 0, None),
        lib.TfExtLiteAddModel(None, str(bundle).encode(), byref(some)),
        lib.TfExtLiteAddModel(app.handle, None, byref(some)),
        lib.TfExtLiteAddModel(app.handle, str(bundle).encode(), None),
        lib.TfExtLiteAddModelFromMemory(app.handle, None, 10, byref(some)),
        lib.TfExtLiteAddModelFromDescriptor(None, 0, 0, 1, byref(some)),
        lib.TfExtLiteWarmUp(None, 0),
        lib.TfExtLiteRequest(None, model, buffers.ins, 1, buffers.outs, 1, None),
        lib.TfExtLiteRequest(app.handle, model, None, 1, buffers.outs, 1, None),
        lib.TfExtLiteRequestAsync(
            app.handle, model, buffers.ins, 1, buffers.outs, 1, None, ctypes.cast(None, JobCallback), None, None
        ),
        lib.TfExtLiteWait(None, 0, 0),
        lib.TfExtLiteCancel(None, 0),
        lib.TfExtLiteSetPolicy(None, b"fixed"),
    ):
        assert status == INVALID
        assert app.told()
    assert lib.TfExtLiteInputCount(None, 0) == -1
    assert lib.TfExtLiteStatistics(None) is None
    lib.TfExtLiteEngineDelete(None)
    lib.TfExtLiteSetTracing(None, 1)
    lib.TfExtLiteFree(None)
    null = (Buffer * 1)(Buffer(None, 64))
    assert lib.TfExtLiteRequest(app.handle, model, null, 1, buffers.outs, 1, None) == INVALID
    assert "a null address" in app.told()


def test_buffers_that_do_not_fit_are_told(app):
    buffers = Buffers()
    call = app.lib.TfExtLiteRequest
    assert call(app.handle, app.model, buffers.ins, 0, buffers.outs, 1, None) == INVALID
    assert app.told() == "Model 'sum' has 1 inputs, but 0 came."
    buffers.outs[0].bytes = 60
    assert call(app.handle, app.model, buffers.ins, 1, buffers.outs, 1, None) == INVALID
    assert "output 0 ('t2') of model 'sum' is expected to have 64 bytes, but 60 came." in app.told()
    for model in (-1, 1, 2**31 - 1):
        assert call(app.handle, model, buffers.ins, 1, buffers.outs, 1, None) == NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"size": 8}, INVALID, "the caller was built for another version"),
        ({"slo_us": -1}, INVALID, "slo_us is expected to be at least 0"),
        ({"worker": 2}, NOT_FOUND, "There is no worker 2; there are 2, from 0. -1 means any."),
        ({"worker": -2}, NOT_FOUND, "There is no worker -2"),
        ({"slo_us": 2**63 - 1}, OK, ""),
        ({"priority": -(2**31)}, OK, ""),
    ],
)
def test_options_of_a_request(app, fields, status, said):
    buffers, options = Buffers(), how(**fields)
    found = app.lib.TfExtLiteRequest(app.handle, app.model, buffers.ins, 1, buffers.outs, 1, byref(options))
    assert found == status
    assert status == OK or said in app.told()
    assert buffers.is_done() == (status == OK)


def test_a_job_is_told_once(app):
    buffers = Buffers()
    status, job = app.start(buffers)
    assert status == OK
    assert app.lib.TfExtLiteWait(app.handle, job, -1) == OK
    assert buffers.is_done()
    assert app.lib.TfExtLiteWait(app.handle, job, -1) == NOT_FOUND
    assert app.lib.TfExtLiteCancel(app.handle, job) == NOT_FOUND
    assert app.lib.TfExtLiteWait(app.handle, 10**12, 0) == NOT_FOUND


def test_callbacks_are_called_once_and_see_the_outputs(app):
    lock, seen, all_done = threading.Lock(), [], threading.Event()
    many = [Buffers() for _ in range(50)]

    def called(_, job, status):
        with lock:
            seen.append((job, status))
            if len(seen) == len(many):
                all_done.set()

    callback = JobCallback(called)
    jobs = [app.start(buffers, callback=callback)[1] for buffers in many]
    assert all_done.wait(30)
    assert sorted(seen) == [(job, OK) for job in sorted(jobs)]
    assert all(buffers.is_done() for buffers in many)
    assert app.lib.TfExtLiteWait(app.handle, jobs[0], 0) == NOT_FOUND


def test_a_callback_neither_waits_nor_deletes(fault, bundle):
    """On the only thread there is, neither would ever end."""
    app = App(runtime=fault.runtime, workers="cpu")
    app.add(bundle)
    first, others = Buffers(), [Buffers() for _ in range(4)]
    found, jobs, sent, done = [], [], threading.Event(), threading.Event()

    def called(_, job, status):
        sent.wait(30)
        found.append(app.lib.TfExtLiteWait(app.handle, jobs[-1], -1))
        found.append(app.told())
        app.lib.TfExtLiteEngineDelete(app.handle)
        found.append(app.told())
        done.set()

    callback = JobCallback(called)
    app.start(first, callback=callback)
    jobs.extend(app.start(buffers)[1] for buffers in others)
    sent.set()
    assert done.wait(30)
    assert found[0] == INVALID
    assert "A callback cannot wait" in found[1]
    assert "cannot be deleted by a callback" in found[2]
    assert [app.lib.TfExtLiteWait(app.handle, job, -1) for job in jobs] == [OK] * 4
    app.close()


def test_a_wait_has_a_limit_and_a_deletion_ends_it(app, fault):
    fault["run_us"] = 50_000
    many = [Buffers() for _ in range(20)]
    jobs = [app.start(buffers)[1] for buffers in many]
    assert app.lib.TfExtLiteWait(app.handle, jobs[-1], 0) == TIMEOUT
    assert app.lib.TfExtLiteWait(app.handle, jobs[-1], 1000) == TIMEOUT
    ended, begun = [], threading.Barrier(5)

    def wait(job):
        begun.wait()
        ended.append(app.lib.TfExtLiteWait(app.handle, job, -1))

    threads = [threading.Thread(target=wait, args=(job,)) for job in jobs[-4:]]
    for thread in threads:
        thread.start()
    begun.wait()
    # A call may not begin once the engine is deleted.
    threading.Event().wait(0.1)
    app.close()
    for thread in threads:
        thread.join(30)
    assert ended == [CANCELLED] * 4


def test_errors_are_those_of_the_thread(app):
    assert app.lib.TfExtLiteWait(app.handle, 99, 0) == NOT_FOUND
    other = []
    thread = threading.Thread(target=lambda: other.append(app.told()))
    thread.start()
    thread.join()
    assert other == [""]
    assert "no request 99" in app.told()


@pytest.mark.parametrize("before", [0, 1, 100, 5000])
def test_a_bundle_within_an_open_file(app, tmp_path, bundle, before):
    packed = faults.pack(bundle)
    (tmp_path / "assets").write_bytes(b"\xa5" * before + packed + b"\xa5" * 300)
    model, buffers = c_int32(), Buffers()
    fd = os.open(tmp_path / "assets", os.O_RDONLY)
    add = app.lib.TfExtLiteAddModelFromDescriptor
    try:
        assert add(app.handle, fd, before, len(packed), byref(model)) == OK
        for offset, length in ((-1, 10), (0, -2), (before, 10**6), (10**6, 1), (0, 0), (2**62, 2**62)):
            assert add(app.handle, fd, offset, length, byref(c_int32())) in (DATA_LOSS, OK)
            if (offset, length) != (0, -2):
                assert "expected" in app.told()
        assert add(app.handle, fd, before, len(packed) - 60, byref(c_int32())) == DATA_LOSS
        assert "cut short" in app.told()
    finally:
        os.close(fd)
    assert add(app.handle, 10_000, 0, 100, byref(c_int32())) == DATA_LOSS
    assert app.lib.TfExtLiteRequest(app.handle, model.value, buffers.ins, 1, buffers.outs, 1, None) == OK
    assert buffers.is_done()


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"gpu_precision": "half"}, INVALID, "'gpu_precision' is expected to be float32 or float16, but is 'half'"),
        ({"hang_ms": "soon"}, INVALID, "'hang_ms' is expected to be a number of at least 1, but is 'soon'"),
        ({"queue_limit": "99999999999999999999"}, INVALID, "'queue_limit' is expected to be a number"),
        ({"trace": "yes"}, INVALID, "'trace' is expected to be 0 or 1, but is 'yes'"),
        (
            {"cache_dir": "/proc/none"},
            INVALID,
            "cache_dir is expected to be a folder to write to, but /proc/none is none",
        ),
        ({"workers": "cpu@0+x"}, INVALID, "names core 'x'"),
        ({"workers": ",".join(["cpu"] * 65)}, INVALID, "at most 64 workers"),
        ({"polcy": "fixed"}, INVALID, "there is no option 'polcy'; there are runtime, workers, policy"),
    ],
)
def test_wrong_options_are_told(fault, options, status, said):
    app = App(runtime=fault.runtime, **options)
    assert app.status == status
    assert said in app.error
    assert app.handle.value is None


def test_tracing_begins_and_ends(app):
    buffers = Buffers()

    def once():
        assert app.lib.TfExtLiteRequest(app.handle, app.model, buffers.ins, 1, buffers.outs, 1, None) == OK

    def spans():
        events = app.text(app.lib.TfExtLiteTrace(app.handle))["traceEvents"]
        return [event for event in events if event["ph"] == "X"]

    once()
    assert spans() == []
    app.lib.TfExtLiteSetTracing(app.handle, 1)
    once()
    (span,) = spans()
    assert span["name"] == "sum 0-2"
    assert span["dur"] >= 0
    app.lib.TfExtLiteSetTracing(app.handle, 0)
    once()
    assert len(spans()) == 1


def test_statistics_tell_how_pieces_run(fault, bundle):
    cores = sorted(os.sched_getaffinity(0))[:2]
    app = App(runtime=fault.runtime, workers="cpu@" + "+".join(map(str, cores)))
    assert app.add(bundle) == OK
    assert app.lib.TfExtLiteWarmUp(app.handle, app.model) == OK
    (worker,) = app.text(app.lib.TfExtLiteStatistics(app.handle))["workers"]
    (piece,) = worker["pieces"]
    assert (piece["threads"], piece["accelerator"], piece["precision"]) == (len(cores), "cpu", "as in the model")
    assert piece["units"] == [0, 2]
    app.close()


def test_a_piece_that_does_not_load_is_done_without(app, fault):
    """What cannot be loaded on a worker is not tried there with every request."""
    fault["no_compile"] = 1
    buffers = Buffers()
    for _ in range(5):
        assert app.lib.TfExtLiteRequest(app.handle, app.model, buffers.ins, 1, buffers.outs, 1, None) == OK
    assert buffers.is_done()
    found = app.text(app.lib.TfExtLiteStatistics(app.handle))["workers"]
    assert sum(worker["failed"] for worker in found) == 1
    assert sum(len(worker["refused"]) for worker in found) == 1


def test_a_model_that_loads_nowhere_says_why_each_time(app, fault):
    fault["no_compile"] = 1000
    buffers = Buffers()
    for _ in range(3):
        assert app.lib.TfExtLiteRequest(app.handle, app.model, buffers.ins, 1, buffers.outs, 1, None) == UNAVAILABLE
        assert "LiteRT could not compile a piece: compilation failed" in app.told()
    assert fault["runs"] == 0


def test_the_version_is_the_package_s():
    import tf_ext

    library = _library.load()
    assert library.TfExtLiteVersion().decode() == tf_ext.__version__
    assert library.TfExtLiteAbi() == _library.ABI

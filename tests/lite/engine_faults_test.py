"""Processors that hang, fail or cannot compile: no request is lost, no caller waits for ever."""

import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from tests.lite import faults
from tests.lite.faults import SIZE, Faults, write_bundle
from tf_ext import lite
from tf_ext.lite import errors

INPUT = np.arange(SIZE, dtype=np.float32)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    return faults.build_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def fault(runtime):
    made = Faults(runtime)
    yield made
    made.reset()


@pytest.fixture
def bundle(tmp_path):
    return write_bundle(tmp_path / "sum")


def start(fault, **options):
    options.setdefault("workers", "cpu,cpu")
    return lite.Engine(runtime=fault.runtime, **options)


def workers_of(engine):
    return engine.statistics()["workers"]


def test_a_run_gives_the_sum(fault, bundle):
    with start(fault) as engine:
        assert np.array_equal(engine.request(engine.add(bundle), INPUT)["t2"], INPUT + 3)
    assert fault["objects"] == 0


def test_what_hangs_on_one_worker_is_done_by_another(fault, bundle):
    with start(fault, hang_ms=20) as engine:
        model = engine.add(bundle, warm_up=True)
        fault["hangs"], fault["hang_ms"] = 1, 600
        out = np.zeros(SIZE, np.float32)
        begin = time.monotonic()
        engine.request(model, INPUT, out=out)
        assert time.monotonic() - begin < 0.5
        assert np.array_equal(out, INPUT + 3)
        assert sorted(worker["lost"] for worker in workers_of(engine)) == [False, True]
        deadline = time.monotonic() + 10
        while any(worker["lost"] for worker in workers_of(engine)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        # What hung has written its result by now, and not to the caller.
        assert np.array_equal(out, INPUT + 3)
        for worker in (0, 1):
            assert np.array_equal(engine.request(model, INPUT, worker=worker)["t2"], INPUT + 3)
        assert sum(worker["times_lost"] for worker in workers_of(engine)) == 1


def test_where_all_workers_hang_the_request_fails_and_says_why(fault, bundle):
    with start(fault, hang_ms=20) as engine:
        model = engine.add(bundle, warm_up=True)
        fault["hangs"], fault["hang_ms"] = 2, 300
        with pytest.raises(errors.UnavailableError, match=r"no worker is left .* did not end a piece of 'sum' within"):
            engine.request(model, INPUT)
        time.sleep(0.5)
        assert np.array_equal(engine.request(model, INPUT)["t2"], INPUT + 3)


def test_an_engine_ends_while_a_worker_hangs(fault, bundle):
    engine = start(fault, hang_ms=20)
    model = engine.add(bundle, warm_up=True)
    fault["hangs"], fault["hang_ms"] = 1, 1500
    request = engine.request_async(model, INPUT, worker=0)
    time.sleep(0.05)
    begin = time.monotonic()
    engine.close()
    assert time.monotonic() - begin < 1.0
    with pytest.raises(errors.LiteError):
        request.result(timeout=1)
    time.sleep(1.6)  # the thread that hung comes back to an engine that is gone


def test_a_worker_that_hangs_comes_back_after_the_library_was_unloaded(runtime, bundle):
    """As an interpreter does with a delegate's."""
    code = f"""
        import _ctypes, ctypes, threading, time
        from tests.lite.engine_c_test import App, Buffers, OK
        from tests.lite.faults import Faults
        fault = Faults({str(runtime)!r})
        apps = []

        def use():
            # In a thread that ends: what it leaves to be destroyed with it keeps the library loaded.
            app = App(runtime=fault.runtime, workers="cpu", hang_ms="20")
            assert app.add({str(bundle)!r}) == OK
            assert app.lib.TfExtLiteWarmUp(app.handle, app.model) == OK
            fault["hangs"], fault["hang_ms"] = 1, 700
            assert app.start(Buffers())[0] == OK
            time.sleep(0.1)
            app.close()
            apps.append(app)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        _ctypes.dlclose(apps[0].lib._handle)
        time.sleep(1)
        print(fault["objects"])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    root = faults.NATIVE.parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"


def test_a_run_that_fails_is_done_elsewhere(fault, bundle):
    with start(fault) as engine:
        model = engine.add(bundle, warm_up=True)
        fault["fails"] = 1
        assert np.array_equal(engine.request(model, INPUT)["t2"], INPUT + 3)
        assert sum(worker["failed"] for worker in workers_of(engine)) == 1


def test_a_run_that_fails_everywhere_is_told(fault, bundle):
    with start(fault) as engine:
        model = engine.add(bundle, warm_up=True)
        fault["fails"] = 1000
        with pytest.raises(errors.UnavailableError, match="LiteRT could not run a piece: failure of the runtime"):
            engine.request(model, INPUT)
        fault["fails"] = 0
        assert np.array_equal(engine.request(model, INPUT)["t2"], INPUT + 3)


def test_a_piece_that_does_not_compile_is_told_with_its_reason(fault, bundle):
    with start(fault) as engine:
        model = engine.add(bundle)
        fault["no_compile"] = 1000
        with pytest.raises(
            errors.UnavailableError, match="cannot run a piece of 'sum': LiteRT could not compile a piece"
        ):
            engine.request(model, INPUT)
        assert workers_of(engine)[0]["refused"]


def test_more_requests_than_may_wait_are_refused_and_those_before_are_done(fault, bundle):
    with start(fault, workers="cpu", queue_limit=3, policy="adaptive") as engine:
        model = engine.add(bundle, warm_up=True)
        fault["run_us"] = 50_000
        requests = []

        def send() -> None:
            for _ in range(20):
                requests.append(engine.request_async(model, INPUT))

        with pytest.raises(errors.QueueFullError, match="queue_limit"):
            send()
        assert len(requests) >= 3
        for request in requests:
            assert np.array_equal(request.result(timeout=10)["t2"], INPUT + 3)


def test_a_deadline_that_cannot_be_met_is_told(fault, bundle):
    with start(fault, workers="cpu", policy="least_slack") as engine:
        model = engine.add(bundle, warm_up=True)
        fault["run_us"] = 100_000
        first = engine.request_async(model, INPUT)
        with pytest.raises(errors.DeadlineExceededError, match="service-level objective"):
            engine.request(model, INPUT, slo=0.02)
        first.result(timeout=10)


def test_a_cancelled_request_ends(fault, bundle):
    with start(fault, workers="cpu") as engine:
        model = engine.add(bundle, warm_up=True)
        fault["run_us"] = 100_000
        first, second = engine.request_async(model, INPUT), engine.request_async(model, INPUT)
        second.cancel()
        with pytest.raises(errors.CancelledError):
            second.result(timeout=10)
        assert np.array_equal(first.result(timeout=10)["t2"], INPUT + 3)


def test_workers_that_the_bundle_was_not_made_for(fault, bundle):
    with (
        start(fault, workers="gpu") as engine,
        pytest.raises(errors.UnavailableError, match="made for the processors cpu, and the engine's workers gpu"),
    ):
        engine.add(bundle)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": "cpu@999"}, r"names core '999', which this process may not use; it may use \d"),
        ({"workers": ",cpu"}, "expected to be such as"),
        ({"queue_limit": 0}, "'queue_limit' is expected to be a number of at least 1, but is '0'"),
        ({"policy": "fastest"}, "no policy 'fastest'; there are"),
    ],
)
def test_wrong_options_are_named(fault, options, said):
    with pytest.raises(errors.LiteError, match=said):
        start(fault, **options)


def test_a_library_that_is_not_litert(tmp_path, bundle):
    empty = tmp_path / "empty.so"
    (tmp_path / "empty.c").write_text("int nothing;")
    subprocess.run([faults.compiler("gcc"), "-shared", "-o", str(empty), str(tmp_path / "empty.c")], check=True)
    with pytest.raises(errors.UnavailableError, match="has no LiteRtCreateEnvironment, .*pip install"):
        lite.Engine(runtime=empty)
    with pytest.raises(errors.UnavailableError, match="cannot be loaded .*pip install"):
        lite.Engine(runtime=tmp_path / "absent.so")


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def sanitized(request, tmp_path_factory):
    """Compiles a program of `native` together with the library, under a sanitizer."""
    root = faults.NATIVE.parents[2]
    sources = root / "custom_ops" / "lite_delegate"
    if not sources.is_dir():
        pytest.skip("the C++ sources are not here")
    folder = tmp_path_factory.mktemp("sanitized")
    flags = [faults.compiler("g++"), "-std=c++17", "-g", "-O1", "-fPIC", f"-fsanitize={request.param}", f"-I{root}"]
    library = folder / "lite.so"
    files = map(str, (*sources.glob("*.cc"), *sources.glob("policies/*.cc")))
    subprocess.run([*flags, "-shared", *files, "-o", str(library)], check=True, timeout=1200)

    def build(name):
        program = folder / name
        command = [*flags, str(faults.NATIVE / f"{name}.cc"), str(library), "-o", str(program), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, timeout=300)
        return program

    return build


@pytest.mark.slow
def test_many_threads_under_a_sanitizer(sanitized, runtime, bundle):
    command = [str(sanitized("stress")), str(runtime), str(bundle), "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_damaged_bundles_under_a_sanitizer(sanitized, runtime, bundle, tmp_path):
    (tmp_path / "packed").write_bytes(faults.pack(bundle))
    command = [str(sanitized("fuzz_bundle")), str(runtime), str(tmp_path / "packed"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

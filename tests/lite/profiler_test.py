"""Measurements: their percentiles, and the cache that keeps them."""

import json
import os

import pytest

from tests.lite import tiny
from tf_ext.lite import _runners, errors, profiler

pytestmark = pytest.mark.usefixtures("litert")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(profiler.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "profiles"


@pytest.fixture
def clock(monkeypatch):
    """Each look at the clock is one of the times that a test has put there."""
    times: list[float] = []
    monkeypatch.setattr("tf_ext.lite.profiler.time.perf_counter", lambda: times.pop(0))
    return times


def test_percentiles(monkeypatch):
    taken = [float(i) for i in range(100, 0, -1)]
    made = profiler._summary("cpu", taken)
    assert (made.runs, made.minimum_us, made.median_us, made.p90_us, made.p99_us) == (100, 1, 50, 90, 99)
    assert made.mean_us == 50.5
    one = profiler._summary("cpu", [7.0])
    assert (one.minimum_us, one.median_us, one.p99_us) == (7, 7, 7)


def test_warm_up_is_not_measured_and_runs_are(clock):
    clock += [0.0] + [0.0, 1e-3] + [0.0, 3e-3]
    calls: list[None] = []
    made = profiler.measure("cpu", lambda: calls.append(None), warmup=3, runs=2, seconds=9)
    assert len(calls) == 5
    assert (made.runs, made.mean_us) == (2, 2000)


def test_measuring_ends_in_time_but_not_before_three_runs(clock):
    clock += [0.0] + [0.0, 5.0] * 3 + [15.0]
    made = profiler.measure("cpu", lambda: None, warmup=0, runs=100, seconds=1)
    assert made.runs == 3


@pytest.mark.parametrize("wrong", [{"warmup": -1}, {"runs": 0}, {"seconds": 0.0}, {"seconds": float("nan")}])
def test_numbers_out_of_range(wrong):
    with pytest.raises(errors.InvalidArgumentError, match="expected warmup >= 0, runs >= 1, seconds > 0"):
        profiler.measure("cpu", lambda: None, **{"warmup": 0, "runs": 1, "seconds": 1.0, **wrong})


def test_a_model_is_measured_once(cache, monkeypatch):
    data = tiny.residual(depth=1)
    first = profiler.profile(data, runs=3)
    assert first.minimum_us > 0
    assert first.runs == 3
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(_runners, "cpu", lambda *_: pytest.fail("measured again"))
    assert profiler.profile(data, runs=3) == first


def test_another_model_number_or_version_is_measured_anew(cache, monkeypatch):
    data = tiny.residual(depth=1)
    profiler.profile(data, runs=3)
    profiler.profile(data, runs=4)
    profiler.profile(tiny.residual(depth=2), runs=3)
    monkeypatch.setattr(_runners, "runtime_version", lambda: "9.9")
    profiler.profile(data, runs=3)
    assert len(list(cache.iterdir())) == 4


def test_without_the_cache_nothing_is_kept(cache):
    profiler.profile(tiny.residual(depth=1), runs=3, cache=False)
    assert not cache.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"median_us": 1}', '{"median_us": "x"}', "null"])
def test_a_damaged_cache_is_written_anew(cache, content):
    data = tiny.residual(depth=1)
    profiler.profile(data, runs=3)
    (file,) = cache.iterdir()
    file.write_text(content)
    made = profiler.profile(data, runs=3)
    assert json.loads(file.read_text())["median_us"] == made.median_us
    assert [one.name for one in cache.iterdir()] == [file.name]  # nothing half written is left


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(profiler.CACHE_VARIABLE, str(tmp_path / "file"))
    assert profiler.profile(tiny.residual(depth=1), runs=3).runs == 3


def test_the_core_is_left_as_it_was():
    before = os.sched_getaffinity(0)
    core = min(before)
    with _runners.pinned(core):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
    with pytest.raises(errors.InvalidArgumentError, match="expected one of the cores"), _runners.pinned(10**4):
        pass
    assert os.sched_getaffinity(0) == before

import pathlib
import time
from collections.abc import Callable

import pytest

from benchmarks import harness
from benchmarks.harness import Timing


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the clock: a call tells how many seconds it took. Returns the order of the calls."""
    order: list[str] = []

    def clock(call: Callable[[], tuple[str, float]]) -> tuple[float, float]:
        name, seconds = call()
        order.append(name)
        return seconds, seconds / 2

    monkeypatch.setattr(harness, "clock", clock)
    return order


def test_alternate_runs_all_in_turn_and_drops_the_slow_from_later_rounds(scripted: list[str]) -> None:
    timing = harness.alternate({"fast": lambda: ("fast", 1.0), "slow": lambda: ("slow", 20.0)}, 5, 30.0, 1)
    assert scripted == ["fast", "slow"] * 3 + ["fast"] * 3
    assert timing["slow"] == Timing((20.0, 20.0), (10.0, 10.0))
    assert timing["fast"].runs == 5


def test_a_first_run_longer_than_its_share_counts(scripted: list[str]) -> None:
    assert harness.alternate({"slow": lambda: ("slow", 20.0)}, 5, 10.0, 1)["slow"].runs == 1
    assert scripted == ["slow"]
    assert harness.alternate({"slow": lambda: ("slow", 20.0)}, 5, 10.0, 3)["slow"].runs == 3
    assert len(scripted) == 1 + 3


def test_the_clock_tells_waiting_from_working() -> None:
    wall, cpu = harness.clock(lambda: time.sleep(0.05))
    assert wall >= 0.05 > cpu


def test_a_failing_implementation_is_left_out_where_that_is_asked_for() -> None:
    calls = {"good": lambda: 1, "bad": lambda: 1 // 0}
    assert list(harness.alternate(calls, 1, tolerant=True)) == ["good"]
    with pytest.raises(ZeroDivisionError):
        harness.alternate(calls, 1)


def test_ratios_pair_runs_of_one_round() -> None:
    over, under = Timing((2.0, 9.0, 8.0), (4.0, 4.0, 4.0)), Timing((1.0, 3.0), (2.0, 1.0))
    assert harness.ratios(over, under) == [2.0, 3.0]
    assert harness.ratios(over, under, "cpu") == [2.0, 4.0]


def test_spread_is_the_distance_of_the_quartiles_over_the_median() -> None:
    assert harness.spread([1.0, 2.0]) is None
    assert harness.spread([1.0, 2.0, 3.0]) == 1.0
    assert harness.spread([5.0] * 4) == 0.0


def test_records_survive_a_line_cut_short(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "lines"
    harness.emit({"value": 1.23456789, "limit": float("inf"), "runs": 3}, out)
    with out.open("a") as file:
        file.write('{"value": 1')
    assert harness.read(out) == [{"value": 1.235, "limit": None, "runs": 3}]
    assert capsys.readouterr().out == '{"value": 1.235, "limit": null, "runs": 3}\n'
    assert harness.read(tmp_path / "absent") == []


def test_peak_memory_is_at_least_the_present() -> None:
    assert harness.peak_memory() >= 0.9 * harness.memory() > 1e6


def test_in_child_returns_the_last_object(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "child.py").write_text(
        "import sys\nprint('noise')\nprint('{\"a\": %s}' % sys.argv[1])\nsys.exit(int(sys.argv[2]))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert harness.in_child("child", ["7", "0"]) == {"a": 7}
    with pytest.raises(RuntimeError, match="exit status 3"):
        harness.in_child("child", ["7", "3"])

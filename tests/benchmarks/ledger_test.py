import pathlib
from collections.abc import Callable

import pytest

from benchmarks import harness, ledger
from benchmarks.harness import UnavailableError
from benchmarks.ledger import Cell, Task


def _task(bar: int, name: str, measure: Callable[[], Cell]) -> Task:
    return Task(bar, (name,), lambda smoke: [measure()])


def _lines(capsys: pytest.CaptureFixture[str], path: pathlib.Path) -> dict[str, dict[str, object]]:
    path.write_text(capsys.readouterr().out)
    return {f"{line['bar']}/{line['cell']}": line for line in harness.read(path)}


def test_limits_hold_at_their_value() -> None:
    assert ledger.at_most(1, "c", [1.0, 2.0, 9.0], 2.0, "x").holds
    assert not ledger.at_most(1, "c", [1.0, 2.1, 9.0], 2.0, "x").holds
    assert ledger.at_least(1, "c", [5.0], 5.0, "x").holds
    assert not ledger.at_least(1, "c", [4.9], 5.0, "x").holds
    assert not ledger.at_most(1, "c", [float("nan")], 5.0, "x").holds


def test_a_bar_holds_only_if_every_cell_does(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    def absent() -> Cell:
        raise UnavailableError("not installed")

    def broken() -> Cell:
        raise ValueError("in two lines:\n  broken\n")

    tasks = [
        _task(1, "good", lambda: ledger.at_most(1, "good", [1.0], 2.0, "x")),
        _task(2, "good", lambda: ledger.at_most(2, "good", [1.0], 2.0, "x")),
        _task(2, "absent", absent),
        _task(3, "broken", broken),
    ]
    assert not ledger.run(tasks)
    lines = _lines(capsys, tmp_path / "lines")
    assert [lines[f"{bar}/all"]["holds"] for bar in (1, 2, 3)] == [True, None, False]
    assert lines["2/absent"]["note"] == "not installed"
    assert lines["2/absent"]["holds"] is None
    assert lines["3/broken"]["note"] == "ValueError: broken"
    assert ledger.run(tasks[:3])


def test_a_second_run_measures_only_what_is_left(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    ran: list[str] = []

    def measure(name: str) -> Cell:
        ran.append(name)
        return ledger.at_most(1, name, [1.0], 2.0, "x")

    tasks = [_task(1, name, lambda name=name: measure(name)) for name in "ab"]  # type: ignore[misc]
    assert ledger.run(tasks[:1], out)
    assert ledger.run(tasks, out, budget_s=-1.0)
    assert ran == ["a"]
    assert _lines(capsys, tmp_path / "lines")["1/all"]["holds"] is None
    assert ledger.run(tasks, out)
    assert ran == ["a", "b"]
    assert _lines(capsys, tmp_path / "lines")["1/all"]["holds"] is True
    assert ledger.run(tasks, out, smoke=True)
    assert ran == ["a", "b", "a", "b"]


def test_a_task_that_leaves_a_cell_out_is_told(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.run([Task(1, ("a", "b"), lambda smoke: [ledger.at_most(1, "a", [1.0], 2.0, "x")])])
    assert _lines(capsys, tmp_path / "lines")["1/b"]["note"] == "no result"

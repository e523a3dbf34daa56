"""What all our oracles have in common: locks, hooks, failures, and what saving costs."""

import os
import threading

import keras_tuner
import pytest

from tests.tuner.oracles.driver import end, exact, placed, search, space
from tf_ext.tuner.oracles import (
    GridSearchOracle,
    RandomSearchOracle,
    StageOracle,
    SuccessiveHalvingOracle,
    _export,
    _files,
    _journal,
)

STOCK = keras_tuner.oracles


def randomly(directory, name="search", **settings):
    arguments = {"max_trials": 8, "seed": 2, "hyperparameters": space()} | settings
    return placed(RandomSearchOracle("loss", **arguments), directory, name)


def in_thread(call):
    """Calls it in another thread; fails if that does not come back."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call()), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the lock was left behind"
    return result[0]


@pytest.mark.parametrize("wrap", [False, True])
def test_an_error_leaves_no_lock_behind(tmp_path, wrap):
    if wrap:
        inner = STOCK.RandomSearchOracle("loss", 8, seed=2, hyperparameters=space())
        oracle = placed(StageOracle(inner), tmp_path)
    else:
        oracle = randomly(tmp_path)
    trial = oracle.create_trial("t0")
    with pytest.raises(ValueError, match="Objective value missing"):
        oracle.update_trial(trial.trial_id, {"accuracy": 1.0})
    with pytest.raises(KeyError):
        oracle.update_trial("none", {"loss": 1.0})
    assert in_thread(lambda: oracle.create_trial("t1")).status == "RUNNING"
    target = oracle._oracle if wrap else oracle
    target.populate_space = lambda trial_id: 1 // 0
    with pytest.raises(ZeroDivisionError):
        oracle.create_trial("t2")
    del target.populate_space
    assert in_thread(lambda: oracle.create_trial("t2")).trial_id == "2"


def test_threads_of_one_name_do_not_meet(tmp_path):
    """Keras Tuner tells threads apart by their names."""
    oracle, created = randomly(tmp_path, max_trials=40), []

    def work(number):
        for i in range(10):
            created.append(oracle.create_trial(f"{number}-{i}").trial_id)

    threads = [threading.Thread(target=work, args=[number], name="worker") for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created) == [f"{i:02d}" for i in range(40)]


def test_a_tuner_gets_its_open_trial_again(tmp_path):
    oracle = randomly(tmp_path)
    assert oracle.create_trial("t") is oracle.create_trial("t")
    assert len(oracle.trials) == 1


def test_a_trial_ends_once(tmp_path):
    oracle = randomly(tmp_path)
    trial = oracle.create_trial("t")
    end(oracle, trial, 1)
    with pytest.raises(ValueError, match="open, got '0', which has ended"):
        oracle.end_trial(trial)
    trial.trial_id = "77"
    with pytest.raises(ValueError, match="'77', which is unknown"):
        oracle.end_trial(trial)
    assert oracle.end_order == ["0"]


def test_too_many_failures_end_the_search_and_a_restart_tries_again(tmp_path):
    def fail(values, epochs):
        raise ArithmeticError("out of memory")

    oracle = randomly(tmp_path)
    with pytest.raises(RuntimeError, match=r"fewer than 3 trials in a row to fail.*0, 1, 2(?s:.*)out of memory"):
        search(oracle, curve=fail, width=1)
    assert in_thread(lambda: oracle.get_trial("2")).status == "RUNNING"
    again = randomly(tmp_path)
    again.reload()
    search(again)
    assert [trial.status for trial in again.trials.values()] == ["FAILED"] * 2 + ["COMPLETED"] * 6


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_a_retry_forgets_the_results_of_the_first_try(tmp_path):
    """Keras Tuner takes the mean of both, so that NaN stays NaN."""
    oracle = randomly(tmp_path, max_retries_per_trial=2)
    trial = oracle.create_trial("t")
    for value in (float("nan"), 0.5):
        oracle.update_trial(trial.trial_id, {"loss": value}, step=3)
        trial.status = "COMPLETED"
        oracle.end_trial(trial)
        trial = oracle.create_trial("t")
    assert trial.trial_id == "1"
    assert (oracle.trials["0"].status, oracle.trials["0"].score) == ("COMPLETED", 0.5)
    again = randomly(tmp_path, max_retries_per_trial=2)
    again.reload()
    assert again._run_times["0"] == 2
    assert exact(again)[0] == exact(oracle)[0]


def test_decisions_are_told_when_the_lock_is_free_and_errors_of_the_listener_come_through(tmp_path):
    oracle = SuccessiveHalvingOracle("loss", 2, 1, 2, 2, seed=1, hyperparameters=space())
    placed(oracle, tmp_path)
    heard = []
    oracle.on_decision = lambda event: heard.append(in_thread(lambda: oracle.objective.name))
    search(oracle)
    assert heard == ["loss"]

    def broken(event):
        raise OSError("the disk is full")

    other = SuccessiveHalvingOracle("loss", 2, 1, 2, 2, seed=1, hyperparameters=space())
    placed(other, tmp_path, "other").on_decision = broken
    with pytest.raises(OSError, match="the disk is full"):
        search(other)
    assert len(other.trials) == 3
    in_thread(lambda: other.create_trial("more"))


def test_saving_does_not_cost_more_the_more_trials_there_are(tmp_path, monkeypatch):
    """Characters written for each trial. Keras Tuner's grow with the number of trials, since it writes all that it knows."""
    written = [0]
    replace, line = _files.replace_text, _journal._line

    def replaced(path, text, *, durable):
        written[0] += len(text)
        replace(path, text, durable=durable)

    def lined(event):
        written[0] += len(line(event))
        return line(event)

    monkeypatch.setattr(_journal, "replace_text", replaced)
    monkeypatch.setattr(_export, "replace_text", replaced)
    monkeypatch.setattr(_journal, "_line", lined)
    hp = keras_tuner.HyperParameters()
    hp.Int("x", 1, 10**9)
    costs = []
    for count in (60, 300):
        written[0] = 0
        search(randomly(tmp_path, str(count), max_trials=count, hyperparameters=hp), width=20)
        costs.append(written[0] / count)
    assert costs[1] < 1.6 * costs[0]


def test_an_idle_save_costs_nothing(tmp_path, monkeypatch):
    oracle = search(randomly(tmp_path))
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    before = (tmp_path / "search" / "oracle.jsonl").stat().st_size
    for _ in range(5):
        oracle.save()
    assert synced == []
    assert (tmp_path / "search" / "oracle.jsonl").stat().st_size == before


def test_the_callers_space_stays_as_it_is(tmp_path):
    hp = keras_tuner.HyperParameters()
    hp.Boolean("x")
    oracle = placed(GridSearchOracle("loss", hyperparameters=hp), tmp_path)
    trial = oracle.create_trial("t")
    trial.hyperparameters.Boolean("y")
    end(oracle, trial, 1)
    assert [each.name for each in oracle.hyperparameters.space] == ["x", "y"]
    assert [each.name for each in hp.space] == ["x"]


def test_the_display_may_begin_in_the_middle(tmp_path, capsys):
    oracle = randomly(tmp_path)
    trial = oracle.create_trial("t")
    again = randomly(tmp_path)
    again.reload()
    trial = again.create_trial("t")
    again.verbose = 1
    end(again, trial, 1)
    assert "Trial 1 Complete" in capsys.readouterr().out

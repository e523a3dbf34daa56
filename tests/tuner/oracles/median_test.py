"""Median stopping: the rule on curves, in front of any oracle, and the same answers after a restart."""

import copy
import random
import statistics

import keras_tuner
import pytest

from tests.tuner.oracles.driver import curve, end, placed, search, space
from tf_ext.tuner.oracles import HyperbandOracle, MedianStoppingOracle, RandomSearchOracle, StageOracle, replay
from tf_ext.tuner.oracles._curves import Curves

STOCK = keras_tuner.oracles


def stopping(directory, inner=None, *, name="search", **numbers):
    inner = inner or RandomSearchOracle("loss", 12, seed=5, hyperparameters=space())
    numbers = {"grace_epochs": 2, "interval": 3, "min_trials": 2} | numbers
    return placed(MedianStoppingOracle(inner, **numbers), directory, name)


@pytest.mark.parametrize(("direction", "sign"), [("min", 1), ("max", -1)])
def test_the_rule_of_the_paper(direction, sign):
    curves = Curves(min_trials=2, direction=direction)
    for name, values in {"a": [4.0, 2.0, 3.0], "b": [2.0, 2.0], "c": [9.0, 9.0]}.items():
        curves.report(name, 0, [sign * value for value in values])
    curves.report("new", 0, [sign * 5.0, sign * 2.5])
    assert not curves.should_stop("new", 2)  # nobody has completed
    curves.complete("a")
    assert not curves.should_stop("new", 2)  # one is not two
    curves.complete("b")
    # Means up to epoch 2: 3 and 2, their median 2.5. The best so far is 2.5: not strictly worse.
    assert not curves.should_stop("new", 2)
    curves.report("new", 1, [sign * 2.51])
    assert curves.should_stop("new", 2)
    assert curves.should_stop("new", 1)  # means 4 and 2 against 5
    assert not curves.should_stop("new", 3)  # only one has trained for three epochs
    curves.complete("c")
    assert not curves.should_stop("new", 2)  # means 3, 2 and 9


def test_what_is_no_number_is_the_worst():
    curves = Curves(min_trials=1, direction="max")
    curves.report("a", 0, [0.0])
    curves.complete("a")
    curves.report("b", 0, [None, float("nan")])
    assert curves.should_stop("b", 1)
    curves.report("c", 0, [None])
    curves.complete("c")
    curves.report("d", 0, [-5.0])
    assert not curves.should_stop("d", 1)  # the median of 0 and minus infinity


def test_trials_are_compared_at_the_given_epochs_and_the_bad_ones_end_there(tmp_path):
    oracle, log = stopping(tmp_path), []
    oracle.on_decision = log.append
    search(oracle, 10)
    assert {e["epoch"] for e in log if e["decision"] in ("stop", "continue")} <= {2, 5, 8, 10}
    stopped = {e["trial_id"]: e["epoch"] for e in log if e["decision"] == "stop"}
    assert 0 < len(stopped) < 11
    lengths = {}
    for event in log:
        if event["decision"] == "report":
            assert event["start"] == lengths.get(event["trial_id"], 0)
            lengths[event["trial_id"]] = event["start"] + len(event["values"])
    assert lengths == {trial_id: stopped.get(trial_id, 10) for trial_id in oracle.trials}
    assert {trial.status for trial in oracle.trials.values()} == {"COMPLETED"}
    # One after the other, so that the rule can be recomputed from the trials before.
    curves = {i: curve(t.hyperparameters.values, lengths[i]) for i, t in oracle.trials.items()}
    for number, (trial_id, values) in enumerate(curves.items()):
        before = list(curves.values())[:number]
        for epoch in (e for e in (2, 5, 8) if e <= len(values)):
            means = [statistics.fmean(c[:epoch]) for c in before if len(c) >= epoch]
            worse = len(means) >= 2 and min(values[:epoch]) > statistics.median(means)
            assert worse == (stopped.get(trial_id) == epoch)


def test_a_log_can_be_checked(tmp_path):
    oracle, log = stopping(tmp_path), []
    oracle.on_decision = log.append
    search(oracle, 10, order=random.Random(2), width=4)
    assert replay(log) == []
    stop = next(i for i, event in enumerate(log) if event["decision"] == "stop")
    other = copy.deepcopy(log)
    other[stop]["decision"] = "continue"
    assert replay(other)[0].startswith(f"event {stop}: expected 'stop'")


def test_the_same_question_gets_the_same_answer(tmp_path):
    oracle = stopping(tmp_path, min_trials=1)
    late, good = oracle.create_trial("a"), oracle.create_trial("b")
    history = [{"loss": 5.0}] * 2
    assert oracle.first_target(late, 9) == 2
    assert oracle.advance(late.trial_id, history) == 5
    end(oracle, good, 9, lambda values, epochs: [1.0] * epochs)
    assert oracle.advance(late.trial_id, history) == 5  # though it would be stopped now
    assert oracle.advance(late.trial_id, history + [{"loss": 5.0}] * 3) is None
    again = stopping(tmp_path, min_trials=1)
    again.reload()
    trial = again.create_trial("c")
    assert trial.trial_id == late.trial_id
    assert again.first_target(trial, 9) == 2
    assert again.advance(trial.trial_id, history) == 5
    assert again.advance(trial.trial_id, history + [{"loss": 0.0}] * 3) is None
    fresh = again.create_trial("d")
    assert again.first_target(fresh, 9) == 2
    assert again.advance(fresh.trial_id, [{"loss": 2.0}] * 2) is None  # those that completed before are remembered


def test_in_front_of_stock_oracles_and_of_ours(tmp_path):
    for name, inner in {
        "stock": STOCK.RandomSearchOracle("loss", 12, seed=5, hyperparameters=space()),
        "wrapped": StageOracle(STOCK.RandomSearchOracle("loss", 12, seed=5, hyperparameters=space())),
        "ours": RandomSearchOracle("loss", 12, seed=5, hyperparameters=space()),
    }.items():
        oracle = search(stopping(tmp_path, inner, name=name), 10)
        assert len(oracle.trials) == 12
        assert oracle.lookahead is None
        assert oracle.get_best_trials()[0].score == min(trial.score for trial in oracle.trials.values())


def test_in_front_of_halving_it_compares_after_the_path_that_a_trial_continues(tmp_path):
    oracle = stopping(tmp_path, HyperbandOracle("loss", 8, 2, seed=1, hyperparameters=space()))
    trial = oracle.create_trial("t")
    assert oracle.first_target(trial, 100) == trial.hyperparameters.values["tuner/epochs"] == 1
    trial.hyperparameters.values.update({"tuner/initial_epoch": 4, "tuner/epochs": 8})
    assert oracle.first_target(trial, 100) == 5
    trial.hyperparameters.values.update({"tuner/initial_epoch": 5})
    assert oracle.first_target(trial, 100) == 8
    assert oracle.cut_epochs() == {1, 2, 4, 8, 5}


def test_arguments_are_checked():
    inner = RandomSearchOracle("loss")
    for name in ("grace_epochs", "interval", "min_trials"):
        with pytest.raises(ValueError, match=f"`{name}` to be a whole number, at least 1, got 0"):
            MedianStoppingOracle(inner, **{name: 0})
    with pytest.raises(TypeError, match="expected an oracle"):
        MedianStoppingOracle("random")

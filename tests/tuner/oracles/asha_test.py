"""ASHA: who climbs when, against the rule written down anew, and whether a tampered log is noticed."""

import copy
import math
import random
import tempfile

import hypothesis
import hypothesis.strategies as st
import keras_tuner
import pytest

from tests.tuner.oracles.driver import curve, end, exact, placed, search, space
from tf_ext.tuner.oracles import ASHAOracle, StagedOracle, replay
from tf_ext.tuner.oracles._asynchronous import AsynchronousRungs


def asha(directory, name="search", *, direction="min", parallelism=4, **settings):
    arguments = {"max_trials": 20, "max_epochs": 9, "factor": 3, "seed": 6, "hyperparameters": space()} | settings
    oracle = ASHAOracle(keras_tuner.Objective("loss", direction), max_consecutive_failed_trials=1000, **arguments)
    oracle.parallelism = parallelism
    return placed(oracle, directory, name)


def flaky(values, epochs):
    if values["units"] % 4 == 0:
        raise ArithmeticError("no")
    return [math.nan] * epochs if values["units"] % 9 == 0 else curve(values, epochs)


def climbs(events, direction):
    """Algorithm 2 of the paper, over the log: which trial climbs at each request, or None for a new one."""
    ended, climbed, started = [[], [], []], set(), []
    for event in events:
        if event["decision"] == "report":
            ended[event["rung"]].append((event["score"], event["trial_id"]))
            continue
        expected = None
        for rung in (1, 0):
            sign = -1 if direction == "max" else 1
            scored = [(sign * score, started.index(i), i) for score, i in ended[rung] if score is not None]
            top = [i for _, _, i in sorted(scored)[: len(ended[rung]) // 3]]
            expected = next((i for i in top if i not in climbed), None)
            if expected is not None:
                break
        yield event["parent"], expected
        started.append(event["trial_id"])
        climbed.add(event["parent"])


@pytest.mark.parametrize("direction", ["min", "max"])
@hypothesis.given(seed=st.integers(0, 10**6), parallelism=st.integers(1, 9))
@hypothesis.settings(max_examples=5, deadline=None)
@pytest.mark.filterwarnings("ignore:All-NaN")
def test_whoever_is_among_the_best_climbs_at_once(direction, seed, parallelism):
    with tempfile.TemporaryDirectory() as directory:
        oracle, log = asha(directory, direction=direction, parallelism=parallelism), []
        oracle.on_decision = log.append
        search(oracle, order=random.Random(seed), curve=flaky)
        decided = list(climbs(log, direction))
        assert [got for got, _ in decided] == [expected for _, expected in decided]
        assert sum(parent is None for parent, _ in decided) == 20
        assert sum(parent is not None for parent, _ in decided) >= 3
        assert len(decided) == len(oracle.trials)
        assert replay(log) == []


def test_the_highest_rung_goes_first():
    rungs = AsynchronousRungs(3, 2, "min")
    for trial_id, score in zip("abcd", [1.0, 2.0, 3.0, 4.0], strict=True):
        rungs.start(trial_id)
        rungs.report(trial_id, 0, score)
    assert rungs.promotion() == (1, "a")
    rungs.start("A", "a", 1)
    rungs.report("A", 1, 0.5)
    assert rungs.promotion() == (1, "b")
    rungs.start("B", "b", 1)
    rungs.report("B", 1, None)
    for trial_id, score in zip("ef", [0.1, 0.1], strict=True):
        rungs.start(trial_id)
        rungs.report(trial_id, 0, score)
    assert rungs.promotion() == (2, "A")  # and "e" could climb to rung 1
    rungs.start("AA", "A", 2)
    assert rungs.promotion() == (1, "e")  # of equal scores the earlier


def test_no_more_trials_are_open_than_are_trained(tmp_path):
    oracle = asha(tmp_path, parallelism=3)
    assert oracle.lookahead == 3
    assert isinstance(oracle, StagedOracle)
    oracle.lookahead = 5
    assert oracle.parallelism == 5


def test_a_tampered_log_is_noticed(tmp_path):
    oracle, log = asha(tmp_path), []
    oracle.on_decision = log.append
    search(oracle, order=random.Random(1))
    assert replay(log) == []
    promoted = [i for i, event in enumerate(log) if event["decision"] == "promote"]
    other = copy.deepcopy(log)
    other[promoted[0]]["parent"] = next(e["trial_id"] for e in log if e["trial_id"] != log[promoted[0]]["parent"])
    assert replay(other)[0].startswith(f"event {promoted[0]}: expected trial {log[promoted[0]]['parent']!r} to climb")
    better = copy.deepcopy(log)
    reported = next(
        i for i, e in enumerate(log) if e["decision"] == "report" and e["trial_id"] == log[promoted[0]]["parent"]
    )
    better[reported]["score"] = 99.0
    assert replay(better) != []
    assert replay([{"oracle": "OtherOracle", "decision": "exploit"}]) == []


def test_the_order_of_ends_decides_and_nothing_else(tmp_path):
    one, two = (search(asha(tmp_path, str(i)), order=random.Random(5)) for i in range(2))
    assert exact(one) == exact(two)
    assert exact(one) != exact(search(asha(tmp_path, "other"), order=random.Random(8)))


def test_a_checkpoint_is_kept_as_long_as_its_trial_may_climb(tmp_path):
    oracle = asha(tmp_path, max_trials=6, max_epochs=3)
    scores = iter([3.0, 1.0, 2.0, 4.0, 5.0, 6.0])
    for number in range(6):
        if number == 3:
            # One of three climbs; the second of now may be the second of six.
            assert [oracle.can_resume(i) for i in ("0000", "0001", "0002")] == [False, True, True]
            climbed = oracle.create_trial("climb")
            assert climbed.hyperparameters.values["tuner/trial_id"] == "0001"
            assert not oracle.can_resume("0001")
            end(oracle, climbed, 3)
        trial = oracle.create_trial(f"t{number}")
        score = next(scores)
        oracle.update_trial(trial.trial_id, {"loss": score}, step=0)
        trial.status = "COMPLETED"
        oracle.end_trial(trial)
    assert oracle.can_resume("0002")
    assert not oracle.can_resume("none of these")
    search(oracle)
    assert not any(oracle.can_resume(trial_id) for trial_id in oracle.trials)


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_a_search_whose_trials_all_fail_ends(tmp_path):
    oracle = search(asha(tmp_path), curve=lambda values, epochs: [math.nan] * epochs)
    assert {trial.status for trial in oracle.trials.values()} == {"FAILED"}
    assert len(oracle.trials) == 20


def test_contradictory_arguments_are_refused():
    with pytest.raises(ValueError, match="`factor` to be a whole number, at least 2"):
        ASHAOracle("loss", factor=1)
    with pytest.raises(ValueError, match="`min_epochs` up to `max_epochs`"):
        ASHAOracle("loss", min_epochs=10, max_epochs=9)
    with pytest.raises(ValueError, match="`max_trials`"):
        ASHAOracle("loss", max_trials=None)

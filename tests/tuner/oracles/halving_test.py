"""Successive halving and Hyperband: who climbs, whatever the order in which trials end, and whatever fails."""

import math
import random
import tempfile

import hypothesis
import hypothesis.strategies as st
import keras_tuner
import pytest

from tests.tuner.oracles.driver import curve, end, outcome, placed, plain, search, space
from tf_ext.tuner.oracles import HyperbandOracle, SuccessiveHalvingOracle

QUICK = hypothesis.settings(max_examples=6, deadline=None)


def sha(directory, *, direction="min", **settings):
    arguments = {"max_trials": 9, "min_epochs": 1, "max_epochs": 9, "factor": 3, "seed": 4} | settings
    arguments.setdefault("hyperparameters", space())
    arguments.setdefault("max_consecutive_failed_trials", 1000)
    return placed(SuccessiveHalvingOracle(keras_tuner.Objective("loss", direction), **arguments), directory)


def rung(oracle, number):
    return [trial for trial in oracle.trials.values() if trial.hyperparameters.values["tuner/round"] == number]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [(9, 0, 1), (3, 1, 3), (1, 3, 9)]),
        ({"max_epochs": 10}, [(9, 0, 1), (3, 1, 3), (1, 3, 10)]),
        ({"max_trials": 5, "min_epochs": 2, "max_epochs": 8, "factor": 2}, [(5, 0, 2), (2, 2, 4), (1, 4, 8)]),
        ({"max_trials": 2, "max_epochs": 27}, [(2, 0, 1), (1, 1, 3), (1, 3, 9), (1, 9, 27)]),
        ({"min_epochs": 7, "max_epochs": 7}, [(9, 0, 7)]),
    ],
)
def test_rungs_have_the_sizes_and_epochs_of_the_paper(tmp_path, settings, expected):
    oracle = search(sha(tmp_path, **settings))
    found = []
    for number in range(len(expected)):
        values = [trial.hyperparameters.values for trial in rung(oracle, number)]
        assert len({(v["tuner/initial_epoch"], v["tuner/epochs"]) for v in values}) == 1
        found.append((len(values), values[0]["tuner/initial_epoch"], values[0]["tuner/epochs"]))
    assert found == expected
    assert len(oracle.trials) == oracle.max_trials == sum(size for size, _, _ in expected)
    assert oracle.cut_epochs() == {epochs for _, _, epochs in expected}


@pytest.mark.parametrize("direction", ["min", "max"])
@hypothesis.given(seed=st.integers(0, 10**6))
@QUICK
def test_the_best_climb_whatever_the_order(direction, seed):
    with tempfile.TemporaryDirectory() as directory:
        oracle = search(sha(directory, direction=direction), order=random.Random(seed))
        for number in (1, 2):
            below = sorted(rung(oracle, number - 1), key=lambda trial: trial.score, reverse=direction == "max")
            climbed = rung(oracle, number)
            parents = [trial.hyperparameters.values["tuner/trial_id"] for trial in climbed]
            assert parents == [trial.trial_id for trial in below[: len(climbed)]]
            for trial, parent in zip(climbed, below, strict=False):
                assert plain(trial.hyperparameters.values) == plain(parent.hyperparameters.values)


@hypothesis.given(seed=st.integers(0, 10**6), width=st.sampled_from([1, 2, 5, None]))
@QUICK
def test_results_do_not_depend_on_order_or_width(seed, width):
    with tempfile.TemporaryDirectory() as directory:
        results = []
        for name, order, at_once in (("a", None, None), ("b", random.Random(seed), width)):
            settings = {"max_epochs": 4, "factor": 2, "seed": 9, "hyperparameters": space(conditional=True)}
            oracle = placed(HyperbandOracle("loss", **settings), directory, name)
            results.append(outcome(search(oracle, order=order, width=at_once)))
        assert results[0] == results[1]
        assert len(results[0]) == 4 + 2 + 1 + 3 + 2 + 3


def failing(share, seed, how):
    def fail(values, epochs):
        if random.Random(f"{seed} {sorted(plain(values).items())}").random() < share:
            if how == "raise":
                raise ArithmeticError("the loss is infinite")
            return [math.nan] * epochs
        return curve(values, epochs)

    return fail


@pytest.mark.parametrize("how", ["raise", "nan"])
@hypothesis.given(share=st.sampled_from([0.2, 0.7, 1.0]), seed=st.integers(0, 10**6))
@QUICK
@pytest.mark.filterwarnings("ignore:All-NaN")
def test_a_failed_trial_is_the_worst_and_the_bracket_goes_on(how, share, seed):
    with tempfile.TemporaryDirectory() as directory:
        settings = {"max_epochs": 9, "seed": 2, "hyperparameters": space(), "max_consecutive_failed_trials": 1000}
        oracle = placed(HyperbandOracle("loss", **settings), directory)
        search(oracle, order=random.Random(seed), curve=failing(share, seed, how))  # the driver sees whether it hangs
        for trial in oracle.trials.values():
            parent = oracle.trials.get(trial.hyperparameters.values.get("tuner/trial_id"))
            assert parent is None or parent.status == "COMPLETED"
        firsts = [t for t in oracle.trials.values() if t.hyperparameters.values["tuner/round"] == 0]
        assert len(firsts) == 9 + 5 + 3
        last = [t for t in firsts if t.hyperparameters.values["tuner/bracket"] == 2 and t.status == "COMPLETED"]
        climbed = [t for t in oracle.trials.values() if t.hyperparameters.values["tuner/round"] == 1]
        second = [t for t in climbed if t.hyperparameters.values["tuner/bracket"] == 2]
        assert len(second) == min(3, len(last))


def test_a_failed_trial_is_tried_again_before_the_rung_is_decided(tmp_path):
    oracle = sha(tmp_path, max_retries_per_trial=1)
    tries = []

    def once(values, epochs):
        key = (values["units"], epochs)
        tries.append(key)
        if epochs == 1 and tries.count(key) == 1:
            raise ArithmeticError("at first")
        return curve(values, epochs)

    search(oracle, curve=once)
    assert [len(rung(oracle, number)) for number in range(3)] == [9, 3, 1]
    assert {trial.status for trial in oracle.trials.values()} == {"COMPLETED"}
    assert len(tries) == 9 * 2 + 3 + 1


def test_of_equal_scores_the_earlier_trial_climbs(tmp_path):
    oracle = search(sha(tmp_path), order=random.Random(3), curve=lambda values, epochs: [1.0] * epochs)
    assert [t.hyperparameters.values["tuner/trial_id"] for t in rung(oracle, 1)] == ["00", "01", "02"]


def test_a_bracket_goes_on_with_what_an_exhausted_space_gives(tmp_path):
    hp = keras_tuner.HyperParameters()
    hp.Choice("x", [1, 2, 3, 4])
    oracle = search(sha(tmp_path, hyperparameters=hp), order=random.Random(1))
    assert sorted(t.hyperparameters.values["x"] for t in rung(oracle, 0)) == [1, 2, 3, 4]
    assert [len(rung(oracle, number)) for number in range(3)] == [4, 3, 1]


def test_hyperband_ends_when_the_space_is_exhausted(tmp_path):
    for iterations in (1, None):
        hp = keras_tuner.HyperParameters()
        hp.Boolean("x")
        oracle = HyperbandOracle("loss", 9, 3, iterations, seed=1, hyperparameters=hp)
        search(placed(oracle, tmp_path, str(iterations)))
        assert len([v for t in oracle.trials.values() if (v := t.hyperparameters.values)["tuner/round"] == 0]) == 2


def test_who_may_climb_keeps_its_checkpoint_and_nobody_else(tmp_path):
    oracle = sha(tmp_path)
    firsts = [oracle.create_trial(f"t{i}") for i in range(9)]
    for trial in firsts[:8]:
        end(oracle, trial, 1)
    assert all(oracle.can_resume(trial.trial_id) for trial in firsts)
    end(oracle, firsts[8], 1)
    best = sorted(firsts, key=lambda trial: trial.score)[:3]
    assert {trial.trial_id for trial in firsts if oracle.can_resume(trial.trial_id)} == {t.trial_id for t in best}
    child = oracle.create_trial("again")
    assert child.hyperparameters.values["tuner/trial_id"] == best[0].trial_id
    assert not oracle.can_resume(best[0].trial_id)  # its child holds the path now
    assert oracle.can_resume(best[1].trial_id)
    assert oracle.create_trial("t20").status == oracle.create_trial("t21").status == "RUNNING"
    assert oracle.create_trial("t22").status == "IDLE"
    assert not oracle.can_resume("none of these")


def test_promotions_are_told(tmp_path):
    oracle, told = sha(tmp_path), []
    oracle.on_decision = told.append
    search(oracle)
    assert [(d["decision"], d["rung"]) for d in told] == [("promote", 1)] * 3 + [("promote", 2)]
    assert told[0]["score"] == min(trial.score for trial in rung(oracle, 0))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"factor": 1}, "`factor` to be a whole number, at least 2, got 1"),
        ({"factor": 2.5}, "`factor` to be a whole number"),
        ({"min_epochs": 5, "max_epochs": 4}, "`min_epochs` up to `max_epochs` = 4, got 5"),
        ({"min_epochs": 0}, "`min_epochs` to be a whole number, at least 1"),
        ({"max_trials": 0}, "`max_trials` to be a whole number, at least 1"),
        ({"objective": keras_tuner.Objective("loss", "up")}, "'min' or 'max' of objective 'loss', got 'up'"),
        ({"objective": "nothing_known"}, "nothing_known"),
    ],
)
def test_contradictory_arguments_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        SuccessiveHalvingOracle(**{"objective": "loss"} | arguments)


def test_hyperband_refuses_contradictory_arguments():
    with pytest.raises(ValueError, match="`factor`"):
        HyperbandOracle("loss", factor=1)
    with pytest.raises(ValueError, match="`hyperband_iterations`"):
        HyperbandOracle("loss", hyperband_iterations=-1)

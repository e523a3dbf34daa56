"""Searches that are continued: with other budgets and settings, or after they had ended."""

import keras_tuner
import pytest

from tests.tuner.oracles.catalogue import ORACLES, STOCK, made, settings_of
from tests.tuner.oracles.driver import KilledError, end, exact, placed, search, space
from tf_ext.tuner.errors import PlanMismatchError
from tf_ext.tuner.oracles import (
    ASHAOracle,
    GridSearchOracle,
    HyperbandOracle,
    PopulationBasedTrainingOracle,
    RandomSearchOracle,
    StageOracle,
    SuccessiveHalvingOracle,
)


def test_more_trials_continue_a_finished_search(tmp_path):
    search(made("random", tmp_path))
    more = placed(RandomSearchOracle(**settings_of(max_trials=14)), tmp_path)
    more.reload()
    assert more.remaining_trials() == 5
    search(more)
    whole = search(placed(RandomSearchOracle(**settings_of(max_trials=14)), tmp_path, "whole"))
    assert [t.hyperparameters.values for t in more.trials.values()] == [
        t.hyperparameters.values for t in whole.trials.values()
    ]
    fewer = placed(RandomSearchOracle(**settings_of(max_trials=3)), tmp_path)
    fewer.reload()
    assert fewer.create_trial("t").status == "STOPPED"


def test_random_numbers_go_on_where_they_were(tmp_path):
    """Beginning anew, it would meet more known values than it takes for a sign that the space is exhausted."""
    settings = settings_of(max_trials=30)
    with pytest.raises(KilledError):
        search(placed(RandomSearchOracle(**settings), tmp_path), stop_after=24, width=1)
    again = placed(RandomSearchOracle(**settings), tmp_path)
    again.reload()
    assert [again.create_trial(f"t{i}").trial_id for i in range(2)] == ["24", "25"]
    assert len(again.trials) == 26
    undisturbed = search(placed(RandomSearchOracle(**settings), tmp_path, "undisturbed"))
    for trial_id, trial in again.trials.items():
        assert trial.hyperparameters.values == undisturbed.trials[trial_id].hyperparameters.values


@pytest.mark.parametrize(
    ("name", "stop_after", "sizes"), [("hyperband", 1, [3, 3, 3]), ("hyperband", 10, [3, 3, 3]), ("sha", 5, [3])]
)
def test_a_rung_that_chance_could_not_fill_stays_as_it_is(tmp_path, monkeypatch, name, stop_after, sizes):
    """Whether the space is exhausted is a matter of luck with random numbers; a restart must not try its luck again."""
    drawn, lucky = [], RandomSearchOracle._random_values

    def unlucky(self):
        drawn.append(self)
        return None if len(drawn) == 4 else lucky(self)

    monkeypatch.setattr(keras_tuner.Oracle, "_random_values", unlucky)
    with pytest.raises(KilledError):
        search(made(name, tmp_path), stop_after=stop_after)
    again = made(name, tmp_path)
    again.reload()
    search(again)
    assert [len(bracket.rungs[0]) for bracket in again._brackets] == sizes


def test_budgets_that_may_grow_grow(tmp_path):
    search(placed(HyperbandOracle(**settings_of(max_epochs=4, factor=2)), tmp_path))
    twice = placed(HyperbandOracle(**settings_of(max_epochs=4, factor=2, hyperband_iterations=2)), tmp_path)
    twice.reload()
    once = len(twice.trials)
    assert len(search(twice).trials) == 2 * once

    search(placed(STOCK_WRAPPED(hyperband_iterations=1), tmp_path, "stock"))
    twice = placed(STOCK_WRAPPED(hyperband_iterations=2), tmp_path, "stock")
    twice.reload()  # keras-tuner #234, #803: the value of the file was taken
    assert len(search(twice).trials) == 2 * once

    search(placed(ASHAOracle(**settings_of(max_trials=4, max_epochs=4, factor=2)), tmp_path, "asha"))
    more = placed(ASHAOracle(**settings_of(max_trials=9, max_epochs=4, factor=2)), tmp_path, "asha")
    more.reload()
    search(more)
    assert sum(t.hyperparameters.values["tuner/round"] == 0 for t in more.trials.values()) == 9

    pbt = {"population": 3, "interval": 2}
    search(placed(PopulationBasedTrainingOracle(**settings_of(max_epochs=5, **pbt)), tmp_path, "pbt"))
    longer = placed(PopulationBasedTrainingOracle(**settings_of(max_epochs=8, **pbt)), tmp_path, "pbt")
    longer.reload()
    search(longer)
    assert sorted({t.hyperparameters.values["tuner/epochs"] for t in longer.trials.values()}) == [2, 4, 5, 7, 8]


def STOCK_WRAPPED(**more):  # noqa: N802
    return StageOracle(STOCK.HyperbandOracle(**settings_of(max_epochs=4, factor=2, **more)), lookahead=1)


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (lambda: HyperbandOracle(**settings_of(max_epochs=4)), lambda: HyperbandOracle(**settings_of(max_epochs=8)),
         "`max_epochs` to be 4 .* got 8: .* Set it back, or .* `project_name` or `overwrite=True`"),
        (lambda: STOCK_WRAPPED(), lambda: StageOracle(STOCK.HyperbandOracle(**settings_of(max_epochs=8, factor=2))),
         "`max_epochs` to be 4 .* got 8"),
        (lambda: SuccessiveHalvingOracle(**settings_of()), lambda: SuccessiveHalvingOracle(**settings_of(max_trials=5)),
         "`max_trials` to be 27 .* got 5"),
        (lambda: ASHAOracle(**settings_of()), lambda: ASHAOracle(**settings_of(factor=4)), "`factor` to be 3 .* got 4"),
        (lambda: PopulationBasedTrainingOracle(**settings_of()),
         lambda: PopulationBasedTrainingOracle(**settings_of(perturb=["rate"])), r"`perturb` to be None .* got \['rate'\]"),
        (lambda: RandomSearchOracle(**settings_of()), lambda: RandomSearchOracle(**settings_of(seed=8)),
         "`seed` to be 3 .* got 8"),
        (lambda: RandomSearchOracle(**settings_of()),
         lambda: RandomSearchOracle(**settings_of(objective=keras_tuner.Objective("loss", "max"))), "`objective` to be"),
        (lambda: RandomSearchOracle(**settings_of()), lambda: GridSearchOracle(**settings_of()),
         "`oracle` to be 'RandomSearchOracle' .* got 'GridSearchOracle'"),
        (lambda: RandomSearchOracle(**settings_of()), lambda: RandomSearchOracle(**settings_of(hyperparameters=other())),
         r"`hyperparameters\['units'\]` to be"),
    ],
)  # fmt: skip
def test_settings_that_cannot_change_are_refused_by_name(tmp_path, first, then, said):
    oracle = placed(first(), tmp_path)
    end(oracle, oracle.create_trial("t"), 1)
    with pytest.raises(PlanMismatchError, match=said):
        placed(then(), tmp_path).reload()
    placed(first(), tmp_path).reload()  # and nothing was changed by that


def other():
    hp = keras_tuner.HyperParameters()
    hp.Int("units", 1, 999)
    return hp


def test_without_a_seed_the_first_one_stays(tmp_path):
    first = placed(RandomSearchOracle("loss", 6, hyperparameters=space()), tmp_path)
    for number in range(3):
        end(first, first.create_trial(f"t{number}"), 2)
    again = placed(RandomSearchOracle("loss", 6, hyperparameters=space()), tmp_path)
    again.reload()
    assert again.seed == first.seed
    assert [t.hyperparameters.values for t in search(again).trials.values()] == [
        t.hyperparameters.values for t in search(first).trials.values()
    ]


def test_new_hyperparameters_join_the_search(tmp_path):
    search(made("random", tmp_path))
    hp = space(conditional=True)
    hp.Boolean("dropout")
    more = placed(RandomSearchOracle(**settings_of(max_trials=11, hyperparameters=hp)), tmp_path)
    more.reload()
    search(more)
    assert ["dropout" in t.hyperparameters.values for t in more.trials.values()] == [False] * 9 + [True] * 2
    last = placed(RandomSearchOracle(**settings_of(max_trials=11, hyperparameters=hp)), tmp_path)
    last.reload()
    assert exact(last) == exact(more)


@pytest.mark.parametrize("tune_new_entries", [True, False])
def test_what_a_model_asked_for_is_there_after_a_restart(tmp_path, tune_new_entries):
    def made():
        return placed(RandomSearchOracle(**settings_of(max_trials=6, tune_new_entries=tune_new_entries)), tmp_path)

    oracle = made()
    for number in range(4):
        trial = oracle.create_trial(f"t{number}")
        trial.hyperparameters.Choice("late", [5, 6, 7])
        end(oracle, trial, 2)
    again = made()
    again.reload()
    assert exact(again) == exact(oracle)
    assert {trial.hyperparameters.values["late"] for trial in again.trials.values()} <= {5, 6, 7}
    assert len(again.hyperparameters.space) == len(oracle.hyperparameters.space)


def test_a_search_that_was_not_reloaded_begins_anew(tmp_path):
    search(made("random", tmp_path))
    fresh = placed(RandomSearchOracle(**settings_of(max_trials=4, seed=11)), tmp_path)
    end(fresh, fresh.create_trial("t"), 1)
    again = placed(RandomSearchOracle(**settings_of(max_trials=4, seed=11)), tmp_path)
    again.reload()
    assert len(again.trials) == 1


def test_reloading_again_in_one_process_sends_open_trials_back(tmp_path):
    oracle = made("sha", tmp_path)
    trials = [oracle.create_trial(f"t{i}") for i in range(3)]
    end(oracle, trials[1], 1)
    oracle.reload()
    assert oracle.ongoing_trials == {}
    assert [oracle.create_trial(f"u{i}").trial_id for i in range(3)] == ["00", "02", "03"]


def test_reloading_where_nothing_is_does_nothing(tmp_path):
    for name in ORACLES:
        oracle = made(name, tmp_path, name)
        oracle.reload()
        assert oracle.create_trial("t").status == "RUNNING"

"""The wrapper around stock oracles: forwards all, changes no suggestion, writes whole files."""

import json
import pathlib
import random

import keras_tuner
import pytest

from tests.tuner.oracles.driver import end, exact, outcome, placed, search, space
from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError
from tf_ext.tuner.oracles import BayesianOptimizationOracle, RandomSearchOracle, StagedOracle, StageOracle, _export

STOCK = keras_tuner.oracles


def wrapped(directory, name="search", **settings):
    arguments = {"objective": "loss", "max_trials": 8, "seed": 2, "hyperparameters": space()} | settings
    return placed(StageOracle(STOCK.RandomSearchOracle(**arguments)), directory, name)


def test_it_stands_for_the_oracle_that_it_was_given(tmp_path):
    inner = STOCK.RandomSearchOracle("loss", max_trials=8, seed=2, hyperparameters=space())
    oracle = placed(StageOracle(inner), tmp_path)
    assert isinstance(oracle, keras_tuner.Oracle)
    assert isinstance(oracle, StagedOracle)
    search(oracle)
    for name in ("trials", "objective", "hyperparameters", "seed", "end_order", "ongoing_trials", "tuner_ids"):
        assert getattr(oracle, name) is getattr(inner, name), name
    assert oracle.get_best_trials(2) == inner.get_best_trials(2)
    assert oracle.get_best_trials()[0].score == min(trial.score for trial in inner.trials.values())
    assert oracle.get_trial("3") is inner.trials["3"]
    assert oracle.remaining_trials() == 0
    assert len(oracle.get_space().space) == 3
    oracle.max_trials = 10
    oracle.multi_worker = True
    oracle.verbose = 0
    assert (inner.max_trials, inner.multi_worker, inner.verbose) == (10, True, 0)
    assert oracle.create_trial("t").trial_id == "08"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = oracle.no_such_thing


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: STOCK.RandomSearchOracle("loss", max_trials=5), None),
        (lambda: STOCK.RandomSearchOracle("loss", max_trials=None), 128),
        (lambda: STOCK.GridSearchOracle("loss"), None),
        (lambda: STOCK.HyperbandOracle("loss"), None),
        (lambda: STOCK.HyperbandOracle("loss", hyperband_iterations=None), 128),
        (lambda: keras_tuner.Oracle("loss"), 1),
    ],
)
def test_how_far_it_looks_ahead(make, expected):
    assert StageOracle(make()).lookahead == expected
    assert StageOracle(make(), lookahead=7).lookahead == 7


@pytest.mark.parametrize(
    "make",
    [
        lambda: STOCK.RandomSearchOracle("loss", max_trials=10, seed=2, hyperparameters=space(conditional=True)),
        lambda: STOCK.GridSearchOracle("loss", max_trials=10, hyperparameters=space(conditional=True)),
        lambda: STOCK.HyperbandOracle("loss", max_epochs=4, factor=2, seed=2, hyperparameters=space()),
    ],
)
def test_it_changes_no_suggestion(tmp_path, make):
    alone = placed(make(), tmp_path, "alone")
    while (trial := alone.create_trial("tuner0")).status == "RUNNING":
        alone.first_target = lambda trial, epochs: trial.hyperparameters.values.get("tuner/epochs", epochs)
        alone.advance = lambda trial_id, history: None
        end(alone, trial, 10)
    assert exact(search(placed(StageOracle(make()), tmp_path), width=1)) == exact(alone)


def test_the_rungs_of_hyperband_are_known_and_who_may_climb(tmp_path):
    oracle = StageOracle(STOCK.HyperbandOracle("loss", max_epochs=10, factor=3, seed=1, hyperparameters=space()))
    assert oracle.cut_epochs() == {10, 4, 2}
    search(placed(oracle, tmp_path))
    assert {trial.hyperparameters.values["tuner/epochs"] for trial in oracle.trials.values()} == {10, 4, 2}
    continued = {trial.hyperparameters.values.get("tuner/trial_id") for trial in oracle.trials.values()}
    for trial_id, trial in oracle.trials.items():
        values = trial.hyperparameters.values
        last = values["tuner/epochs"] == 10
        assert oracle.can_resume(trial_id) == (not last and trial_id not in continued)
    assert not wrapped(tmp_path, "other").can_resume("0")


def test_a_state_names_only_trials_that_lie_on_the_disk(tmp_path, monkeypatch):
    """Whatever is killed when: `oracle.json` is whole at each moment, and the trials that it names are there."""
    seen = []
    write = _export.write_trial

    def looked(oracle, trial):
        path = pathlib.Path(oracle._project_dir) / "oracle.json"
        for each in json.loads(path.read_text())["start_order"] if path.exists() else []:
            assert (path.parent / f"trial_{each}" / "trial.json").exists()
            seen.append(each)
        write(oracle, trial)

    monkeypatch.setattr(_export, "write_trial", looked)
    search(wrapped(tmp_path), order=random.Random(1), width=3)
    assert len(seen) > 8


def test_creating_trials_writes_nothing(tmp_path):
    oracle = wrapped(tmp_path)
    trials = [oracle.create_trial(f"t{i}") for i in range(5)]
    assert list(tmp_path.rglob("*.json")) == []
    end(oracle, trials[0], 1)
    assert len(list(tmp_path.rglob("trial.json"))) == 5


def test_too_many_failures_end_the_search_and_a_restart_tries_again(tmp_path):
    def fail(values, epochs):
        raise ArithmeticError("no")

    oracle = wrapped(tmp_path)
    with pytest.raises(RuntimeError, match="exceeded the limit of 3"):
        search(oracle, curve=fail, width=1)
    assert oracle.end_order == ["0", "1"]
    assert oracle.trials["2"].status == "RUNNING"  # another search in this process would try it again, too
    again = wrapped(tmp_path)
    again.reload()
    assert [trial.status for trial in again.trials.values()] == ["FAILED"] * 2
    search(again)
    assert [trial.status for trial in again.trials.values()] == ["FAILED"] * 2 + ["COMPLETED"] * 6


def test_states_that_cannot_be_read_are_told(tmp_path):
    search(wrapped(tmp_path))
    with pytest.raises(PlanMismatchError, match="the state of HyperbandOracle, got one without"):
        placed(StageOracle(STOCK.HyperbandOracle("loss", hyperparameters=space())), tmp_path).reload()
    path = tmp_path / "search" / "oracle.json"
    path.write_text(path.read_text()[:99])
    with pytest.raises(CorruptedPlanError, match="cut short .* `overwrite=True`"):
        wrapped(tmp_path).reload()


def test_only_oracles_that_need_it_are_wrapped():
    with pytest.raises(TypeError, match="needs no wrapper"):
        StageOracle(RandomSearchOracle("loss"))
    with pytest.raises(TypeError, match="expected an oracle"):
        StageOracle("random")
    with pytest.raises(ValueError, match="`lookahead` to be a whole number, at least 1, got 0"):
        StageOracle(STOCK.RandomSearchOracle("loss"), lookahead=0)


def _bayesian(kind, directory, name):
    hp = keras_tuner.HyperParameters()
    hp.Float("rate", 0, 1)
    settings = {"max_trials": 6, "num_initial_points": 2, "seed": 2, "hyperparameters": hp}
    oracle = kind("loss", **settings)
    return placed(oracle if isinstance(oracle, StagedOracle) else StageOracle(oracle), directory, name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BayesianOptimizationOracle, STOCK.BayesianOptimizationOracle])
def test_bayesian_optimization_goes_on_with_the_same_random_numbers(tmp_path, kind):
    try:
        STOCK.BayesianOptimizationOracle("loss")
    except ImportError:
        with pytest.raises(ImportError, match="scikit-learn"):
            kind("loss")
        return
    undisturbed = search(_bayesian(kind, tmp_path, "undisturbed"))
    alone = search(_bayesian(STOCK.BayesianOptimizationOracle, tmp_path, "stock"))
    assert outcome(undisturbed) == outcome(alone)
    oracle = _bayesian(kind, tmp_path, "killed")
    assert oracle.lookahead == 1
    for number in range(4):
        end(oracle, oracle.create_trial(f"t{number}"), 10)
    again = _bayesian(kind, tmp_path, "killed")
    again.reload()
    assert exact(search(again)) == exact(undisturbed)

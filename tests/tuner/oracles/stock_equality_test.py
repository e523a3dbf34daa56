"""What our oracles suggest is what Keras Tuner's suggest with the same seed, where they mean the same."""

import itertools
import random

import keras_tuner
import pytest

from tests.tuner.oracles.driver import end, placed, plain, search, space
from tf_ext.tuner.oracles import GridSearchOracle, HyperbandOracle, RandomSearchOracle
from tf_ext.tuner.oracles._grid import combinations

STOCK = keras_tuner.oracles


def nested() -> keras_tuner.HyperParameters:
    """Conditions below conditions, all kinds of hyper-parameters, defaults that are not the first value."""
    hp = keras_tuner.HyperParameters()
    hp.Choice("kind", ["mlp", "cnn"], default="cnn")
    with hp.conditional_scope("kind", ["mlp"]):
        hp.Int("layers", 1, 3)
        hp.Boolean("norm", default=True)
        with hp.conditional_scope("norm", [True]):
            hp.Choice("momentum", [0.8, 0.85, 0.9])
    with hp.conditional_scope("kind", ["cnn"]):
        hp.Int("filters", 2, 8, step=2, sampling="log")
    hp.Fixed("width", 3)
    hp.Float("rate", 1e-3, 1e-1, step=10, sampling="log", default=1e-2)
    return hp


def values_of(oracle) -> list[dict]:
    return [trial.hyperparameters.values for trial in oracle.trials.values()]


@pytest.mark.parametrize("seed", [1, 7, 1234])
@pytest.mark.parametrize("make_space", [space, nested, lambda: space(conditional=True)])
def test_random_search_draws_what_the_stock_one_draws(tmp_path, seed, make_space):
    def settings():
        return {"max_trials": 12, "seed": seed, "hyperparameters": make_space()}

    stock = search_stock(placed(STOCK.RandomSearchOracle("loss", **settings()), tmp_path, "stock"))
    ours = search(placed(RandomSearchOracle("loss", **settings()), tmp_path), order=random.Random(seed))
    assert values_of(ours) == values_of(stock)
    assert list(ours.trials) == list(stock.trials)
    assert [trial.score for trial in ours.trials.values()] == [trial.score for trial in stock.trials.values()]


def search_stock(oracle):
    """One trial after the other, as Keras Tuner's own loop has it."""
    while (trial := oracle.create_trial("tuner0")).status == "RUNNING":
        end_stock(oracle, trial)
    assert trial.status == "STOPPED"
    return oracle


def end_stock(oracle, trial):
    oracle.first_target = lambda trial, epochs: trial.hyperparameters.values.get("tuner/epochs", epochs)
    oracle.advance = lambda trial_id, history: None
    end(oracle, trial, 10)


@pytest.mark.parametrize("make_space", [nested, lambda: space(conditional=True)])
def test_the_grid_has_the_order_of_the_stock_one(tmp_path, make_space):
    stock = search_stock(
        placed(STOCK.GridSearchOracle("loss", max_trials=45, hyperparameters=make_space()), tmp_path, "s")
    )
    ours = search(placed(GridSearchOracle("loss", max_trials=45, hyperparameters=make_space()), tmp_path))
    assert len(ours.trials) > 20
    assert values_of(ours) == values_of(stock)
    assert list(ours.trials) == list(stock.trials)


def test_the_grid_is_suggested_at_once_and_each_combination_once(tmp_path):
    oracle = placed(GridSearchOracle("loss", hyperparameters=nested()), tmp_path)
    trials = []
    while (trial := oracle.create_trial(f"tuner0-{len(trials)}")).status == "RUNNING":
        trials.append(tuple(sorted(trial.hyperparameters.values.items())))
    assert trial.status == "IDLE"  # one of them may still bring hyper-parameters
    rates = 3
    mlp, cnn = 3 * (3 + 1), 3  # layers * (momentum with the norm, none without); filters
    assert len(trials) == len(set(trials)) == rates * (mlp + cnn)
    filters = {values["filters"] for values in map(dict, trials) if "filters" in values}
    assert filters == {2, 4, 8}
    assert all(isinstance(each, int) for each in filters)  # Keras Tuner gives 4.0 where an Int has steps


def test_a_name_under_two_conditions_takes_the_values_of_the_active_one():
    hp = keras_tuner.HyperParameters()
    hp.Choice("kind", ["a", "b"])
    with hp.conditional_scope("kind", ["a"]):
        hp.Choice("units", [1, 2])
    with hp.conditional_scope("kind", ["b"]):
        hp.Choice("units", [30, 40, 50])
    found = [tuple(values.values()) for values in combinations(hp.space)]
    assert found == [("a", 1), ("a", 2), ("b", 30), ("b", 40), ("b", 50)]


def test_a_plain_grid_counts_like_an_odometer():
    hp = keras_tuner.HyperParameters()
    hp.Choice("x", [1, 2, 3], default=2)
    hp.Boolean("y")
    hp.Choice("z", ["p", "q"])
    found = [tuple(values.values()) for values in combinations(hp.space)]
    assert found == list(itertools.product([2, 1, 3], [False, True], ["p", "q"]))


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_grid_takes_in_what_its_trials_bring(tmp_path, at_once):
    """The model asks for `depth` only when it is built: all combinations with it are tried, none twice."""
    hp = keras_tuner.HyperParameters()
    hp.Choice("kind", ["a", "b"])
    oracle = placed(GridSearchOracle("loss", hyperparameters=hp), tmp_path)

    def curve(values, epochs):
        for trial in oracle.ongoing_trials.values():
            trial.hyperparameters.Choice("depth", [1, 2, 3])
        return [1.0] * epochs

    search(oracle, curve=curve, width=at_once)
    found = [tuple(sorted(values.items())) for values in values_of(oracle)]
    assert sorted(found) == sorted((("depth", d), ("kind", k)) for d in (1, 2, 3) for k in "ab")


@pytest.mark.parametrize(("max_epochs", "factor"), [(9, 3), (10, 3), (16, 2), (1, 3)])
def test_hyperband_has_the_brackets_and_first_values_of_the_stock_one(tmp_path, max_epochs, factor):
    def settings():
        return {"max_epochs": max_epochs, "factor": factor, "seed": 5, "hyperparameters": space(conditional=True)}

    stock = search_stock(placed(STOCK.HyperbandOracle("loss", **settings()), tmp_path, "stock"))
    ours = search(placed(HyperbandOracle("loss", **settings()), tmp_path), order=random.Random(2))

    def first(oracle):
        return [plain(v) for v in values_of(oracle) if v["tuner/round"] == 0]

    def shape(oracle):
        # Keras Tuner writes the wrong bracket where it promotes; epochs and rounds say what is what.
        return sorted((v["tuner/epochs"], v["tuner/initial_epoch"], v["tuner/round"]) for v in values_of(oracle))

    assert first(ours) == first(stock)
    assert shape(ours) == shape(stock)


def test_hyperband_repeats_its_brackets(tmp_path):
    once, twice = (
        search(placed(HyperbandOracle("loss", 4, 2, n, seed=1, hyperparameters=space()), tmp_path, str(n)))
        for n in (1, 2)
    )
    assert len(twice.trials) == 2 * len(once.trials)
    assert twice.cut_epochs() == {1, 2, 4}


def test_an_endless_hyperband_opens_one_iteration_at_a_time(tmp_path):
    oracle = placed(HyperbandOracle("loss", 4, 2, None, seed=1, hyperparameters=space()), tmp_path)
    opened = []
    while (trial := oracle.create_trial(f"t{len(opened)}")).status == "RUNNING":
        opened.append(trial)
    first_rungs = 4 + 3 + 3
    assert (trial.status, len(opened)) == ("IDLE", first_rungs)

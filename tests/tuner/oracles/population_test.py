"""Population-based training: who is continued, what changes, and that a changed value is a sequence."""

import math
import random
import tempfile

import hypothesis
import hypothesis.strategies as st
import keras_tuner
import pytest
from keras_tuner.engine.trial import Trial

from tests.tuner.oracles.driver import KilledError, outcome, placed, plain, search, space
from tf_ext.tuner.oracles import PopulationBasedTrainingOracle
from tf_ext.tuner.oracles._perturb import changeable, changed, sequence_of
from tf_ext.tuner.segments import Sequence, path_of

QUICK = hypothesis.settings(max_examples=5, deadline=None)


def schedules() -> keras_tuner.HyperParameters:
    hp = keras_tuner.HyperParameters()
    hp.Float("rate", 1e-4, 1.0, sampling="log")
    hp.Int("batch", 8, 128)
    hp.Choice("units", [16, 32, 64])
    hp.Choice("plan", ["0.1@0|0.01@4", "0.2@0"])
    return hp


def pbt(directory, name="search", *, direction="min", **settings):
    arguments = {"population": 6, "interval": 2, "max_epochs": 8, "quantile": 0.34, "seed": 1} | settings
    arguments.setdefault("hyperparameters", schedules())
    arguments.setdefault("perturb", ["rate", "batch"])
    oracle = PopulationBasedTrainingOracle(
        keras_tuner.Objective("loss", direction), max_consecutive_failed_trials=1000, **arguments
    )
    return placed(oracle, directory, name)


def curve(values, epochs):
    """Depends on the values at each epoch, so that what was changed later does not change what was before."""
    names = {name: Sequence.parse(v) if Sequence.is_text(v) else v for name, v in plain(values).items()}
    scores = []
    for segment in path_of(names, epochs):
        for epoch in range(segment.start, segment.end):
            scores.append(random.Random(f"{segment.config} {epoch}").random())
    return scores


def generations(oracle):
    found = {}
    for trial in oracle.trials.values():
        values = trial.hyperparameters.values
        found.setdefault(values["tuner/round"], {})[values["tuner/member"]] = trial
    return found


@hypothesis.given(seed=st.integers(0, 10**6))
@QUICK
def test_results_depend_on_the_scores_alone(seed):
    with tempfile.TemporaryDirectory() as directory:
        one = search(pbt(directory, "one"), curve=curve)
        two = search(pbt(directory, "two"), curve=curve, order=random.Random(seed), width=seed % 5 + 1)
        assert outcome(one) == outcome(two)
        assert len(one.trials) == 6 * 4


@pytest.mark.parametrize("ended", [3, 6, 11])
def test_the_last_epochs_are_remembered_after_a_restart(tmp_path, ended):
    """The best epoch, which the trial's score tells, ranks the members differently."""
    with pytest.raises(KilledError):
        search(pbt(tmp_path), curve=curve, stop_after=ended)
    again = pbt(tmp_path)
    again.reload()
    search(again, curve=curve, order=random.Random(1))
    assert outcome(again) == outcome(search(pbt(tmp_path, "undisturbed"), curve=curve))


@pytest.mark.parametrize("direction", ["min", "max"])
def test_the_worst_continue_the_best_and_the_others_themselves(tmp_path, direction):
    oracle, told = pbt(tmp_path, direction=direction), []
    oracle.on_decision = told.append
    search(oracle, curve=curve, order=random.Random(4))
    found = generations(oracle)
    assert [len(found[number]) for number in range(4)] == [6, 6, 6, 6]
    exploits = {(e["generation"], e["member"]): e for e in told if e["decision"] == "exploit"}
    for number in range(1, 4):
        before = found[number - 1]
        last = {m: curve(t.hyperparameters.values, 2 * number)[-1] for m, t in before.items()}
        ranked = sorted(last, key=last.__getitem__, reverse=direction == "max")
        top, bottom = ranked[:2], ranked[-2:]
        assert {member for generation, member in exploits if generation == number} == set(bottom)
        for member, trial in found[number].items():
            values = trial.hyperparameters.values
            parent = oracle.trials[values["tuner/trial_id"]]
            assert (values["tuner/initial_epoch"], values["tuner/epochs"]) == (2 * number, 2 * number + 2)
            if member in bottom:
                assert parent in [before[m] for m in top]
                assert exploits[number, member]["replaces"] == before[member].trial_id
            else:
                assert parent is before[member]
                assert plain(values) == plain(parent.hyperparameters.values)


def test_what_changes_is_a_sequence_whose_beginning_is_that_of_the_exploited(tmp_path):
    oracle, told = pbt(tmp_path), []
    oracle.on_decision = told.append
    search(oracle, curve=curve)
    exploits = [event for event in told if event["decision"] == "exploit"]
    assert len(exploits) == 2 * 3
    changes = 0
    for event in exploits:
        child, parent = (oracle.trials[event[key]].hyperparameters for key in ("trial_id", "parent"))
        assert child.values["units"] == parent.values["units"]  # not among those that may change
        assert child.values["plan"] == parent.values["plan"]
        for hp in child.space[:2]:
            now, before = (sequence_of(hp, hps.values[hp.name]) for hps in (child, parent))
            for epoch in range(event["epoch"]):
                assert now.at(epoch) == before.at(epoch)
            assert now.starts[-1] <= event["epoch"]
            assert all(hp.min_value <= value <= hp.max_value for value in now.values)
            changes += now != before
    assert changes >= len(exploits)
    texts = [t.hyperparameters.values["rate"] for t in oracle.trials.values()]
    assert any(isinstance(text, str) and text.count("|") >= 2 for text in texts)
    for trial in oracle.trials.values():  # kept by the wire, of which scalars alone survive
        assert Trial.from_proto(trial.to_proto()).hyperparameters.values.keys() == trial.hyperparameters.values.keys()


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_failed_member_is_replaced(tmp_path, share):
    def fail(values, epochs):
        if values["tuner/round"] == 0 and values["tuner/member"] < 6 * share:
            if values["tuner/member"] % 2:
                raise ArithmeticError("no")
            return [math.nan] * epochs
        return curve(values, epochs)

    found = generations(search(pbt(tmp_path), curve=fail))
    if share == 1.0:
        assert list(found) == [0]
        return
    for member, trial in found[1].items():
        parent = trial.hyperparameters.values["tuner/trial_id"]
        assert parent in [found[0][m].trial_id for m in (3, 4, 5)]
        assert member < 3 or trial.status == "COMPLETED"


def test_a_checkpoint_is_kept_until_nobody_can_continue_it(tmp_path):
    oracle = pbt(tmp_path, population=4, quantile=0.25)
    trials = [oracle.create_trial(f"t{i}") for i in range(4)]
    scores = [3.0, 1.0, 2.0, 4.0]
    for trial, score in zip(trials, scores, strict=True):
        assert oracle.can_resume(trials[0].trial_id)
        oracle.advance(trial.trial_id, [{"loss": 0.0}, {"loss": score}])
        oracle.update_trial(trial.trial_id, {"loss": 0.0}, step=0)
        trial.status = "COMPLETED"
        oracle.end_trial(trial)
    ids = [trial.trial_id for trial in trials]
    assert [oracle.can_resume(i) for i in ids] == [True, True, True, False]  # the last one is replaced
    following = []
    for number in range(4):
        following.append(oracle.create_trial(f"u{number}").hyperparameters.values["tuner/trial_id"])
        assert [oracle.can_resume(i) for i in ids] == [number < 0, number < 3, number < 2, False]
    assert following == [ids[0], ids[1], ids[2], ids[1]]


def test_an_exhausted_space_makes_a_smaller_population(tmp_path):
    hp = keras_tuner.HyperParameters()
    hp.Choice("rate", [0.1, 0.2, 0.3])
    found = generations(search(pbt(tmp_path, hyperparameters=hp, perturb=None), curve=curve))
    assert [len(members) for members in found.values()] == [3, 3, 3, 3]


def test_what_others_depend_on_never_changes():
    hps = space(conditional=True)
    hps.Fixed("width", 3)
    hps.Choice("plan", ["0.1@0|0.01@4", "0.2@0"])
    assert [hp.name for hp in changeable(hps.space, None)] == ["rate", "units", "norm"]
    assert [hp.name for hp in changeable(hps.space, frozenset({"rate", "kind"}))] == ["rate"]


def _hp(make):
    hps = keras_tuner.HyperParameters()
    make(hps)
    return hps.space[0]


@pytest.mark.parametrize(
    ("make", "value", "factor", "expected"),
    [
        (lambda h: h.Float("x", 0.0, 1.0), 0.5, 1.2, "0.5@0|0.6@3"),
        (lambda h: h.Float("x", 0.0, 0.55), 0.5, 1.2, "0.5@0|0.55@3"),
        (lambda h: h.Float("x", 0.0, 1.0), 1.0, 1.2, 1.0),
        (lambda h: h.Float("x", 0.0, 1.0), "0.5@0|0.25@1", 2.0, "0.5@0|0.25@1|0.5@3"),
        (lambda h: h.Float("x", 0.0, 1.0, step=0.25), 0.5, 1.2, "0.5@0|0.75@3"),
        (lambda h: h.Float("x", 0.001, 1.0, step=10, sampling="log"), 0.001, 1.2, "0.001@0|0.01@3"),
        (lambda h: h.Int("x", 1, 10), 1, 1.2, "1@0|2@3"),
        (lambda h: h.Int("x", 1, 10), 10, 0.8, "10@0|8@3"),
        (lambda h: h.Int("x", 1, 10**12), 10**9, 0.8, "1000000000@0|800000000@3"),
        (lambda h: h.Int("x", 2, 32, step=2, sampling="log"), 8, 0.8, "8@0|4@3"),
        (lambda h: h.Int("x", 2, 32, step=2, sampling="log"), 32, 1.2, 32),
    ],
)
def test_a_number_is_multiplied_within_what_the_space_allows(make, value, factor, expected):
    assert changed(_hp(make), value, 3, random.Random(0), (factor,), 0.0) == expected


def test_a_choice_moves_to_a_neighbour_or_is_drawn():
    numbers = _hp(lambda h: h.Choice("x", [10, 30, 20]))
    found = {changed(numbers, 20, 3, random.Random(i), (1.2,), 0.0) for i in range(20)}
    assert found == {"20@0|10@3", "20@0|30@3"}
    assert {changed(numbers, 10, 3, random.Random(i), (1.2,), 0.0) for i in range(20)} == {10, "10@0|20@3"}
    texts = _hp(lambda h: h.Choice("x", ["sgd", "adam", "lion"]))
    found = {changed(texts, "sgd", 3, random.Random(i), (1.2,), 0.0) for i in range(40)}
    assert found == {"sgd", "sgd@0|adam@3", "sgd@0|lion@3"}
    assert str(changed(texts, "sgd@0|adam@3", 5, random.Random(1), (1.2,), 0.0)).startswith("sgd@0")
    truth = _hp(lambda h: h.Boolean("x"))
    assert {changed(truth, False, 3, random.Random(i), (1.2,), 0.0) for i in range(20)} == {False, "False@0|True@3"}


def test_resampling_draws_afresh():
    hp = _hp(lambda h: h.Float("x", 0.0, 1.0))
    found = {changed(hp, 0.5, 3, random.Random(i), (1.2,), 1.0) for i in range(20)}
    assert len(found) == 20
    assert "0.5@0|0.6@3" not in found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"population": 1}, "`population` to be a whole number, at least 2, got 1"),
        ({"interval": 0}, "`interval` to be a whole number, at least 1"),
        ({"max_epochs": 0}, "`max_epochs` to be a whole number"),
        ({"quantile": 0.6}, "`quantile` from 0.0 to 0.5, got 0.6"),
        ({"quantile": "half"}, "`quantile` to be a number from 0.0 to 0.5"),
        ({"resample_probability": -0.1}, "`resample_probability` from 0.0 to 1.0"),
        ({"perturbation_factors": ()}, "`perturbation_factors` to be positive"),
        ({"perturbation_factors": (0.8, -1)}, "`perturbation_factors` to be positive"),
        ({"perturb": "rate"}, r"Write \['rate'\]"),
    ],
)
def test_contradictory_arguments_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        PopulationBasedTrainingOracle("loss", **arguments)

"""The simulator: who goes on, what is shared, and bounds that no schedule goes below."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import tuner_studies
from tf_ext.tuner import _bounds, _exact, _simulation
from tf_ext.tuner.scheduler import BreadthFirstScheduler, CriticalPathScheduler
from tf_ext.tuner.segments import Sequence
from tf_ext.tuner.simulator import StudyDefinition, simulate, synthetic_score


def _cost(config, epochs):
    return float(epochs)


def _forked(count, at=60, epochs=90):
    """Trials that are equal up to an epoch."""
    return tuple(({"lr": Sequence.of([(0.1, 0), (0.1 / (i + 2), at)])}, epochs) for i in range(count))


def test_a_grid_with_one_fork_takes_what_is_worked_out_by_hand():
    result = simulate(StudyDefinition("fork", _forked(4)), 2, _cost)
    assert (result.trial_based.makespan, result.stage_based.makespan) == (180.0, 120.0)
    assert (result.trial_based.epochs, result.stage_based.epochs) == (360, 180)
    assert result.merge_rate == 2.0 and result.speedup == 1.5
    assert result.stage_based.gpu_hours == pytest.approx(180 / 3600)
    # 60 epochs alone, then 30 each for four; the simple bound knows nothing of the worker that waits.
    assert (result.stage_based.lower_bound, result.stage_based.tighter_bound) == (90.0, 120.0)


def test_everything_printed_is_labelled_as_simulated():
    for study in (StudyDefinition("fork", _forked(4)), StudyDefinition("alone", (({"lr": 0.1}, 9),))):
        for line in simulate(study, 2, _cost).explain().splitlines():
            assert "simulated" in line


def test_trial_based_execution_resumes_from_the_rung_before():
    study = StudyDefinition("sha", tuple(({"lr": 1.0 + i}, 16) for i in range(16)), "sha", reduction=4, min_epochs=1)
    result = simulate(study, 4, _cost)
    # 16 to epoch 1, four on to 4, one on to 16.
    assert result.trial_based.epochs == result.stage_based.epochs == 16 + 4 * 3 + 12
    assert result.merge_rate == 1.0
    # Rung by rung: 16 / 4, then one each of 3, then one of 12.
    assert result.trial_based.makespan == result.trial_based.lower_bound == 4 + 3 + 12


def _driver(study, share=True, replay=None, workers=3, scheduler=CriticalPathScheduler):
    studies = [study] if isinstance(study, StudyDefinition) else study
    driver = _simulation.Driver(studies, workers, _cost, scheduler, share, replay)
    driver.run()
    return driver


@st.composite
def _studies(draw):
    """Studies over a small space, so that much is shared and many scores are equal."""
    rate = st.sampled_from([0.1, 0.01]).flatmap(
        lambda first: st.integers(1, 8).map(lambda at: Sequence.of([(first, 0), (first / 10, at)]))
    )
    trials = draw(st.lists(st.tuples(st.fixed_dictionaries({"lr": rate}), st.just(9)), min_size=1, max_size=14))
    algorithm = draw(st.sampled_from(["grid", "sha", "asha"]))
    return StudyDefinition("s", tuple(trials), algorithm, 3, draw(st.integers(1, 4)), draw(st.integers(0, 3)))


@settings(max_examples=30, deadline=None)
@given(st.lists(_studies(), min_size=1, max_size=3), st.integers(1, 4))
def test_both_ways_decide_the_same_and_sharing_runs_every_distinct_epoch_once(studies, workers):
    alone = _driver(studies, share=False, workers=workers)
    shared = _driver(studies, replay=alone.decisions, workers=workers)
    assert shared.decisions.keys() == alone.decisions.keys()
    requests = [_simulation.Request(s, t, 0) for s, study in enumerate(studies) for t in range(len(study.trials))]
    requests += alone.decisions
    epochs, trial_epochs = set(), set()
    for request in requests:
        study = studies[request.study]
        lasting = [s.config for s in shared.path(request) for _ in range(s.end - s.start)]
        epochs |= {tuple(lasting[:n]) for n in range(1, len(lasting) + 1)}
        trial_epochs |= {(request.study, request.trial, n) for n in range(study.rungs(request.trial)[request.rung])}
    assert shared.result().epochs == len(epochs) and shared.tree.repeated == 0
    assert alone.result().epochs == len(trial_epochs)
    result = simulate(studies, workers, _cost)
    for run in (result.trial_based, result.stage_based):
        assert run.lower_bound <= run.tighter_bound + 1e-9 and run.tighter_bound <= run.makespan + 1e-9


def test_successive_halving_promotes_the_best_of_a_full_rung():
    trials = tuple(({"lr": 1.0 + i}, 9) for i in range(9))
    study = StudyDefinition("sha", trials, "sha", reduction=3, min_epochs=1, seed=5)
    driver = _driver(study, share=False)
    going = {request.trial for request in driver.decisions if request.rung == 1}
    best = sorted(range(9), key=lambda trial: -synthetic_score(study.path(trial, 1), 5))[:3]
    assert going == set(best)
    assert set(driver.decisions.values()) == {9, 3}


def test_asynchronous_halving_does_not_wait_for_the_rung():
    trials = tuple(({"lr": 1.0 + i}, 9) for i in range(27))
    study = StudyDefinition("asha", trials, "asha", reduction=3, min_epochs=1)
    decisions = _driver(study, share=False).decisions
    counts = {request.trial: count for request, count in decisions.items() if request.rung == 1}
    assert min(counts.values()) == 3  # the best of the first three
    best = sorted(range(27), key=lambda trial: -synthetic_score(study.path(trial, 1)))[:9]
    assert set(best) <= set(counts)


def test_scores_depend_on_the_path_alone_and_differ_by_seed():
    study = StudyDefinition("s", _forked(2))
    assert synthetic_score(study.path(0, 60)) == synthetic_score(study.path(1, 60))
    assert synthetic_score(study.path(0, 61)) != synthetic_score(study.path(1, 61))
    assert synthetic_score(study.path(0, 60)) != synthetic_score(study.path(0, 60), seed=1)


def test_what_cannot_be_simulated_is_refused():
    with pytest.raises(ValueError, match="at least one study"):
        simulate([], 2, _cost)
    with pytest.raises(ValueError, match="above 0 s"):
        simulate(StudyDefinition("s", _forked(1)), 2, lambda config, epochs: 0.0)
    with pytest.raises(ValueError, match="at least one trial"):
        StudyDefinition("s", ())
    with pytest.raises(ValueError, match="'grid', 'sha' or 'asha'"):
        StudyDefinition("s", _forked(1), "hyperband")
    with pytest.raises(ValueError, match="reduction >= 2"):
        StudyDefinition("s", _forked(1), "sha", reduction=1)


def test_the_scheduler_can_be_exchanged():
    study = dataclasses.replace(tuner_studies.fine_tuning(), trials=tuner_studies.fine_tuning().trials[:20])
    runs = [simulate(study, 3, _cost, scheduler) for scheduler in (CriticalPathScheduler, BreadthFirstScheduler)]
    assert runs[0].merge_rate == runs[1].merge_rate
    assert runs[0].stage_based.switches < runs[1].stage_based.switches


def test_continuous_values_share_nothing():
    result = simulate(tuner_studies.continuous(), 40, tuner_studies.stage_cost)
    assert result.merge_rate == 1.0 and "do not help" in result.explain()


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(1, 7), st.integers(1, 3))
def test_no_bound_is_above_the_optimum(data, count, workers):
    costs = data.draw(st.lists(st.integers(1, 9).map(float), min_size=count, max_size=count))
    parents = [data.draw(st.integers(-1, job - 1)) for job in range(count)]
    best = _exact.plan(_exact.Problem(costs, parents, [0.0] * count, [0.0] * workers)).makespan
    jobs = _bounds.Jobs(costs, parents)
    assert _bounds.simple(jobs, workers) <= _bounds.tighter(jobs, workers) <= best + 1e-9


def test_the_tighter_bound_knows_that_stages_are_not_divisible_and_that_roots_run_alone():
    assert _bounds.tighter(_bounds.Jobs([2.0] * 4, [-1] * 4), 3) == 4.0
    # Five stages on three workers: two run two each, or one runs three. The four shortest take 5 on average.
    assert _bounds.tighter(_bounds.Jobs([2.0, 2.0, 3.0, 3.0, 4.0], [-1] * 5), 3) == 5.0
    assert _bounds.tighter(_bounds.Jobs([4.0] + [2.0] * 4, [-1, 0, 0, 0, 0]), 2) == 8.0

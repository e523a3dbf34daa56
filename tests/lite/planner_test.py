"""The planner, driven by the simulator: whatever happens, each job ends once, and the books of the workers hold."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lite import scheduling
from tf_ext.lite import simulator
from tf_ext.lite.simulator import Event, Job, Model, Piece, Workload

POLICIES = simulator.policies()
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def model(*latencies: float | None, units: int = 1) -> Model:
    """One whole piece."""
    return Model("whole", units, (Piece(0, units, tuple(latencies)),))


@pytest.mark.parametrize("policy", POLICIES)
@SETTINGS
@given(workload=scheduling.workloads())
def test_each_job_ends_once_whatever_happens(policy, workload):
    scheduling.check(simulator.simulate(workload, policy))


@pytest.mark.parametrize("policy", POLICIES)
@SETTINGS
@given(workload=scheduling.workloads(faults=False))
def test_without_faults_only_what_nobody_supports_fails(policy, workload):
    result = simulator.simulate(workload, policy)
    scheduling.check(result)
    for job, status in zip(workload.jobs, result.status, strict=True):
        possible = _reaches_end(workload.models[job.model], job.pinned)
        assert (status == "failed") == (not possible) or status == "refused"


def _reaches_end(model: Model, pinned: int | None) -> bool:
    reached = {0}
    for piece in sorted(model.pieces, key=lambda piece: piece.begin):
        able = [us is not None and pinned in (None, worker) for worker, us in enumerate(piece.latency_us)]
        if piece.begin in reached and any(able):
            reached.add(piece.end)
    return model.units in reached


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30, deadline=None)
@given(workload=scheduling.workloads())
def test_the_same_workload_gives_the_same_schedule(policy, workload):
    first, second = simulator.simulate(workload, policy), simulator.simulate(workload, policy)
    assert first.runs == second.runs
    assert first.status == second.status


@settings(max_examples=40, deadline=None)
@given(workload=scheduling.workloads(), seed=st.randoms(use_true_random=False))
def test_a_policy_that_answers_nonsense_loses_no_job(workload, seed):
    def nonsense(snapshot):
        numbers = [-2, -1, 0, 1, 2, 3, 99, 2**31 - 1, -(2**31)]
        return [tuple(seed.choice(numbers) for _ in range(3)) for _ in range(snapshot.num_jobs)]

    without_drops = tuple(dataclasses.replace(job, slo_us=9000) for job in workload.jobs)
    scheduling.check(simulator.simulate(dataclasses.replace(workload, jobs=without_drops), nonsense))


@SETTINGS
@given(workload=scheduling.workloads())
def test_a_policy_that_never_decides_starves_nobody(workload):
    scheduling.check(simulator.simulate(workload, lambda snapshot: []))


def test_more_jobs_than_the_limit_are_refused_and_the_others_done():
    workload = Workload("limit", (model(100.0),), tuple(Job(0, 0) for _ in range(5)), 1, queue_limit=3)
    assert simulator.simulate(workload, "heft").status == ("done", "done", "done", "refused", "refused")


def test_the_work_of_a_lost_worker_goes_elsewhere():
    workload = Workload("lost", (model(1000.0, 3000.0),), (Job(0, 0),), 2, events=(Event(400, "worker_lost", 0),))
    result = simulator.simulate(workload)
    assert [(run.worker, run.ok, run.begin_us, run.end_us) for run in result.runs] == [
        (0, False, 0, 400),
        (1, True, 400, 3400),
    ]


def test_a_job_whose_workers_are_all_lost_fails_at_once():
    workload = Workload("lost", (model(1000.0),), (Job(0, 0), Job(0, 500)), 1, events=(Event(400, "worker_lost", 0),))
    result = simulator.simulate(workload)
    assert result.status == ("failed", "failed")
    assert list(result.end_us) == [400, 500]


def test_a_worker_that_comes_back_takes_work_again():
    happens = (Event(0, "worker_lost", 0), Event(500, "worker_back", 0))
    workload = Workload("back", (model(1000.0, 9000.0),), (Job(0, 100), Job(0, 600)), 2, events=happens)
    assert [(run.worker, run.begin_us) for run in simulator.simulate(workload).runs] == [(0, 600), (1, 100)]


def test_what_fails_everywhere_fails():
    happens = (Event(50, "piece_fails", 0), Event(150, "piece_fails", 1))
    workload = Workload("fails", (model(100.0, 100.0),), (Job(0, 0),), 2, events=happens)
    result = simulator.simulate(workload, "heft")
    assert result.status == ("failed",)
    assert [(run.worker, run.ok) for run in result.runs] == [(0, False), (1, False)]


def test_a_unit_that_failed_on_a_worker_does_not_keep_the_next_unit_from_it():
    pieces = (Piece(0, 1, (100.0, 300.0)), Piece(1, 2, (100.0, None)))
    workload = Workload("unit", (Model("two", 2, pieces),), (Job(0, 0),), 2, events=(Event(50, "piece_fails", 0),))
    result = simulator.simulate(workload)
    assert [(run.piece, run.worker, run.ok) for run in result.runs] == [(0, 0, False), (0, 1, True), (1, 0, True)]


def test_a_waiting_job_that_is_cancelled_ends_at_once_and_a_running_one_after_its_piece():
    pieces = (Piece(0, 1, (100.0,)), Piece(1, 2, (100.0,)))
    happens = (Event(30, "cancel_job", 1), Event(40, "cancel_job", 0))
    workload = Workload("cancel", (Model("two", 2, pieces),), (Job(0, 0), Job(0, 0)), 1, events=happens)
    result = simulator.simulate(workload)
    assert result.status == ("cancelled", "cancelled")
    assert list(result.end_us) == [100, 30]


def test_an_idle_worker_takes_what_another_has_queued_if_that_ends_sooner():
    def all_on_the_first(snapshot):
        return [(job, 0, 0) for job in range(snapshot.num_jobs)]

    jobs = tuple(Job(0, 0) for _ in range(4))
    workload = Workload("steal", (model(100.0, 250.0),), jobs, 2)
    assert {run.worker for run in simulator.simulate(workload, all_on_the_first).runs} == {0}, (
        "a user's policy has its way"
    )
    # Three go to worker 0, one to worker 1, at time 0. What worker 0 takes is known once its first piece has ended.
    late = dataclasses.replace(workload, slowdowns=(4.0, 1.0))
    result = simulator.simulate(late, "shortest_expected_latency")
    assert [(run.worker, run.begin_us, run.end_us) for run in result.runs] == [
        (1, 0, 250),
        (0, 0, 400),
        (1, 400, 650),
        (0, 400, 800),
    ]


def test_throttling_is_noticed_and_forgotten():
    """A worker that takes three times as long loses its work to the second one, and has it back when it is cool again."""
    jobs = tuple(Job(0, 2000 * i) for i in range(10)) + (Job(0, 10_000_000),)
    workload = Workload("hot", (model(1000.0, 1800.0),), jobs, 2, events=(Event(0, "throttle", 0, 3.0),))
    result = simulator.simulate(workload)
    workers = [run.worker for run in sorted(result.runs, key=lambda run: run.job)]
    assert workers[0] == 0
    assert workers[5:10] == [1] * 5
    assert workers[10] == 0


def test_expectations_follow_what_pieces_take():
    seen = []

    def watch(snapshot):
        seen.append(snapshot.models[0].pieces[0].expected[0] * snapshot.workers[0].slowdown)
        return [(0, 0, 0)]

    workload = Workload("slow", (model(1000.0),), tuple(Job(0, 0) for _ in range(40)), 1, slowdowns=(2.0,))
    simulator.simulate(workload, watch)
    assert seen[0] == 1000
    assert seen[-1] == pytest.approx(2000, rel=0.05)

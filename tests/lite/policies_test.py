"""What every policy does: priorities, pinned jobs, absent workers, nothing at all; and that none starves a job."""

import itertools
import random

import pytest

from tf_ext.lite import simulator, workloads
from tf_ext.lite.simulator import Event, Job, Model, Piece, Workload

POLICIES = simulator.policies()
every_policy = pytest.mark.parametrize("policy", POLICIES)


def whole(*latencies: float | None) -> Model:
    return Model("whole", 1, (Piece(0, 1, tuple(latencies)),))


def test_the_paper_s_policies_and_our_own():
    assert POLICIES == (
        "adaptive",
        "fixed",
        "round_robin",
        "shortest_expected_latency",
        "heft",
        "heft_reserved",
        "least_slack",
    )


@every_policy
def test_nothing_to_do(policy):
    assert simulator.simulate(Workload("nothing", (whole(1.0),), (), 1), policy).runs == ()


@every_policy
def test_what_nobody_supports_fails_and_holds_up_nobody(policy):
    impossible = Model("gap", 2, (Piece(0, 1, (100.0, 100.0)), Piece(1, 2, (None, None))))
    pieceless = Model("no pieces", 1, ())
    jobs = (Job(0, 0), Job(1, 0), Job(2, 0))
    result = simulator.simulate(Workload("gap", (impossible, pieceless, whole(100.0, None)), jobs, 2), policy)
    assert result.status == ("failed", "failed", "done")
    assert [run.job for run in result.runs] == [2], "no time is spent on a job that cannot be brought to its end"


@every_policy
def test_all_workers_absent(policy):
    happens = tuple(Event(0, "worker_lost", worker) for worker in range(2))
    result = simulator.simulate(Workload("absent", (whole(9.0, 9.0),), (Job(0, 5),), 2, events=happens), policy)
    assert result.status == ("failed",)


@every_policy
def test_the_larger_priority_goes_first(policy):
    jobs = tuple(Job(0, 1, priority=priority) for priority in (0, 2, 1, -5, 2))
    result = simulator.simulate(Workload("priority", (whole(100.0),), (Job(0, 0), *jobs), 1), policy)
    assert [run.job for run in result.runs] == [0, 2, 5, 3, 1, 4]


@every_policy
def test_a_pinned_job_waits_for_its_worker(policy):
    jobs = (Job(0, 0, pinned=1), Job(0, 0, pinned=1), Job(0, 0))
    result = simulator.simulate(Workload("pinned", (whole(100.0, 900.0),), jobs, 2), policy)
    assert sorted((run.job, run.worker) for run in result.runs) == [(0, 1), (1, 1), (2, 0)]


@every_policy
def test_a_job_pinned_to_a_worker_that_cannot_run_it_fails(policy):
    result = simulator.simulate(Workload("pinned", (whole(100.0, None),), (Job(0, 0, pinned=1), Job(0, 0)), 2), policy)
    assert result.status == ("failed", "done")


@every_policy
@pytest.mark.parametrize("lonely_us", [1000.0, 80_000.0])
def test_no_job_starves_under_overload(policy, lonely_us):
    """Shorter and longer jobs than the lonely one come twice as fast as they can be done, for 18 s."""
    jobs = [Job(1 + i % 2, 6000 * i) for i in range(3000)]
    jobs.insert(500, Job(0, jobs[499].arrival_us))
    models = (whole(lonely_us), whole(3000.0), whole(20_000.0))
    result = simulator.simulate(Workload("overload", models, tuple(jobs), 1), policy)
    assert result.status[500] == "done"
    # Ahead of it, at worst, is what came before, and what came within its patience (2 s): about 10 s of work.
    assert result.end_us[500] - jobs[500].arrival_us < 10_000_000


@every_policy
def test_a_request_that_cannot_be_in_time_is_dropped_or_late_but_told(policy):
    result = simulator.simulate(Workload("tight", (whole(100.0),), (Job(0, 0, slo_us=50),), 1), policy)
    assert result.status[0] in ("dropped", "done")
    assert result.misses == 1


@pytest.mark.parametrize("policy", ["adaptive", "least_slack"])
def test_what_can_be_in_time_is_not_dropped(policy):
    rng = random.Random(1)
    jobs = tuple(Job(0, 1000 * i, slo_us=rng.randint(100, 900)) for i in range(100))
    assert simulator.simulate(Workload("possible", (whole(100.0, 500.0),), jobs, 2), policy).misses == 0


@pytest.mark.parametrize("policy", ["adaptive", "least_slack"])
def test_a_throttled_worker_is_tried_again_though_all_is_dropped_meanwhile(policy):
    """With deadlines that a hot worker misses nothing runs, and so nothing would ever tell that it has cooled down."""
    jobs = tuple(Job(0, 20_000 * i, slo_us=1500) for i in range(1000))
    happens = (Event(0, "throttle", 0, 8.0), Event(1_000_000, "throttle", 0, 1.0))
    result = simulator.simulate(Workload("hot", (whole(1000.0),), jobs, 1, events=happens), policy)
    assert set(result.status[-100:]) == {"done"}


def test_adaptive_leaves_a_slow_worker_idle_where_waiting_is_faster():
    result = simulator.simulate(Workload("wait", (whole(100.0, 900.0),), (Job(0, 0), Job(0, 0)), 2))
    assert {run.worker for run in result.runs} == {0}


def test_adaptive_packs_equal_workers_evenly():
    """All at once on two equal workers: the sum of the work, 2 x 600, is divided exactly."""
    sizes = (100.0, 200.0, 300.0, 600.0)
    workload = Workload("pack", tuple(whole(us, us) for us in sizes), tuple(Job(i, 0) for i in range(4)), 2)
    result = simulator.simulate(workload)
    assert result.makespan_us == 600
    assert result.mean_latency_us == (100 + 300 + 600 + 600) / 4, "the shortest first on the worker with three"


def test_adaptive_gives_up_the_job_that_keeps_most_others_from_their_deadlines():
    models = (whole(900.0), whole(300.0))
    jobs = (Job(0, 0, slo_us=950), *(Job(1, 0, slo_us=300 * i + 60) for i in range(1, 4)))
    result = simulator.simulate(Workload("moore", models, jobs, 1))
    assert result.status == ("dropped", "done", "done", "done")
    assert simulator.simulate(Workload("moore", models, jobs, 1), "least_slack").misses > result.misses


def test_adaptive_is_no_worse_than_the_best_of_the_others_on_a_few_workloads():
    """The bars of the benchmark in small: mean over 24 seeds for tuning, against each of the paper's policies."""
    ours, theirs = [], {policy: [] for policy in POLICIES[1:]}
    for seed in range(24):
        workload = workloads.draw(seed).without_slos()
        ours.append(simulator.simulate(workload).mean_latency_us)
        for policy, found in theirs.items():
            found.append(simulator.simulate(workload, policy).mean_latency_us)
    for policy, found in theirs.items():
        ratios = [a / b for a, b in zip(ours, found, strict=True)]
        assert sum(ratios) / len(ratios) < 1, policy


@every_policy
def test_pieces_of_equal_jobs_are_interchangeable(policy):
    """Twins come at once on equal workers: the schedule is the same whichever worker carries which number."""
    jobs = tuple(Job(0, 0) for _ in range(6))
    result = simulator.simulate(Workload("twins", (whole(100.0, 100.0, 100.0),), jobs, 3), policy)
    if policy == "fixed":
        assert result.makespan_us == 600
        return
    assert result.makespan_us == 200
    for worker in range(3):
        runs = [run for run in result.runs if run.worker == worker]
        assert all(a.end_us <= b.begin_us for a, b in itertools.pairwise(runs))
        assert len(runs) == 2

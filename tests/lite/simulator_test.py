"""The simulator against schedules worked out by hand, and what it says of arguments that contradict themselves."""

import dataclasses
import math

import numpy as np
import pytest

from tf_ext.lite import errors, phones, simulator, workloads
from tf_ext.lite.simulator import Event, Job, Model, Piece, Workload


def whole(*latencies: float | None) -> Model:
    return Model("whole", 1, (Piece(0, 1, tuple(latencies)),))


FAST_AND_SLOW = Workload("two", (whole(100.0, 300.0), whole(200.0, 250.0)), (Job(0, 0), Job(1, 0), Job(0, 50)), 2)
SPLIT = Model("split", 2, (Piece(0, 2, (500.0, None)), Piece(0, 1, (300.0, 100.0)), Piece(1, 2, (150.0, None))))


def schedule(workload, policy):
    return sorted(
        (run.job, run.piece, run.worker, run.begin_us, run.end_us) for run in simulator.simulate(workload, policy).runs
    )


def test_fixed_keeps_a_model_on_its_worker():
    assert schedule(FAST_AND_SLOW, "fixed") == [(0, 0, 0, 0, 100), (1, 0, 1, 0, 250), (2, 0, 0, 100, 200)]


def test_round_robin_gives_idle_workers_the_oldest_job():
    # At 100 the first worker is idle again and takes the job that came at 50.
    assert schedule(FAST_AND_SLOW, "round_robin") == [(0, 0, 0, 0, 100), (1, 0, 1, 0, 250), (2, 0, 0, 100, 200)]


def test_shortest_expected_latency_counts_what_is_ahead():
    # Job 1 would end at 300 behind job 0, at 250 on the second worker; job 2 at 200 behind job 0.
    assert schedule(FAST_AND_SLOW, "shortest_expected_latency") == [
        (0, 0, 0, 0, 100),
        (1, 0, 1, 0, 250),
        (2, 0, 0, 100, 200),
    ]


def test_heft_takes_the_longest_first_and_leaves_the_others_waiting():
    # Job 1 has the most work and gets the first worker; job 0 sees it free only at 200 and ends at 300 either way.
    jobs = (Job(0, 0), Job(1, 0))
    workload = dataclasses.replace(FAST_AND_SLOW, jobs=jobs)
    assert schedule(workload, "heft") == [(0, 0, 0, 200, 300), (1, 0, 0, 0, 200)]


def test_reservation_shows_later_jobs_the_time_of_those_that_wait():
    # The long job 0 runs on worker 0 until 400. Of the others, job 1 waits for it (650 against 810), and so does job 2 if
    # that time still seems free (550 against 610), but not if job 1 has reserved it.
    models = (whole(400.0, 9000.0), whole(250.0, 800.0), whole(150.0, 600.0))
    workload = Workload("reserved", models, (Job(0, 0), Job(1, 10), Job(2, 10)), 2)
    assert schedule(workload, "heft") == [(0, 0, 0, 0, 400), (1, 0, 0, 400, 650), (2, 0, 0, 650, 800)]
    assert schedule(workload, "heft_reserved") == [(0, 0, 0, 0, 400), (1, 0, 0, 400, 650), (2, 0, 1, 10, 610)]


def test_least_slack_comes_first_and_what_cannot_make_it_is_dropped():
    jobs = (Job(0, 0, slo_us=1000), Job(0, 0, slo_us=250), Job(0, 0, slo_us=90), Job(0, 0))
    result = simulator.simulate(Workload("slack", (whole(100.0),), jobs, 1), "least_slack")
    assert result.status == ("done", "done", "dropped", "done")
    assert [run.job for run in result.runs] == [1, 0, 3]
    assert result.misses == 1


def test_a_piece_moves_on_to_the_worker_that_suits_the_rest():
    result = schedule(Workload("split", (SPLIT,), (Job(0, 0),), 2), "shortest_expected_latency")
    assert result == [(0, 1, 1, 0, 100), (0, 2, 0, 100, 250)]


def test_whole_pieces_are_taken_where_a_split_gains_nothing():
    model = Model("split", 2, (Piece(0, 1, (100.0,)), Piece(1, 2, (100.0,)), Piece(0, 2, (200.0,))))
    for policy in simulator.policies():
        assert [piece for _, piece, *_ in schedule(Workload("whole", (model,), (Job(0, 0),), 1), policy)] == [2], policy


def test_figures():
    result = simulator.simulate(FAST_AND_SLOW, "fixed")
    assert list(result.end_us) == [100, 250, 200]
    assert list(result.latency_us) == [100, 250, 150]
    assert result.makespan_us == 250
    assert result.mean_latency_us == pytest.approx(500 / 3)
    assert result.percentile_us(50) == 150
    assert list(result.busy_us) == [200, 250]
    assert list(result.utilisation) == [0.8, 1.0]
    assert result.decisions >= 2
    assert result.decide_us > 0


def test_figures_of_nothing():
    result = simulator.simulate(Workload("nothing", (), (), 1))
    assert (result.makespan_us, result.misses, len(result.runs)) == (0, 0, 0)
    assert math.isnan(result.mean_latency_us)
    assert math.isnan(result.percentile_us(99))


def test_late_is_missed_even_if_done():
    workload = Workload("late", (whole(100.0),), (Job(0, 0, slo_us=100), Job(0, 0, slo_us=150)), 1)
    result = simulator.simulate(workload, "fixed")
    assert result.status == ("done", "done")
    assert result.misses == 1
    assert simulator.simulate(workload.without_slos(), "fixed").misses == 0


def test_slowdown_noise_and_seed_change_actual_times_only():
    workload = Workload("noise", (whole(1000.0),), tuple(Job(0, 0) for _ in range(200)), 1, noise=0.2, seed=1)
    lengths = np.array([run.end_us - run.begin_us for run in simulator.simulate(workload, "fixed").runs])
    assert 800 <= lengths.min() < 830
    assert 1170 < lengths.max() <= 1200
    assert lengths.mean() == pytest.approx(1000, rel=0.03)
    other = simulator.simulate(dataclasses.replace(workload, seed=2), "fixed")
    assert [run.end_us - run.begin_us for run in other.runs] != list(lengths)
    slow = simulator.simulate(dataclasses.replace(workload, noise=0.0, slowdowns=(2.5,)), "fixed")
    assert {run.end_us - run.begin_us for run in slow.runs} == {2500}


def test_a_function_is_a_policy():
    def last_come_first(snapshot):
        idle = [w for w in range(snapshot.num_workers) if not snapshot.workers[w].queued]
        return (
            [(snapshot.num_jobs - 1, idle[0], 0)] if idle and snapshot.workers[idle[0]].free_at <= snapshot.now else []
        )

    jobs = tuple(Job(0, 0) for _ in range(3))
    result = simulator.simulate(Workload("function", (whole(100.0),), jobs, 1), last_come_first)
    assert result.policy == "last_come_first"
    assert [run.job for run in result.runs] == [2, 1, 0]


def test_a_function_sees_all_there_is_to_decide_on():
    seen = []

    def look(snapshot):
        job, worker, model = snapshot.jobs[0], snapshot.workers[1], snapshot.models[0]
        piece = model.pieces[1]
        seen.append(
            (snapshot.now, job.id, job.model, job.unit, job.priority, job.pinned, job.submitted, job.deadline)
            + (job.excluded, worker.available, worker.queued, worker.free_at, worker.slowdown)
            + (model.units, model.num_pieces, piece.begin, piece.end, piece.expected[0], piece.expected[1])
        )
        return [(0, 1, 1)]

    workload = Workload(
        "look", (SPLIT,), (Job(0, 7, slo_us=600, priority=3),), 2, events=(Event(50, "piece_fails", 1),)
    )
    simulator.simulate(workload, look)
    never = 2**63 // 1024
    assert seen[0] == (7, 0, 0, 0, 3, -1, 7, 607, 0, 1, 0, 7, 1.0, 2, 3, 0, 1, 300, 100)
    assert seen[1][8] == 0b10, "worker 1 has failed"
    assert never > 10**15


def test_what_a_function_raises_is_raised():
    def broken(snapshot):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        simulator.simulate(FAST_AND_SLOW, broken)


def test_an_unknown_policy_is_refused_with_the_names_of_all():
    with pytest.raises(errors.NotFoundError, match=r"no policy 'fastest'.*adaptive,fixed,round_robin"):
        simulator.simulate(FAST_AND_SLOW, "fastest")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workers": 0, "models": (whole(),)}, "num_workers is expected to be from 1 to 64, not 0"),
        ({"workers": 65, "models": (whole(*[1.0] * 65),)}, "from 1 to 64, not 65"),
        ({"models": (Model("none", 0, ()),)}, r"units\[0\] is expected to be at least 1, not 0"),
        ({"models": (Model("m", 1, (Piece(0, 2, (1.0, 1.0)),)),)}, "the units from 0 to 2 of 1"),
        ({"models": (whole(-5.0, 1.0),)}, "an expected time of model 0 is negative"),
        ({"jobs": (Job(7, 0),)}, r"job_model\[0\] is expected to be from 0 to 1, not 7"),
        ({"jobs": (Job(0, 9), Job(0, 8))}, r"job_arrival\[1\] is expected to be in order"),
        ({"jobs": (Job(0, 0, slo_us=-1),)}, r"job_slo\[0\] is expected to be at least 0, not -1"),
        ({"jobs": (Job(0, 0, pinned=2),)}, r"job_pinned\[0\] is expected to be -1 or from 0 to 1, not 2"),
        ({"slowdowns": (0.0, 1.0)}, r"slowdowns\[0\] is expected to be above 0"),
        ({"noise": 1.0}, "noise is expected to be at least 0 and less than 1"),
        ({"events": (Event(0, "worker_lost", 2),)}, r"events.target\[0\] is expected to be from 0 to 1, not 2"),
        (
            {"events": (Event(9, "worker_back", 0), Event(3, "worker_back", 0))},
            r"events.time\[1\] is expected to be in order",
        ),
        ({"events": (Event(0, "throttle", 0, float("nan")),)}, "events.factor is expected to be above 0"),
    ],
)
def test_a_workload_that_contradicts_itself_is_refused(change, says):
    with pytest.raises(errors.InvalidArgumentError, match=says):
        simulator.simulate(dataclasses.replace(FAST_AND_SLOW, **change), "fixed")


def test_lengths_are_checked_where_the_library_could_not_see_them():
    with pytest.raises(
        errors.InvalidArgumentError, match="expected to have 2 latencies, one for each worker, but has 1"
    ):
        Workload("short", (whole(1.0),), (), 2)
    with pytest.raises(
        errors.InvalidArgumentError, match="`slowdowns` was expected to hold 2 numbers or none, but holds 1"
    ):
        Workload("short", (), (), 2, slowdowns=(1.0,))
    with pytest.raises(
        errors.InvalidArgumentError, match="kind was expected to be one of worker_lost.*but is 'explodes'"
    ):
        Workload("kind", (), (), 2, events=(Event(0, "explodes", 0),))


def test_phones_give_the_times_of_their_sources():
    """The tables go through the published figures that they name."""
    published = {
        ("pixel_3", "mobilenet_v1"): (23.9, 6.45, 13.8),
        ("pixel_4", "mobilenet_v1"): (14.0, 9.0, 14.8),
        ("pixel_3", "inception_v4"): (486, 93, 292),
        ("pixel_4", "inception_v4"): (324.1, 97.6, 186.9),
    }
    for (phone, network), expected in published.items():
        model = phones.phones()[phone].model(phones.networks()[network])
        (piece,) = (piece for piece in model.pieces if (piece.begin, piece.end) == (0, model.units))
        big, _, gpu, npu = (us and us / 1e3 for us in piece.latency_us)
        assert (big, gpu) == pytest.approx(expected[:2], rel=0.1)
        assert npu == pytest.approx(expected[2], rel=0.5), "one line through float and int8 at rest"


def test_phones_lack_what_networks_need():
    model = phones.phones()["pixel_4"].model(phones.networks()["nasnet_mobile"])
    latency = {(piece.begin, piece.end): piece.latency_us for piece in model.pieces}
    assert len(latency) == 15
    assert [us is None for us in latency[0, 1]] == [False, False, True, False]
    assert [us is None for us in latency[0, 2]] == [False, False, True, True]
    singly = [latency[i, i + 1][0] or 0.0 for i in range(5)]
    assert latency[0, 5][0] == pytest.approx(sum(singly) - 4 * 50)


def test_workloads_are_the_same_for_the_same_seed():
    assert workloads.draw(5) == workloads.draw(5)
    assert workloads.draw(5) != workloads.draw(21)
    kinds = [workloads.draw(seed).name.split("/")[0] for seed in range(4)]
    assert kinds == list(workloads.KINDS)
    assert {job.arrival_us for job in workloads.draw(0).jobs} == {0}

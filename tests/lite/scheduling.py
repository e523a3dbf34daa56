"""What the tests of planner, policies and simulator share: workloads that hypothesis draws, and what must hold for all."""

import itertools
from collections import defaultdict

from hypothesis import strategies as st

from tf_ext.lite.simulator import Event, Job, Model, Piece, Result, Workload

NEVER_DONE = ("dropped", "failed", "cancelled", "refused")


@st.composite
def models(draw, workers: int) -> Model:
    """A model of up to four units, where some pieces or workers may be missing."""
    units = draw(st.integers(1, 4))
    latency = st.one_of(st.none(), st.integers(0, 2000).map(float))
    bounds = [(begin, end) for begin in range(units) for end in range(begin + 1, units + 1)]
    kept = draw(st.lists(st.sampled_from(bounds), min_size=1, max_size=len(bounds), unique=True))
    pieces = [Piece(b, e, tuple(draw(st.lists(latency, min_size=workers, max_size=workers)))) for b, e in sorted(kept)]
    return Model("drawn", units, tuple(pieces))


@st.composite
def events(draw, workers: int, jobs: int) -> Event:
    kind = draw(st.sampled_from(["worker_lost", "worker_back", "piece_fails", "cancel_job", "throttle"]))
    if kind == "cancel_job" and not jobs:
        kind = "worker_back"
    target = draw(st.integers(0, (jobs if kind == "cancel_job" else workers) - 1))
    return Event(draw(st.integers(0, 20_000)), kind, target, draw(st.sampled_from([0.5, 1.0, 3.0, 40.0])))


@st.composite
def workloads(draw, faults: bool = True) -> Workload:
    workers = draw(st.integers(1, 4))
    some = tuple(draw(st.lists(models(workers), min_size=1, max_size=3)))
    job = st.builds(
        Job,
        model=st.integers(0, len(some) - 1),
        arrival_us=st.integers(0, 10_000),
        slo_us=st.one_of(st.none(), st.integers(1, 8000)),
        priority=st.integers(-2, 2),
        pinned=st.one_of(st.none(), st.integers(0, workers - 1)),
    )
    jobs = sorted(draw(st.lists(job, max_size=25)), key=lambda job: job.arrival_us)
    happens = draw(st.lists(events(workers, len(jobs)), max_size=12)) if faults else []
    return Workload(
        "drawn",
        some,
        tuple(jobs),
        workers,
        noise=draw(st.sampled_from([0.0, 0.3])),
        seed=draw(st.integers(0, 2**32)),
        queue_limit=draw(st.sampled_from([0, 0, 3])),
        events=tuple(sorted(happens, key=lambda event: event.time_us)),
    )


def check(result: Result) -> None:
    """Asserts what holds for every workload under every policy."""
    by_worker, by_job = defaultdict(list), defaultdict(list)
    for run in result.runs:
        by_worker[run.worker].append(run)
        by_job[run.job].append(run)
    for runs in by_worker.values():
        assert all(a.end_us <= b.begin_us for a, b in itertools.pairwise(runs)), "a worker runs two pieces at once"
    _check_absence(result)
    for number, (job, status, end) in enumerate(zip(result.workload.jobs, result.status, result.end_us, strict=True)):
        assert status == "done" or status in NEVER_DONE, f"job {number} is lost: {status}"
        assert (end >= job.arrival_us) if status != "refused" else (end == -1)
        _check_job(result, job, status, int(end), by_job[number])


def _check_job(result, job, status, end, runs) -> None:
    model, unit, failed = result.workload.models[job.model], 0, set()
    for run, following in zip(runs, [*runs[1:], None], strict=False):
        piece = model.pieces[run.piece]
        assert piece.begin == unit, "a piece is run out of order, or twice"
        assert piece.latency_us[run.worker] is not None, "a worker runs what it cannot run"
        assert job.pinned in (None, run.worker), "a pinned job runs elsewhere"
        assert run.begin_us >= job.arrival_us
        assert (unit, run.worker) not in failed, "a worker tries again what it failed"
        if following:
            assert run.end_us <= following.begin_us, "a job runs twice at a time"
        if run.ok:
            unit = piece.end
        else:
            failed.add((unit, run.worker))
    assert (status == "done") == (unit == model.units)
    if status == "done":
        assert end == runs[-1].end_us
    if status == "dropped":
        assert job.slo_us is not None
    if status == "refused":
        assert result.workload.queue_limit and not runs


def _check_absence(result) -> None:
    """No piece begins on a worker that is lost."""
    for worker in range(result.workload.workers):
        since = None
        for event in result.workload.events:
            if event.target != worker:
                continue
            if event.kind == "worker_lost":
                since = event.time_us if since is None else since
            elif event.kind == "worker_back" and since is not None:
                _check_stands_still(result, worker, since, event.time_us)
                since = None
        if since is not None:
            _check_stands_still(result, worker, since, 10**15)


def _check_stands_still(result, worker, since, until) -> None:
    begun = [run for run in result.runs if run.worker == worker and since <= run.begin_us < until]
    assert not begun, "a lost worker begins a piece"

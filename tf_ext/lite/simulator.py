"""Runs scheduling policies under a virtual clock, over tables of latencies and traces of arrivals.

The policies, the queue and the planner are those of the engine (`custom_ops/lite_delegate`), not models of them; only the
workers do nothing but wait. Results are simulated times and must be called so.

    from tf_ext.lite import phones, simulator

    phone = phones.phones()["pixel_4"]
    model = phone.model(phones.networks()["mobilenet_v2"])
    jobs = tuple(simulator.Job(0, arrival_us=5_000 * i) for i in range(100))
    result = simulator.simulate(simulator.Workload("one model", (model,), jobs, len(phone.processors)), "adaptive")
    print(result.makespan_us, result.mean_latency_us, result.utilisation)

Source: Band (MobiSys 2022), sections 3.3 and 5.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_ext.lite import _library, errors

__all__ = ["Event", "Job", "Model", "Piece", "Policy", "Result", "Run", "Workload", "policies", "simulate"]

Policy = Callable[[_library.Snapshot], Sequence[tuple[int, int, int]]]
"""Takes a snapshot (the structures of `tf_ext_lite.h`, valid during the call only) and returns decisions: the job's index in
the snapshot, the worker or -1 to drop the job, and the index of a piece that begins at the job's unit."""

_EVENTS = {"worker_lost": 0, "worker_back": 1, "piece_fails": 2, "cancel_job": 3, "throttle": 4}
_STATUS = {0: "done", 4: "failed", 5: "refused", 6: "dropped", 7: "cancelled"}


@dataclasses.dataclass(frozen=True)
class Piece:
    """Units [begin, end) of a model, cut out as one.

    Attributes:
        begin: The first unit.
        end: The unit behind the last one.
        latency_us: Microseconds on each worker, None where the worker cannot run it.
    """

    begin: int
    end: int
    latency_us: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that is cut into pieces.

    Attributes:
        name: What it is called.
        units: How many units it has.
        pieces: What a request may run, from unit 0 to the end, one after the other.
    """

    name: str
    units: int
    pieces: tuple[Piece, ...]


@dataclasses.dataclass(frozen=True)
class Job:
    """A request.

    Attributes:
        model: Index into the workload's models.
        arrival_us: When it comes, microseconds from the start.
        slo_us: Its service-level objective: done within this time; None for none.
        priority: The larger, the sooner.
        pinned: The only worker that it may run on, or None.
    """

    model: int
    arrival_us: int
    slo_us: int | None = None
    priority: int = 0
    pinned: int | None = None


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happens to workers or jobs.

    Attributes:
        time_us: When.
        kind: `"worker_lost"`, `"worker_back"`, `"piece_fails"` (what the worker then runs fails when it ends),
            `"cancel_job"` or `"throttle"` (what the worker begins from now on takes `factor` times as long).
        target: The worker, or the job for `"cancel_job"`.
        factor: For `"throttle"`.
    """

    time_us: int
    kind: str
    target: int
    factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is to be simulated.

    Attributes:
        name: What it is called.
        models: The models.
        jobs: The requests, in the order of arrival.
        workers: How many workers there are.
        slowdowns: Actual time over expected time of each worker; 1 if empty.
        noise: Each actual time is scaled by a number drawn evenly from 1 - noise to 1 + noise.
        seed: Of the noise.
        queue_limit: How many jobs may wait; 0 for any number.
        events: What else happens, in the order of time.
    """

    name: str
    models: tuple[Model, ...]
    jobs: tuple[Job, ...]
    workers: int
    slowdowns: tuple[float, ...] = ()
    noise: float = 0.0
    seed: int = 0
    queue_limit: int = 0
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        """Checks what the C interface cannot see: the lengths of its arrays."""
        for model in self.models:
            for piece in model.pieces:
                if len(piece.latency_us) != self.workers:
                    raise errors.InvalidArgumentError(
                        f"A piece of model {model.name!r} was expected to have {self.workers} latencies, one for each "
                        f"worker, but has {len(piece.latency_us)}."
                    )
        if self.slowdowns and len(self.slowdowns) != self.workers:
            raise errors.InvalidArgumentError(
                f"`slowdowns` was expected to hold {self.workers} numbers or none, but holds {len(self.slowdowns)}."
            )
        for event in self.events:
            if event.kind not in _EVENTS:
                raise errors.InvalidArgumentError(
                    f"An event's kind was expected to be one of {', '.join(_EVENTS)}, but is {event.kind!r}."
                )

    def without_slos(self) -> Workload:
        """Returns the same workload where no job has a service-level objective."""
        return dataclasses.replace(self, jobs=tuple(dataclasses.replace(job, slo_us=None) for job in self.jobs))


@dataclasses.dataclass(frozen=True)
class Run:
    """A piece that a worker ran; `ok` is False where it failed or its worker was lost."""

    job: int
    piece: int
    worker: int
    ok: bool
    begin_us: int
    end_us: int


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of a simulated workload. All times are simulated.

    Attributes:
        workload: The workload.
        policy: The policy's name.
        end_us: When each job ended, whichever way, int64 [jobs]; -1 for those refused.
        status: How: `"done"`, `"dropped"`, `"failed"`, `"cancelled"` or `"refused"` [jobs].
        busy_us: How long each worker ran, int64 [workers].
        runs: The pieces in the order in which they ended.
        decisions: How often the policy was asked.
        decide_us: The real processor time that it took each time, mean microseconds.
    """

    workload: Workload
    policy: str
    end_us: npt.NDArray[np.int64]
    status: tuple[str, ...]
    busy_us: npt.NDArray[np.int64]
    runs: tuple[Run, ...]
    decisions: int
    decide_us: float

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which jobs were done, bool [jobs]."""
        return np.array([status == "done" for status in self.status], dtype=bool)

    @property
    def latency_us(self) -> npt.NDArray[np.int64]:
        """How long each job took from its arrival to its end, int64 [jobs that were done]."""
        arrivals = np.array([job.arrival_us for job in self.workload.jobs], dtype=np.int64)
        return (self.end_us - arrivals)[self.done]

    @property
    def makespan_us(self) -> int:
        """When the last job was done; 0 if none was."""
        return int(self.end_us[self.done].max(initial=0))

    @property
    def mean_latency_us(self) -> float:
        """The mean of `latency_us`; nan if no job was done."""
        return float(self.latency_us.mean()) if self.done.any() else float("nan")

    def percentile_us(self, q: float) -> float:
        """Returns a percentile (0 to 100) of `latency_us`; nan if no job was done."""
        return float(np.percentile(self.latency_us, q)) if self.done.any() else float("nan")

    @property
    def misses(self) -> int:
        """How many jobs with a service-level objective were not done within it."""
        return sum(
            job.slo_us is not None and (status != "done" or end - job.arrival_us > job.slo_us)
            for job, status, end in zip(self.workload.jobs, self.status, self.end_us.tolist(), strict=True)
        )

    @property
    def utilisation(self) -> npt.NDArray[np.float64]:
        """The share of the makespan that each worker ran, float64 [workers]."""
        return self.busy_us / max(self.makespan_us, 1)


def policies() -> tuple[str, ...]:
    """Returns the names of the policies."""
    names: bytes = _library.load().TfExtLitePolicies()
    return tuple(names.decode().split(","))


def simulate(workload: Workload, policy: str | Policy = "adaptive") -> Result:
    """Simulates a workload.

    Args:
        workload: What comes when, and what it takes where.
        policy: A name out of `policies()`, or a function; see `Policy`. A function that raises is not asked again, and what
            it raised is raised when the simulation has ended.

    Returns:
        What became of every job. The same arguments give the same result.

    Raises:
        InvalidArgumentError: the workload contradicts itself.
        NotFoundError: there is no such policy.
    """
    library = _library.load()
    tables = _Tables(workload)
    callback, raised = _callback(policy)
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", "callback")
    status = library.TfExtLiteSimulate(
        ctypes.byref(tables.simulation), name.encode(), callback, None, ctypes.byref(tables.simulated)
    )
    if raised:
        raise raised[0]
    _library.check(status)
    if tables.simulated.num_runs > len(tables.runs):
        raise errors.InternalError(f"{tables.simulated.num_runs} runs, more than every unit on every worker.")
    return tables.result(workload, name)


class _Tables:
    """The arrays of a simulation, kept alive as long as the C code reads them."""

    def __init__(self, workload: Workload) -> None:
        jobs, models = workload.jobs, workload.models
        pieces = [piece for model in models for piece in model.pieces]
        self._kept: list[Any] = []
        self.end = np.zeros(len(jobs), np.int64)
        self.status = np.zeros(len(jobs), np.int32)
        self.busy = np.zeros(workload.workers, np.int64)
        # A unit fails at most once on each worker, and ends once.
        most = sum(models[job.model].units for job in jobs if 0 <= job.model < len(models)) * (workload.workers + 1)
        self.runs = (_library.Run * most)()
        self.simulation = _library.Simulation(
            size=ctypes.sizeof(_library.Simulation),
            num_workers=workload.workers,
            num_models=len(models),
            units=self._array([model.units for model in models], ctypes.c_int32),
            num_pieces=self._array([len(model.pieces) for model in models], ctypes.c_int32),
            pieces=self._array([bound for piece in pieces for bound in (piece.begin, piece.end)], ctypes.c_int32),
            expected=self._array([_micros(us) for piece in pieces for us in piece.latency_us], ctypes.c_int64),
            slowdowns=self._array(workload.slowdowns or [1.0] * workload.workers, ctypes.c_double),
            noise=workload.noise,
            seed=workload.seed,
            queue_limit=workload.queue_limit,
            num_jobs=len(jobs),
            job_model=self._array([job.model for job in jobs], ctypes.c_int32),
            job_arrival=self._array([job.arrival_us for job in jobs], ctypes.c_int64),
            job_slo=self._array([job.slo_us or 0 for job in jobs], ctypes.c_int64),
            job_priority=self._array([job.priority for job in jobs], ctypes.c_int32),
            job_pinned=self._array([-1 if job.pinned is None else job.pinned for job in jobs], ctypes.c_int32),
            num_events=len(workload.events),
            events=self._array(
                [_library.Event(e.time_us, _EVENTS[e.kind], e.target, e.factor) for e in workload.events],
                _library.Event,
            ),
        )
        self.simulated = _library.Simulated(
            size=ctypes.sizeof(_library.Simulated),
            job_end=self.end.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)),
            job_status=self.status.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            worker_busy=self.busy.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)),
            runs=self.runs,
            max_runs=len(self.runs),
        )

    def _array(self, values: Sequence[Any], kind: Any) -> Any:
        array = (kind * len(values))(*values)
        self._kept.append(array)
        return array

    def result(self, workload: Workload, policy: str) -> Result:
        runs = self.runs[: self.simulated.num_runs]
        return Result(
            workload,
            policy,
            self.end,
            tuple(_STATUS.get(int(status), "unfinished") for status in self.status),
            self.busy,
            tuple(Run(run.job, run.piece, run.worker, bool(run.ok), run.begin, run.end) for run in runs),
            self.simulated.decisions,
            self.simulated.decide_ns / 1e3,
        )


def _micros(latency_us: float | None) -> int:
    return _library.NEVER if latency_us is None else round(latency_us)


def _callback(policy: str | Policy) -> tuple[Any, list[BaseException]]:
    """The C face of a policy that is a function, and what it raised."""
    raised: list[BaseException] = []
    if isinstance(policy, str):
        return _library.PolicyCallback(), raised
    decide = policy

    def call(_: Any, snapshot: Any, decisions: Any) -> int:
        if raised:
            return 0
        try:
            answers = list(decide(snapshot.contents))[: snapshot.contents.num_jobs]
            for index, (job, worker, piece) in enumerate(answers):
                decisions[index] = _library.Decision(job, worker, piece)
        except BaseException as error:  # It must not cross the C code.
            raised.append(error)
            return 0
        return len(answers)

    return _library.PolicyCallback(call), raised

"""Golden decisions: what every policy decided on a few workloads when that was last looked at.

    python -m tests.lite.golden_decisions     # writes tests/lite/golden/*.json anew

A change of them is a change of what apps see: look at the figures of `benchmarks/lite` before renewing them.
"""

import dataclasses
import json
import pathlib
from typing import Any

from tf_ext.lite import simulator, workloads
from tf_ext.lite.simulator import Event, Job, Model, Piece, Workload

FOLDER = pathlib.Path(__file__).parent / "golden"
_JOBS = 24


def inputs() -> dict[str, Workload]:
    """Workloads of each kind, cut to a few jobs; one of them with pinned jobs, priorities and faults."""
    drawn = {workload.name.replace("/", "_"): _short(workload) for workload in map(workloads.draw, (0, 5, 10, 15))}
    base = _short(workloads.draw(6))
    jobs = tuple(
        dataclasses.replace(job, priority=i % 3 - 1, pinned=i % 4 if i % 7 == 0 else None)
        for i, job in enumerate(base.jobs)
    )
    middle = jobs[_JOBS // 2].arrival_us
    happens = (
        Event(middle // 3, "throttle", 2, 3.0),
        Event(middle // 2, "piece_fails", 0),
        Event(middle, "worker_lost", 2),
        Event(middle + 5000, "cancel_job", _JOBS - 2),
        Event(middle + 20_000, "worker_back", 2),
    )
    return {**drawn, "faults": dataclasses.replace(base, name="faults", jobs=jobs, events=happens)}


def _short(workload: Workload) -> Workload:
    """Whole microseconds, so that no other machine rounds them otherwise."""
    models = []
    for model in workload.models:
        pieces = [Piece(p.begin, p.end, tuple(us and float(round(us)) for us in p.latency_us)) for p in model.pieces]
        models.append(dataclasses.replace(model, pieces=tuple(pieces)))
    return dataclasses.replace(workload, models=tuple(models), jobs=workload.jobs[:_JOBS])


def decisions(workload: Workload, policy: str) -> list[list[int]]:
    """Job, piece, worker, begin and end of each run, in the order in which they end; and how the jobs end."""
    result = simulator.simulate(workload, policy)
    return [[run.job, run.piece, run.worker, run.begin_us, run.end_us] for run in result.runs]


def read(path: pathlib.Path) -> tuple[Workload, dict[str, list[list[int]]]]:
    """Reads what `write` wrote."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    fields = data["workload"]
    fields["models"] = tuple(
        Model(m["name"], m["units"], tuple(Piece(p["begin"], p["end"], tuple(p["latency_us"])) for p in m["pieces"]))
        for m in fields["models"]
    )
    fields["jobs"] = tuple(Job(**job) for job in fields["jobs"])
    fields["events"] = tuple(Event(**event) for event in fields["events"])
    fields["slowdowns"] = tuple(fields["slowdowns"])
    return Workload(**fields), data["decisions"]


def write(name: str, workload: Workload) -> None:
    """Writes a workload and what every policy decides on it."""
    found = {policy: decisions(workload, policy) for policy in simulator.policies()}
    each = ",\n".join(f"  {json.dumps(policy)}: {json.dumps(runs)}" for policy, runs in found.items())
    text = f'{{"workload": {json.dumps(dataclasses.asdict(workload))},\n"decisions": {{\n{each}\n}}}}\n'
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Writes all of them anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, workload in inputs().items():
        write(name, workload)


if __name__ == "__main__":
    main()

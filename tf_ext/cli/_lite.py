"""`tf-ext lite`: analyses TFLite models, makes bundles of them, and runs, measures and simulates several at a time."""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tf_ext.errors import TfExtError

if TYPE_CHECKING:
    import rich.table

    from tf_ext.lite.load import Load

Command = Callable[[argparse.Namespace], int]


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the subcommand ``lite``."""
    parser = commands.add_parser(
        "lite", help="run several TFLite models on all processors: bundles, benchmarks, simulation"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _action(actions, "processors", _processors, "the processors of this machine, and what is missing for them")
    analyze = _action(actions, "analyze", _analyze, "units, candidates and fallback operators of a model", "MODEL")
    profile = _action(actions, "profile", _profile, "measure a model on each processor", "MODEL")
    bundle = _action(actions, "bundle", _bundle, "make a model ready for the engine", "MODEL")
    bundle.add_argument(
        "out", type=pathlib.Path, metavar="BUNDLE", help="one file if it ends in .tfxlite, else a folder"
    )
    for action in (analyze, profile, bundle):
        action.add_argument("--processors", default="cpu", metavar="NAMES", help="of cpu,gpu,npu (default cpu)")
        action.add_argument("--signature", metavar="NAME", help="which of several signatures is meant")
    for action in (analyze, bundle):
        _add_cuts(action)
    for action in (profile, bundle):
        action.add_argument("--runs", type=_count, default=20, metavar="N", help="how many to measure (default 20)")
        action.add_argument("--core", type=int, metavar="N", help="the core to measure on (default: the last one)")
        action.add_argument("--no-cache", action="store_true", help="measure anew")
    bundle.add_argument(
        "--tolerance", type=float, default=1e-3, help="how far from the CPU a GPU may be (default 0.001)"
    )
    bundle.add_argument("--overwrite", action="store_true", help="replace what is there")
    _add_runs(actions)


def _add_runs(actions: Any) -> None:
    """The actions that run or simulate bundles."""
    run = _action(actions, "run", _run, "run a bundle once, or some times", "BUNDLE")
    run.add_argument("--inputs", type=pathlib.Path, metavar="NPZ", help="arrays by name (default: random ones)")
    run.add_argument("--outputs", type=pathlib.Path, metavar="NPZ", help="where to write the outputs")
    run.add_argument("--count", type=_count, default=1, metavar="N", help="how often (default once)")
    benchmark = _action(actions, "benchmark", _benchmark, "run a load, and tell latencies and misses", "LOAD")
    benchmark.add_argument("--json", action="store_true", help="print the engine's statistics as JSON")
    trace = _action(actions, "trace", _trace, "run a load and write what ran where, for ui.perfetto.dev", "LOAD")
    trace.add_argument("--out", type=pathlib.Path, default=pathlib.Path("trace.json"), metavar="FILE")
    simulate = _action(actions, "simulate", _simulate, "simulate a load, or one drawn at random on a simulated phone")
    simulate.add_argument("load", nargs="?", type=pathlib.Path, metavar="LOAD", help="whose bundles tell the latencies")
    simulate.add_argument("--seed", type=int, default=0, help="of the load to draw, where no file is given (default 0)")
    simulate.add_argument("--policies", metavar="NAMES", help="which to compare (default all)")
    for action in (run, benchmark, trace, simulate):
        action.add_argument("--workers", metavar="NAMES", help='such as "cpu@0,cpu@1,gpu"')
    for action in (run, benchmark, trace):
        action.add_argument("--policy", metavar="NAME", help="what decides (default adaptive)")
    for action in (benchmark, trace, simulate):
        action.add_argument("--seconds", type=float, metavar="S", help="how long (default: as the load says)")


def _add_cuts(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--support", type=pathlib.Path, metavar="JSON", help="operators by processor (default: tried out)"
    )
    action.add_argument(
        "--window", type=_count, default=1, metavar="N", help="fewest operators in a row for an accelerator"
    )
    action.add_argument("--minimum", type=_count, default=1, metavar="N", help="fewest operators of a piece")
    action.add_argument("--parts", type=_count, default=1, metavar="N", help="into how many to cut each unit")


def _action(actions: Any, name: str, run: Command, told: str, argument: str | None = None) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=told)
    if argument is not None:
        parser.add_argument(argument.lower(), type=pathlib.Path, metavar=argument)
    parser.set_defaults(run=functools.partial(_guarded, run))
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text}")
    return value


def _guarded(run: Command, arguments: argparse.Namespace) -> int:
    """What is wrong is told in a sentence, not in a traceback."""
    try:
        return run(arguments)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (TfExtError, OSError) as error:
        print(f"tf-ext lite: {error}", file=sys.stderr)
        return 1


def _print(*shown: Any) -> None:
    """To the terminal; a file or a pipe is not cut at eighty columns."""
    import rich.console

    console = rich.console.Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = rich.console.Console(width=200)
    for one in shown:
        console.print(one)


def _table(*columns: str) -> rich.table.Table:
    import rich.table

    table = rich.table.Table(columns[0], box=None, header_style="dim", pad_edge=False)
    for name in columns[1:]:
        table.add_column(name, justify="right")
    return table


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _support(arguments: argparse.Namespace) -> dict[str, set[str]] | None:
    if arguments.support is None:
        return None
    from tf_ext.lite import errors

    raw = json.loads(arguments.support.read_text())
    if not isinstance(raw, dict) or not all(isinstance(names, list) for names in raw.values()):
        raise errors.InvalidArgumentError(f'{arguments.support}: expected {{"gpu": ["CONV_2D", ...]}}')
    return {processor: set(names) for processor, names in raw.items()}


def _processors(_: argparse.Namespace) -> int:
    from tf_ext.lite import _runners, processors

    table = _table("processor", "here")
    table.columns[1].justify = "left"
    for name, found in processors.found():
        table.add_row(name, found)
    _print(f"LiteRT {_runners.runtime_version()}", table)
    return 0


def _analyze(arguments: argparse.Namespace) -> int:
    from tf_ext.lite import bundle

    model = bundle.read_model(arguments.model, arguments.signature)
    found = bundle.analyze_model(
        model,
        _names(arguments.processors),
        _support(arguments),
        window=arguments.window,
        minimum=arguments.minimum,
        parts=arguments.parts,
        progress=True,
    )
    print(found.explain())
    return 0


def _profile(arguments: argparse.Namespace) -> int:
    from tf_ext.lite import Model, profile

    model = Model(arguments.model, signature=arguments.signature)
    table = _table(f"{model.name}, ms", "runs", "mean", "least", "median", "90 %", "99 %")
    for name in _names(arguments.processors):
        made = profile(model, name, runs=arguments.runs, core=arguments.core, cache=not arguments.no_cache)
        times = (made.mean_us, made.minimum_us, made.median_us, made.p90_us, made.p99_us)
        table.add_row(name, str(made.runs), *(f"{time / 1e3:.3f}" for time in times))
    _print(table)
    return 0


def _bundle(arguments: argparse.Namespace) -> int:
    from tf_ext.lite import make_bundle

    made = make_bundle(
        arguments.model,
        arguments.out,
        processors=_names(arguments.processors),
        support=_support(arguments),
        signature=arguments.signature,
        window=arguments.window,
        minimum=arguments.minimum,
        parts=arguments.parts,
        runs=arguments.runs,
        core=arguments.core,
        cache=not arguments.no_cache,
        tolerance=arguments.tolerance,
        overwrite=arguments.overwrite,
        progress=True,
    )
    print(made.explain())
    return 0


def _run(arguments: argparse.Namespace) -> int:
    import numpy as np

    from tf_ext.lite import Engine, profiler
    from tf_ext.lite.load import random_inputs

    with Engine(arguments.policy or "adaptive", arguments.workers) as engine:
        model = engine.add(arguments.bundle)
        inputs: Any = random_inputs(model) if arguments.inputs is None else dict(np.load(arguments.inputs))
        outputs = engine.request(model, inputs)
        ask = functools.partial(engine.request, model, inputs)
        made = profiler.measure("engine", ask, warmup=0, runs=arguments.count, seconds=float("inf"))
    table = _table("output", "type", "shape", "least", "largest")
    for name, array in outputs.items():
        table.add_row(
            name, str(array.dtype), "x".join(map(str, array.shape)), f"{array.min():.6g}", f"{array.max():.6g}"
        )
    _print(table, f"{made.median_us / 1e3:.3f} ms, the median of {made.runs}")
    if arguments.outputs is not None:
        np.savez(arguments.outputs, **cast(Any, outputs))
    return 0


def _load(arguments: argparse.Namespace) -> Load:
    import dataclasses

    from tf_ext.lite.load import Load

    told = {name: getattr(arguments, name, None) for name in ("workers", "policy", "seconds")}
    return dataclasses.replace(
        Load.read(arguments.load), **{key: value for key, value in told.items() if value is not None}
    )


def _benchmark(arguments: argparse.Namespace) -> int:
    found = _running(_load(arguments), None)
    if arguments.json:
        print(json.dumps(found, indent=1))
    return 0


def _trace(arguments: argparse.Namespace) -> int:
    _running(_load(arguments), arguments.out)
    print(f"wrote {arguments.out}; look at it with https://ui.perfetto.dev", file=sys.stderr)
    return 0


def _running(load: Load, trace: pathlib.Path | None) -> dict[str, Any]:
    from tf_ext.lite import Engine
    from tf_ext.lite.load import run

    table = _table(
        "model", "every", "SLO", "sent", "done/s", "median, ms", "90 %", "99 %", "missed", "dropped", "failed"
    )
    with tempfile.TemporaryDirectory() as folder, Engine(load.policy, load.workers, trace=trace is not None) as engine:
        models = [engine.add(bundle, warm_up=True) for bundle in load.bundles(pathlib.Path(folder))]
        for one in run(load, engine, models):
            source = one.source
            often = f"{source.period * 1e3:g} ms" if source.period else f"stream of {source.stream}"
            missed = f"{one.misses / max(1, one.sent + one.skipped):.1%}" if source.slo else "-"
            times = (f"{one.percentile_ms(share):.2f}" for share in (50, 90, 99))
            rate = f"{len(one.latencies) / load.seconds:.1f}"
            slo = f"{source.slo * 1e3:g} ms" if source.slo else "-"
            table.add_row(
                source.name, often, slo, str(one.sent), rate, *times, missed, str(one.dropped), str(one.failed)
            )
        found = engine.statistics()
        if trace is not None:
            engine.save_trace(trace)
    _print(table)
    return found


def _simulate(arguments: argparse.Namespace) -> int:
    from tf_ext.lite import simulator, workloads

    if arguments.load is None:
        workload = workloads.draw(arguments.seed)
    else:
        from tf_ext.lite.load import simulated

        workload = simulated(_load(arguments))
    table = _table("policy", "jobs done", "mean latency, ms", "99 %", "last job, ms", "missed", "busy", "decision, us")
    for policy in _names(arguments.policies or ",".join(simulator.policies())):
        made = simulator.simulate(workload, policy)
        mean, last = made.mean_latency_us / 1e3, made.percentile_us(99) / 1e3
        times = (f"{mean:.2f}", f"{last:.2f}", f"{made.makespan_us / 1e3:.2f}")
        busy = " ".join(f"{share:.0%}" for share in made.utilisation)
        table.add_row(policy, str(int(made.done.sum())), *times, str(made.misses), busy, f"{made.decide_us:.1f}")
    _print(f"Simulated: {workload.name}, {len(workload.jobs)} jobs, {workload.workers} workers", table)
    return 0

"""`tf-ext tuner`: looks at the search plan of a tuner, repairs it, and takes over the trials of Keras Tuner."""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sqlite3
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tf_ext.errors import TfExtError

if TYPE_CHECKING:
    import rich.console

Command = Callable[[argparse.Namespace], int]


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the subcommand ``tuner``."""
    parser = commands.add_parser(
        "tuner", help="look at the search plan of a hyper-parameter study, export or repair it"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = _action(actions, "show", _show, "studies, their best trials, and what merging saved")
    tree = _action(actions, "tree", _tree, "the stages as a tree")
    export = _action(actions, "export", _export, "the stages as a page, a picture or JSON")
    for action, limit in ((show, 20), (tree, 200), (export, None)):
        action.add_argument("--study", metavar="NAME", help="look at this study only")
        told = "how many to show, 0 for all" + (f" (default {limit})" if limit else " (default 2000, JSON: all)")
        action.add_argument("--limit", type=_count, default=limit, metavar="N", help=told)
    export.add_argument("--format", choices=("html", "svg", "json"), help="default: as --out ends, else html")
    export.add_argument("--out", type=pathlib.Path, metavar="FILE", help="default: standard output")
    rerun = _action(actions, "rerun", _rerun, "train a trial again by itself, and compare its metrics bit for bit")
    rerun.add_argument("trial", metavar="TRIAL", help="id of the trial, as `show` prints it")
    rerun.add_argument("--study", metavar="NAME", help="its study, where several have such a trial")
    _action(actions, "repair", _repair, "save what can be read of a damaged plan; the damaged file is kept")
    bring = _action(actions, "import", _import, "take the trials of a Keras Tuner project into a plan", plan=False)
    bring.add_argument(
        "project", type=pathlib.Path, metavar="PROJECT", help="a directory with oracle.json; not changed"
    )
    bring.add_argument(
        "plan", type=pathlib.Path, metavar="PLAN", help="the directory of the plan; made if there is none"
    )
    bring.add_argument("--study", metavar="NAME", help="name of the study in the plan (default: that of the project)")


def _action(actions: Any, name: str, run: Command, told: str, *, plan: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=told)
    if plan:
        parser.add_argument("plan", type=pathlib.Path, metavar="PLAN", help="the directory of the plan")
    parser.set_defaults(run=functools.partial(_guarded, run))
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got {text}")
    return value


def _guarded(run: Command, arguments: argparse.Namespace) -> int:
    """What is wrong with a plan is told in a sentence, not in a traceback."""
    try:
        return run(arguments)
    except BrokenPipeError:
        sys.stderr.close()  # `tf-ext tuner tree PLAN | head`: Python would complain of the same at exit
        return 0
    except (TfExtError, sqlite3.OperationalError, OSError) as error:
        print(f"tf-ext tuner: {error}", file=sys.stderr)
        return 1


def _rerun(arguments: argparse.Namespace) -> int:
    from tf_ext.tuner._reruns import rerun
    from tf_ext.tuner.plan import Plan

    with Plan(arguments.plan, create=False) as plan:
        outcomes = rerun(plan, arguments.trial, arguments.study)
    for record, history, same in outcomes:
        print(f"Trial {record.trial}, execution {record.execution}: {len(history)} epochs, ", end="")
        print("equal to the plan bit for bit" if same else "NOT equal to the plan")
    if not all(same for *_, same in outcomes):
        print(
            "Another environment (versions, threads, processor) changes bits: `tf-ext tuner export` has that of the study."
        )
    return 0 if all(same for *_, same in outcomes) else 1


# Everything of the tuner is imported when it is needed: `tf-ext --version` must not take a second.


def _console(width: int) -> rich.console.Console:
    """The terminal; a file or a pipe is not cut at eighty columns."""
    import rich.console

    console = rich.console.Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else rich.console.Console(width=width)


def _show(arguments: argparse.Namespace) -> int:
    from tf_ext.tuner.views import summary, text

    found = summary.summarize(arguments.plan, arguments.study, limit=arguments.limit or None)
    text.print_summary(found, _console(160))
    return 0


def _tree(arguments: argparse.Namespace) -> int:
    from tf_ext.tuner.views import model, text

    view = model.read(arguments.plan, arguments.study)
    _console(400).print(text.EMPTY if view.empty else text.tree(view, limit=arguments.limit or None))
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from tf_ext.tuner.views import export

    kind = arguments.format or export.kind_of(arguments.out)
    limit = export.DEFAULT_LIMITS[kind] if arguments.limit is None else arguments.limit or None
    data = export.render(arguments.plan, kind, study=arguments.study, limit=limit)
    if arguments.out is None:
        print(data)
    else:
        export.write(arguments.out, data)
        print(f"wrote {arguments.out}", file=sys.stderr)
    return 0


def _repair(arguments: argparse.Namespace) -> int:
    from tf_ext.tuner import repair

    print(repair.repair(arguments.plan).told())
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from tf_ext.tuner import legacy
    from tf_ext.tuner.plan import Plan

    legacy.read_project(arguments.project)  # before a plan is made for nothing
    with Plan(arguments.plan) as plan:
        print(legacy.import_project(arguments.project, plan, study=arguments.study).told())
    return 0

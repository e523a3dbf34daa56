"""`tf-ext doctor`: what is installed, whether it fits, and how to get what is missing."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
from typing import Any

import rich.box
import rich.console
import rich.markup
import rich.table

import tf_ext
from tf_ext import ops
from tf_ext.cli import parts
from tf_ext.errors import OperatorLibraryError


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: what was looked at.
        state: ``"ok"``; ``"absent"`` for an optional part; ``"problem"`` for what keeps the suite from working.
        found: what was found, such as a version.
        remedy: what to do about it; empty if nothing.
    """

    name: str
    state: str
    found: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """All that `tf-ext doctor` tells, by section."""

    sections: dict[str, list[Finding]]

    @property
    def healthy(self) -> bool:
        """Whether nothing keeps the suite from working; optional parts may be absent."""
        return all(finding.state != "problem" for findings in self.sections.values() for finding in findings)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for ``--json``."""
        sections = {
            title: [dataclasses.asdict(finding) for finding in findings] for title, findings in self.sections.items()
        }
        return {"healthy": self.healthy, **sections}


def examine() -> Report:
    """Looks at everything and returns what was found; imports TensorFlow only if the operators can be loaded."""
    library, loads = _library()
    sections = {"versions": _versions(), "operators": [library]}
    if loads:
        sections["devices"] = _devices()
    sections["optional parts"] = _optional()
    return Report(sections)


def _versions() -> list[Finding]:
    findings = [
        Finding("tf_ext", "ok", tf_ext.__version__),
        Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
    ]
    try:
        ops.require_tensorflow("tf_ext")
    except OperatorLibraryError as error:
        present = ops.find_tensorflow()
        found = f"{present.distribution} {present.version}" if present else "absent"
        findings.append(Finding("tensorflow", "problem", found, str(error)))
    else:
        present = ops.find_tensorflow()
        assert present is not None
        findings.append(Finding("tensorflow", "ok", f"{present.version} ({present.distribution})"))
    for name in ("keras", "numpy", "tensorboard"):
        try:
            findings.append(Finding(name, "ok", importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(name, "absent", "absent", f"pip install {name}"))
    return findings


def _library() -> tuple[Finding, bool]:
    """The operator library, and whether it loads; a library that seems to fit is loaded, since only that proves it."""
    state = ops.inspect()
    found = "absent" if state.path is None else f"{state.path}, built for TensorFlow {state.built_for or 'unknown'}"
    if state.problem is None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        try:
            ops.load()
        except OperatorLibraryError as error:
            return Finding("_ops", "problem", found, str(error)), False
        return Finding("_ops", "ok", found), True
    return Finding("_ops", "problem", found, state.problem), False


def _devices() -> list[Finding]:
    import tensorflow as tf

    return [Finding(device.device_type, "ok", device.name) for device in tf.config.list_physical_devices()]


def _optional() -> list[Finding]:
    return [
        Finding(part.name, "ok", part.purpose)
        if part.present()
        else Finding(part.name, "absent", part.purpose, part.install)
        for part in parts.PARTS
    ]


_COLOURS = {"ok": "green", "absent": "yellow", "problem": "bold red"}


def _show(report: Report, console: rich.console.Console) -> None:
    for title, findings in report.sections.items():
        table = rich.table.Table(title=title, title_justify="left", box=rich.box.SIMPLE, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for finding in findings:
            state = f"[{_COLOURS[finding.state]}]{finding.state}[/]"
            table.add_row(finding.name, state, rich.markup.escape(finding.found), rich.markup.escape(finding.remedy))
        console.print(table)
    console.print("All is well." if report.healthy else "There are problems: see the lines above.")


def _run(arguments: argparse.Namespace) -> int:
    report = examine()
    if arguments.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _show(report, rich.console.Console())
    return 0 if report.healthy else 1


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the subcommand ``doctor``."""
    parser = commands.add_parser(
        "doctor", help="what is installed, whether it fits, and how to get what is missing (exit status 1: problems)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=_run)

"""The command's arguments, and which function runs which subcommand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from absl import app
from absl.flags import argparse_flags

import tf_ext
from tf_ext.cli import _doctor, _lite, _tuner


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses a command line.

    Args:
        argv: the program's name and its arguments, as absl passes them.

    Returns:
        The arguments; ``run`` among them is the function that carries the subcommand out.
    """
    parser = argparse_flags.ArgumentParser(prog="tf-ext", description="Tools of the tf_ext suite.")
    parser.add_argument("--version", action="version", version=f"tf_ext {tf_ext.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _doctor.add_to(commands)
    _tuner.add_to(commands)
    _lite.add_to(commands)
    arguments: argparse.Namespace = parser.parse_args(list(argv[1:]))
    return arguments


def main() -> None:
    """Runs the `tf-ext` command; its exit status tells how it went."""
    app.run(lambda arguments: arguments.run(arguments), argv=sys.argv, flags_parser=parse)

"""A search as a program, to be killed: `python -m benchmarks.tuner.killed ORACLE FOLDER WORKERS [smoke]`.

With 0 workers it trains in the process itself.
"""

import pathlib
import sys

from benchmarks.tuner import searches
from benchmarks.tuner.spaces import SPACES, Space


def space(smoke: bool) -> Space:
    """What is searched."""
    found = SPACES["batch size"]
    return found.smallest() if smoke else found


def run(oracle: str, directory: pathlib.Path, workers: int, smoke: bool) -> None:
    """Runs the search, or goes on with it."""
    searches.search(oracle, space(smoke), searches.default_state(), directory, workers=workers or None)


if __name__ == "__main__":
    run(sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), "smoke" in sys.argv[4:])

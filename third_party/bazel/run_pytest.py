"""Runs the pytest files named on the command line; Bazel's py_test needs a program to run."""

import os
import sys

import pytest

if __name__ == "__main__":
    # Tests run where their files lie; children that they start must find the same modules.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    sys.exit(pytest.main(["-p", "no:cacheprovider", "--import-mode=importlib", *sys.argv[1:]]))

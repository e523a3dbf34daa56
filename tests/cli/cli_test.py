"""The `tf-ext` command: its version without TensorFlow, the doctor's findings, and its exit status."""

import json
import os
import subprocess
import sys

import pytest

import tf_ext
from tf_ext.cli import _doctor, parts
from tf_ext.ops import find_tensorflow, inspect


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tf_ext.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def test_version():
    done = _run("--version")
    assert (done.returncode, done.stdout) == (0, f"tf_ext {tf_ext.__version__}\n")


def test_without_a_command_it_says_what_is_required():
    done = _run()
    assert done.returncode == 2
    assert "required: COMMAND" in done.stderr


def test_doctor_reports_the_installed_versions_and_is_healthy():
    done = _run("doctor", "--json")
    report = json.loads(done.stdout)
    found = {finding["name"]: finding for section in ("versions", "operators") for finding in report[section]}
    tensorflow = find_tensorflow()
    assert tensorflow is not None
    assert found["tensorflow"]["found"] == f"{tensorflow.version} ({tensorflow.distribution})"
    assert found["_ops"]["state"] == "ok"
    assert str(inspect().path) in found["_ops"]["found"]
    assert any(device["name"] == "CPU" for device in report["devices"])
    assert (report["healthy"], done.returncode) == (True, 0)


def test_doctor_tells_a_missing_library_by_its_exit_status_and_the_repair(tmp_path):
    done = _run("doctor", TF_EXT_OPS_LIBRARY=str(tmp_path / "gone.so"), COLUMNS="400")
    assert done.returncode == 1
    assert "python -m tf_ext.ops.build" in done.stdout
    assert "There are problems" in done.stdout


def test_optional_parts_that_are_absent_name_the_command_and_do_no_harm(monkeypatch):
    absent = parts.Part("nothing", "no purpose", "pip install nothing", module="tf_ext_has_no_such_module")
    monkeypatch.setattr(parts, "PARTS", (absent,))
    assert _doctor._optional() == [_doctor.Finding("nothing", "absent", "no purpose", "pip install nothing")]
    assert _doctor.Report({"optional parts": _doctor._optional()}).healthy


@pytest.mark.parametrize(("part", "present"), [("sys", True), ("tf_ext_has_no_such_module", False)])
def test_presence_of_a_module(part, present):
    assert parts.Part("p", "", "", module=part).present() is present

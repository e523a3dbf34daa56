"""`tf-ext tuner`: what it prints, where it writes, and how it says what is wrong."""

import json
import shutil
import subprocess
import sys
import time

import pytest

from tests.tuner.views import studies
from tf_ext.cli import _main
from tf_ext.tuner import views
from tf_ext.tuner.plan import Plan


@pytest.fixture
def plan(tmp_path):
    return studies.digits(tmp_path / "plan")


@pytest.fixture
def command(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments):
        parsed = _main.parse(["tf-ext", "tuner", *map(str, arguments)])
        code = parsed.run(parsed)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_show_and_tree_print_a_plan_without_cutting_lines(plan, command):
    code, out, err = command("show", plan)
    assert (code, err) == (0, "") and "merge rate       1.333" in out
    code, out, _ = command("tree", plan)
    assert code == 0 and len(out.splitlines()) == 7
    assert out.splitlines()[1].rstrip().endswith("3 trials: 0, 2, 1  best score 0.1767")


def test_limits_and_studies_are_passed_on(plan, command):
    assert "4 stages are not shown" in command("tree", plan, "--limit", 2)[1]
    assert "are not shown" not in command("tree", plan, "--limit", 0)[1]
    assert "the best 1 of 4" in command("show", plan, "--limit", 1)[1]
    code, out, err = command("show", plan, "--study", "x")
    assert (code, out) == (1, "") and err == (
        f"tf-ext tuner: expected one of the studies of {plan} (digits), got 'x'.\n"
    )
    with pytest.raises(SystemExit):
        command("tree", plan, "--limit", "-1")


def test_export_takes_its_format_from_the_file_or_the_option(plan, command, tmp_path):
    for name, begin in (("a.svg", "<svg"), ("a.html", "<!DOCTYPE html>"), ("a.json", "{")):
        assert command("export", plan, "--out", tmp_path / name)[:2] == (0, "")
        assert (tmp_path / name).read_text().startswith(begin)
    out = command("export", plan, "--format", "json", "--limit", 1)[1]
    assert [len(json.loads(out)[key]) for key in ("stages", "trials")] == [1, 4]
    code, _, err = command("export", plan, "--out", tmp_path / "no" / "a.html")
    assert code == 1 and "No such file" in err


def test_an_empty_plan_and_none_at_all(command, tmp_path):
    Plan(tmp_path / "empty").close()
    for action in ("show", "tree"):
        code, out, _ = command(action, tmp_path / "empty")
        assert code == 0 and "The plan is empty" in out
    code, _, err = command("show", tmp_path)
    assert code == 1 and "found no plan.sqlite" in err and "Traceback" not in err
    assert not (tmp_path / "plan.sqlite").exists()


def test_a_damaged_plan_names_the_command_that_repairs_it(plan, command):
    path = plan / "plan.sqlite"
    path.write_bytes(b"\xff" * 100 + path.read_bytes()[100:])
    code, _, err = command("show", plan)
    assert code == 1 and f"tf-ext tuner repair {plan}" in err
    code, out, _ = command("repair", plan)
    assert code == 0 and "node: 4 kept" in out and "plan.sqlite.damaged-" in out
    assert views.read(plan).totals.executed == 100
    assert "Nothing is wrong" in command("repair", plan)[1]


def test_import_makes_a_study(command, tmp_path):
    trial = {
        "trial_id": "0", "hyperparameters": {"values": {"lr": 0.1}}, "score": 0.5, "best_step": 1, "status": "COMPLETED",
        "metrics": {"metrics": {"val_loss": {"direction": "min", "observations": [{"value": [0.5], "step": 1}]}}},
    }  # fmt: skip
    (tmp_path / "old" / "trial_0").mkdir(parents=True)
    (tmp_path / "old" / "trial_0" / "trial.json").write_text(json.dumps(trial))
    code, out, _ = command("import", tmp_path / "old", tmp_path / "plan", "--study", "mine")
    assert code == 0 and "1 trials are in the plan as study 'mine'" in out
    assert "mine: 1 trials, objective val_loss (min)" in command("show", tmp_path / "plan")[1]
    code, _, err = command("import", tmp_path, tmp_path / "other")
    assert code == 1 and "found no oracle.json" in err and not (tmp_path / "other").exists()


def test_a_reader_that_goes_away_is_no_error(plan):
    shutil.rmtree(plan)
    studies.grid(plan, rates=3, changes=18)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m tf_ext.cli tuner export {plan} | head -c 10"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "<!DOCTYPE ", "")


def test_a_plan_of_some_thousand_stages_is_summed_up_quickly(tmp_path):
    plan = studies.grid(tmp_path / "plan", rates=10, changes=300)
    before = time.process_time()
    from tf_ext.tuner.views import summary

    assert sum(summary.summarize(plan).totals.stages.values()) > 3000
    assert time.process_time() - before < 3.0

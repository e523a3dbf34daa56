"""Keras Tuner's project directories: read as they are, left as they are, and taken into a plan."""

import json
import math
import pathlib

import pytest

from tf_ext.tuner import legacy, views
from tf_ext.tuner.errors import PlanMismatchError
from tf_ext.tuner.plan import Plan


def _trial(root, name, values, metrics=None, score=None, best=0, status="COMPLETED", message=None):
    tracked = {
        metric: {"direction": direction, "observations": [{"value": value, "step": best}]}
        for metric, (direction, value) in (metrics or {}).items()
    }
    state = {
        "trial_id": name, "hyperparameters": {"space": [], "values": values}, "metrics": {"metrics": tracked},
        "score": score, "best_step": best, "status": status, "message": message,
    }  # fmt: skip
    path = root / f"trial_{name}" / "trial.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(state))


@pytest.fixture
def project(tmp_path):
    """As Keras Tuner 1.4.8 writes it; the test at the end compares with the real one."""
    root = tmp_path / "digits"
    _trial(root, "00", {"lr": 0.1}, {"val_acc": ("max", [0.8, 0.9]), "loss": ("min", [0.3, 0.5])}, 0.85, best=2)
    _trial(root, "01", {"lr": 0.01}, {"val_acc": ("max", [0.7, 0.7]), "loss": ("min", [0.7, 0.7])}, 0.7, best=4)
    _trial(root, "02", {"lr": 0.5}, status="FAILED", message="Traceback\nValueError: bad")
    _trial(root, "03", {"lr": 0.6}, status="RUNNING")
    (root / "oracle.json").write_text(json.dumps({"start_order": ["01", "00", "02", "03"]}))
    return root


def _files(root: pathlib.Path) -> dict[str, tuple[bytes, int]]:
    found = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def test_a_project_is_read_in_the_order_of_its_trials(project):
    read = legacy.read_project(project)
    assert [t.trial for t in read.trials] == ["01", "00", "02", "03"]
    assert (read.objective, read.direction, read.skipped) == ("val_acc", "max", ())
    best = read.best()
    assert best is not None and (best.trial, best.values, best.best_step) == ("00", {"lr": 0.1}, 2)
    assert best.metrics == {2: {"val_acc": pytest.approx(0.85), "loss": pytest.approx(0.4)}}
    assert [t.epochs for t in read.trials] == [5, 3, 0, 0]


def test_a_trial_that_was_being_written_is_told_and_left_out(project):
    path = project / "trial_01" / "trial.json"
    path.write_text(path.read_text()[:60])
    (project / "trial_02" / "trial.json").write_text("[]")
    read = legacy.read_project(project)
    assert [t.trial for t in read.trials] == ["00", "03"]
    assert [reason.split(" ")[0] for reason in read.skipped] == ["trial_01/trial.json", "trial_02/trial.json"]


def test_without_its_oracle_a_project_is_still_read(project):
    (project / "oracle.json").write_text("{")
    read = legacy.read_project(project)
    assert [t.trial for t in read.trials] == ["00", "01", "02", "03"]
    assert read.skipped[0].startswith("oracle.json (JSONDecodeError")


def test_scores_that_no_metric_explains_have_no_objective(tmp_path):
    _trial(tmp_path, "0", {}, {"a": ("min", [1.0]), "b": ("max", [2.0])}, score=-1.0)
    assert (legacy.read_project(tmp_path).objective, legacy.read_project(tmp_path).direction) == ("score", "min")


def test_a_metric_that_agrees_with_one_score_by_chance_is_not_the_objective(tmp_path):
    _trial(tmp_path, "0", {}, {"loss": ("min", [0.5]), "val_loss": ("min", [0.5])}, score=0.5)
    assert legacy.read_project(tmp_path).objective == "val_loss"
    _trial(tmp_path, "1", {}, {"loss": ("min", [0.4]), "val_loss": ("min", [0.6])}, score=0.4)
    assert legacy.read_project(tmp_path).objective == "loss"


def test_a_score_that_is_no_number_is_not_the_best(tmp_path):
    _trial(tmp_path, "0", {}, {"val_loss": ("min", [math.nan])}, score=math.nan)
    assert legacy.read_project(tmp_path).best() is None
    _trial(tmp_path, "1", {}, {"val_loss": ("min", [3.0])}, score=3.0)
    best = legacy.read_project(tmp_path).best()
    assert best is not None and best.trial == "1"


def test_what_is_no_project_is_refused_and_those_below_are_named(project):
    with pytest.raises(PlanMismatchError, match="There are projects below it: digits"):
        legacy.read_project(project.parent)
    with pytest.raises(PlanMismatchError, match="Check the path"):
        legacy.read_project(project / "trial_00")


def test_an_imported_project_can_be_looked_at_and_is_not_changed(project, tmp_path):
    before = _files(project)
    with Plan(tmp_path / "plan") as plan:
        done = legacy.import_project(project, plan)
    assert (done.study, done.trials, _files(project)) == ("digits", 4, before)
    view = views.read(tmp_path / "plan")
    found = {t.trial: (t.status, t.score, t.best_epoch, t.epochs) for t in view.trials}
    assert found == {
        "00": ("COMPLETED", 0.85, 2, 3),
        "01": ("COMPLETED", 0.7, 4, 5),
        "02": ("FAILED", None, None, 0),
        "03": ("STOPPED", None, None, 0),
    }
    stage = view.stages[[dict(s.config) for s in view.stages].index({"lr": 0.1})]
    assert (stage.state, stage.best_epoch) == ("done", 2)
    assert stage.metrics == {"val_acc": pytest.approx(0.85), "loss": pytest.approx(0.4)}
    assert (view.totals.requested, view.totals.merge_rate) == (0, None)  # steps are not known, and claimed by none


def test_importing_again_takes_what_has_come_since(project, tmp_path):
    with Plan(tmp_path / "plan") as plan:
        legacy.import_project(project, plan)
        totals = plan.totals()
        _trial(project, "04", {"lr": 0.2}, {"val_acc": ("max", [0.95])}, 0.95, best=1)
        legacy.import_project(project, plan)
        assert plan.totals() == {**totals, "trial": 5, "node": totals["node"] + 1, "run": totals["run"] + 1}


def test_hyperband_trials_go_on_where_others_ended(tmp_path):
    root = tmp_path / "band"
    _trial(root, "0", {"lr": 0.1, "tuner/epochs": 2, "tuner/round": 0}, {"val_loss": ("min", [0.5])}, 0.5, best=1)
    _trial(root, "1", {"lr": 0.1, "tuner/epochs": 4, "tuner/round": 1}, {"val_loss": ("min", [0.3])}, 0.3, best=3)
    with Plan(tmp_path / "plan") as plan:
        legacy.import_project(root, plan)
    stages = views.read(tmp_path / "plan").stages
    assert [(s.start, s.end, s.metrics) for s in stages] == [(0, 2, {"val_loss": 0.5}), (2, 4, {"val_loss": 0.3})]


def test_a_study_of_the_plan_is_not_overwritten(project, tmp_path):
    with Plan(tmp_path / "plan") as plan:
        plan.study("digits", "val_loss", "min", {})
        with pytest.raises(PlanMismatchError, match="got 'digits'"):
            legacy.import_project(project, plan)
        done = legacy.import_project(project, plan, study="old", objective="loss", direction="min")
        assert [(s["name"], s["objective"], s["direction"]) for s in plan.studies()][1] == ("old", "loss", "min")
    assert done.told() == "4 trials are in the plan as study 'old'; the project was not changed."


def test_what_keras_tuner_itself_writes_is_read(tmp_path):
    import keras_tuner

    class Search(keras_tuner.RandomSearch):
        def run_trial(self, trial, *_, **__):
            rate = trial.hyperparameters.Float("rate", 0, 1)
            if trial.trial_id.endswith("1"):
                raise keras_tuner.errors.FailedTrialError("bad rate")
            return [{"val_loss": 1 + rate, "loss": rate}, {"val_loss": 2 + rate, "loss": rate}]

    search = Search(max_trials=3, objective="val_loss", directory=str(tmp_path), project_name="real", seed=1)
    search.search(verbose=0)
    read = legacy.read_project(tmp_path / "real")
    assert (read.objective, read.direction, read.skipped, len(read.trials)) == ("val_loss", "min", (), 3)
    theirs = search.oracle.get_best_trials(1)[0]
    best = read.best()
    assert best is not None
    assert (best.trial, best.score, best.values) == (theirs.trial_id, theirs.score, theirs.hyperparameters.values)
    failed = [t for t in read.trials if t.status == "FAILED"]
    assert len(failed) == 1 and failed[0].message is not None and "bad rate" in failed[0].message

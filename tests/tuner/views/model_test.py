"""The drawable model of a plan: where nodes are cut, what state a stage is in, and what is counted."""

import os
import sqlite3
import subprocess
import sys

import pytest

from tests.tuner.views import studies
from tf_ext.tuner import views
from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError, PlanVersionError
from tf_ext.tuner.plan import Plan, Run, TrialRecord


@pytest.fixture
def plan(tmp_path):
    return studies.digits(tmp_path / "plan")


def _outline(view):
    return [(s.node, s.start, s.end, s.parent, s.state, s.steps, len(view.through(s))) for s in view.stages]


def test_nodes_are_cut_where_children_leave_trials_end_and_runs_end(plan):
    assert _outline(views.read(plan)) == [
        (1, 0, 2, None, "done", 20, 3),
        (1, 2, 4, 0, "done", 20, 2),
        (1, 4, 6, 1, "done", 20, 1),
        (3, 4, 6, 1, "pending", 0, 1),
        (2, 2, 6, 0, "done", 40, 1),
        (4, 0, 6, None, "failed", 0, 1),
    ]


def test_a_stage_knows_its_changes_metrics_trials_and_score(plan):
    view = views.read(plan)
    first, fork = view.stages[0], view.stages[4]
    assert fork.changes == (("lr", 0.1, 0.01),)
    assert first.changes == () and dict(first.config) == {"lr": 0.1, "units": 8}
    assert fork.metrics == {"loss": studies.loss(5, 0.01) / 2, "val_loss": studies.loss(5, 0.01)}
    assert (first.best_epoch, first.best["val_loss"]) == (1, 0.6)
    assert {trial.trial for trial in view.through(first)} == {"0", "1", "2"}
    assert (first.score, view.stages[1].score) == (0.1767, 0.2667)
    assert first.last == 5 and [s.index for s in view.stages[1:4]] == [1, 2, 3]
    failed = view.through(view.stages[5])[0]
    assert (failed.message, failed.stage) == ("out of <memory>", 5)


def test_totals_count_what_each_trial_would_have_taken_alone(plan):
    totals = views.read(plan).totals
    assert (totals.requested, totals.executed, totals.repeated) == (60 + 60 + 40, 100, 20)
    assert totals.merge_rate == 160 / 120
    assert (totals.seconds, totals.repeated_seconds) == (5.0, 1.0)
    assert (totals.checkpoints, totals.checkpoint_bytes) == (1, 1000)
    assert totals.statuses == {"COMPLETED": 2, "FAILED": 1, "RUNNING": 1}


def test_the_best_value_of_an_objective_that_rises_is_the_greatest(tmp_path):
    with Plan(tmp_path) as plan:
        study = plan.study("s", "accuracy", "max", {})
        context = plan.context("c", {})
        record = studies.ask(plan, study, context, "0", {"a": 1}, 3, "COMPLETED", score=0.7)
        studies.replace_trial(plan, study, record, trial="1", score=0.9)
        history = [{"accuracy": 0.5}, {"accuracy": 0.9}, {"accuracy": float("nan")}]
        plan.record(Run(record.leaf, 0, 3, history, 30, 1.0))
    (stage,) = views.read(tmp_path).stages
    assert (stage.best_epoch, stage.best, stage.score) == (1, {"accuracy": 0.9}, 0.9)


@pytest.mark.parametrize("alive", [True, False])
def test_a_stage_runs_only_while_the_process_that_claims_it_lives(plan, alive):
    code = (
        f"from tf_ext.tuner.plan import Plan; p = Plan({str(plan)!r}); p.claim(3, 4, 6); print(1, flush=True); input()"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None and worker.stdout.readline() == "1\n"
        if not alive:
            worker.kill()
            worker.wait(10)
        assert views.read(plan).stages[3].state == ("running" if alive else "pending")
        assert len(list((plan / "owners").iterdir())) == 1  # one who looks removes nothing
    finally:
        worker.kill()
        worker.communicate(timeout=10)


def test_what_follows_a_training_that_a_callback_stopped_is_not_drawn(tmp_path):
    with Plan(tmp_path) as plan:
        study, context = plan.study("s", "val_loss", "min", {}), plan.context("c", {})
        record = studies.ask(plan, study, context, "0", {"lr": "0.1@0|0.01@5"}, 9, "COMPLETED", score=0.3)
        studies.train(plan, 1, 0, 3, 0.1, stopped=True)
    view = views.read(tmp_path)
    assert _outline(view) == [(1, 0, 3, None, "done", 30, 1)]
    assert view.stages[0].stopped and view.trials[0].stage == 0 and view.totals.requested == 30
    assert record.epochs == view.trials[0].epochs == 9


@pytest.mark.parametrize(("status", "drawn"), [("COMPLETED", 1), ("STOPPED", 1), ("RUNNING", 2), ("FAILED", 2)])
def test_what_no_trial_waits_for_any_more_is_not_drawn(tmp_path, status, drawn):
    with Plan(tmp_path) as plan:
        study, context = plan.study("s", "val_loss", "min", {}), plan.context("c", {})
        studies.ask(plan, study, context, "0", {"lr": "0.1@0|0.01@2"}, 9, status)
        studies.train(plan, 1, 0, 2, 0.1)
    view = views.read(tmp_path)
    assert len(view.stages) == drawn
    assert [len(view.through(stage)) for stage in view.stages] == [1] * drawn


def test_a_study_alone_has_only_what_its_trials_go_through(plan):
    with Plan(plan) as opened:
        other = opened.study("other", "val_loss", "min", {})
        studies.ask(opened, other, 1, "x", {"lr": 0.1, "units": 8}, 4, "COMPLETED", score=0.5, best_epoch=1)
    alone = views.read(plan, "other")
    assert _outline(alone) == [(1, 0, 4, None, "done", 40, 1)]
    assert (alone.totals.requested, alone.totals.executed, alone.totals.repeated) == (40, 40, 20)
    assert views.read(plan).totals.requested == 200
    assert len(views.read(plan).stages[0].config) == 2


def test_a_trial_without_a_path_is_there_without_a_stage(tmp_path):
    with Plan(tmp_path) as plan:
        study = plan.study("s", "val_loss", "min", {})
        plan.put_trial(study, TrialRecord("0", 0, {"a": 1}, 0, 0, 0, "INVALID", message="build failed"))
    view = views.read(tmp_path)
    assert (view.stages, view.trials[0].stage, view.totals.merge_rate, view.empty) == ((), None, None, False)


def test_steps_of_the_parts_of_a_run_sum_up_to_it(tmp_path):
    with Plan(tmp_path) as plan:
        study, context = plan.study("s", "val_loss", "min", {}), plan.context("c", {})
        for epochs in (1, 2, 3):
            studies.ask(plan, study, context, str(epochs), {"lr": 0.1}, epochs, "COMPLETED")
        plan.record(Run(1, 0, 3, [{}] * 3, 10, 3.0))
    assert [stage.steps for stage in views.read(tmp_path).stages] == [3, 3, 4]


def test_a_trial_that_goes_on_with_another_asks_for_the_rest(tmp_path):
    with Plan(tmp_path) as plan:
        study, context = plan.study("s", "val_loss", "min", {}), plan.context("c", {})
        first = studies.ask(plan, study, context, "0", {"lr": 0.1}, 2, "COMPLETED")
        resumed = {"lr": 0.1, "tuner/initial_epoch": 2, "tuner/epochs": 6}
        studies.replace_trial(plan, study, first, trial="1", values=resumed, epochs=6)
        studies.train(plan, first.leaf, 0, 2, 0.1)
        studies.train(plan, first.leaf, 2, 6, 0.1)
    view = views.read(tmp_path)
    assert [len(view.through(stage)) for stage in view.stages] == [2, 1]
    assert (view.totals.requested, view.totals.executed, view.totals.merge_rate) == (60, 60, 1.0)


def test_long_chains_and_wide_forks_are_read(tmp_path):
    with Plan(tmp_path) as plan, plan.transaction():
        study, context = plan.study("s", "val_loss", "min", {}), plan.context("c", {})
        rates = "|".join(f"{1 / (e + 1)}@{e}" for e in range(3000))
        studies.ask(plan, study, context, "0", {"lr": rates}, 3000, "RUNNING")
    view = views.read(tmp_path)
    assert len(view.stages) == 3000 and view.stages[0].last == 3000 and len(view.through(view.stages[0])) == 1


def test_an_empty_plan_is_empty(tmp_path):
    Plan(tmp_path).close()
    assert views.read(tmp_path).empty


def test_looking_changes_no_byte_and_needs_no_right_to_write(plan):
    before = (plan / "plan.sqlite").read_bytes()
    for path in (plan / "plan.sqlite", plan):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert len(views.read(plan).stages) == 6
        assert (plan / "plan.sqlite").read_bytes() == before
        if os.geteuid() != 0:
            assert sorted(p.name for p in plan.iterdir()) == ["owners", "plan.sqlite"]
    finally:
        plan.chmod(0o755)


def test_a_plan_is_read_while_another_process_writes(plan):
    with Plan(plan) as opened, opened.transaction():
        studies.train(opened, 3, 4, 6, 0.02)
        assert views.read(plan).stages[3].state == "pending"  # as it was before the transaction
    assert views.read(plan).stages[3].state == "done"


def test_errors_say_what_is_wrong(plan, tmp_path):
    with pytest.raises(PlanMismatchError, match=r"found no plan\.sqlite"):
        views.read(tmp_path / "nowhere")
    with pytest.raises(PlanMismatchError, match=r"one of the studies .*\(digits\), got 'x'"):
        views.read(plan, "x")
    db = sqlite3.connect(plan / "plan.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(PlanVersionError, match="version 99"):
        views.read(plan)
    (plan / "plan.sqlite").write_bytes(b"no data base at all" * 300)
    with pytest.raises(CorruptedPlanError, match=f"tf-ext tuner repair {plan}"):
        views.read(plan)

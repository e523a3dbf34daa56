"""A plan in the terminal: the tree, the table of trials, and what is left out of a huge plan."""

import io

import pytest
import rich.console

from tests.tuner.views import studies
from tf_ext.tuner import views
from tf_ext.tuner.plan import Plan
from tf_ext.tuner.views import choosing, summary, text, wording


def _printed(thing, width=200):
    console = rich.console.Console(file=io.StringIO(), width=width)
    thing(console) if callable(thing) else console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_tree_has_a_line_for_each_stage(tmp_path):
    view = views.read(studies.digits(tmp_path / "plan"))
    lines = _printed(text.tree(view))
    assert lines[0].endswith(
        "plan: 4 trials, 6 stages, merge rate 1.333 (160 steps requested, 100 executed, 20 repeated)"
    )
    assert lines[1:] == [
        "├── ● epochs 0–2 lr=0.1 units=8  done  20 steps 1.0 s  loss=0.3 val_loss=0.6  3 trials: 0, 2, 1"  # noqa: RUF001
        "  best score 0.1767",
        "│   ├── ● epochs 2–4 unchanged  done  20 steps 1.0 s  loss=0.175 val_loss=0.35  2 trials: 0, 2"  # noqa: RUF001
        "  best score 0.2667",
        "│   │   ├── ● epochs 4–6 unchanged  done  20 steps 1.0 s  loss=0.1333 val_loss=0.2667  1 trial: 0"  # noqa: RUF001
        "  best score 0.2667",
        "│   │   └── ○ epochs 4–6 lr 0.1 → 0.02  pending  1 trial: 2",  # noqa: RUF001
        "│   └── ● epochs 2–6 lr 0.1 → 0.01  done  40 steps 2.0 s  loss=0.08835 val_loss=0.1767  1 trial: 1"  # noqa: RUF001
        "  best score 0.1767",
        "└── ✗ epochs 0–6 lr=0.1 units=99  failed  1 trial: 3",  # noqa: RUF001
    ]


def test_a_schedule_of_many_values_stays_on_the_screen(tmp_path):
    with Plan(tmp_path) as plan:
        study, context = plan.study("s", "val_loss", "min", {}), plan.context("c", {})
        falling = "|".join(f"{1 / (e + 1)}@{e}" for e in range(50))
        for number, last in enumerate(("8.0", "9.0")):
            studies.ask(plan, study, context, str(number), {"lr": f"{falling}|{last}@50|7.0@51"}, 52, "RUNNING")
    lines = _printed(text.tree(views.read(tmp_path)), width=200)
    assert len(lines) == 1 + 50 + 2 * 2
    assert lines[1].startswith("├── ○ epochs 0–1 lr=1")  # noqa: RUF001
    assert all(line[4:].startswith("↳ ○ epochs") for line in lines[2:51])
    assert [line[4:].split(" lr ")[0] for line in lines[51:]] == [
        "├── ○ epochs 50–51", "├── ↳ ○ epochs 51–52", "├── ○ epochs 50–51", "└── ↳ ○ epochs 51–52",  # noqa: RUF001
    ]  # fmt: skip
    told = _printed(lambda console: text.print_summary(summary.summarize(tmp_path), console), width=120)
    assert len(told) < 15 and "…" in "\n".join(told)


def test_the_best_trials_come_first_and_the_rest_is_counted(tmp_path):
    plan = studies.digits(tmp_path / "plan")
    lines = _printed(lambda console: text.print_summary(summary.summarize(plan, limit=3), console))
    rows = [line.split() for line in lines if line.lstrip()[:1].isdigit()]
    assert [row[:5] for row in rows] == [
        ["1", "COMPLETED", "0.1767", "5", "6"],
        ["0", "COMPLETED", "0.2667", "5", "6"],
        ["2", "RUNNING", "-", "-", "6"],
    ]
    told = "\n".join(lines)
    assert "digits: 4 trials, objective val_loss (min)" in told
    assert "the best 3 of 4; --limit 0 shows all" in told
    assert [line.split()[:3] for line in lines if line.startswith(" steps")] == [
        ["steps", "requested", "160"],
        ["steps", "executed", "100"],
        ["steps", "repeated", "20"],
    ]
    assert "merge rate       1.333" in told


def test_a_summary_counts_what_the_model_counts(tmp_path):
    plan = studies.digits(tmp_path / "plan")
    assert summary.summarize(plan).totals == views.read(plan).totals


def test_markup_in_a_plan_is_text(tmp_path):
    with Plan(tmp_path) as plan:
        study, context = plan.study("[red]s", "val_loss", "min", {}), plan.context("c", {})
        studies.ask(plan, study, context, "[bold]0", {"optimizer": "[blink]sgd"}, 2, "FAILED", message="[/] no")
    told = "\n".join(_printed(lambda console: text.print_summary(summary.summarize(tmp_path), console)))
    assert "[red]s: 1 trials" in told and "[bold]0" in told and "optimizer=[blink]sgd ([/] no)" in told
    assert "[blink]sgd" in "\n".join(_printed(text.tree(views.read(tmp_path))))


def test_of_a_large_plan_the_most_shared_stages_are_shown_and_the_rest_is_told(tmp_path):
    view = views.read(studies.grid(tmp_path / "plan", rates=3, changes=8))
    choice = choosing.most_shared(view, 6)
    drawn = {stage.index for stage in choice.stages}
    assert len(drawn) == 6 and all(stage.parent is None or stage.parent in drawn for stage in choice.stages)
    shown = [len(view.through(stage)) for stage in choice.stages]
    left = max(len(view.through(stage)) for stage in view.stages if stage.index not in drawn)
    assert min(shown) >= left
    assert sum(choice.hidden.values()) == choice.left_out == len(view.stages) - 6
    lines = _printed(text.tree(view, limit=6))
    assert f"{choice.left_out} stages are not shown; --limit 0 shows all" in lines[-1]


def test_a_stage_at_work_is_drawn_before_others(tmp_path):
    plan = studies.grid(tmp_path / "plan", rates=3, changes=4)
    with Plan(plan) as opened:
        study = opened.studies()[0]["id"]
        record = studies.ask(opened, study, 1, "new", {"lr": 7.0}, 3, "RUNNING")
        assert opened.claim(record.leaf, 0, 3)
        (stage,) = choosing.most_shared(views.read(plan), 1).stages
    assert (stage.state, dict(stage.config)) == ("running", {"lr": 7.0})


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0314, "31 ms"), (12.34, "12.3 s"), (250.2, "4 min 10 s"), (3599.7, "1 h 0 min"), (11100, "3 h 5 min")],
)
def test_durations_read_well(seconds, told):
    assert wording.duration(seconds) == told


@pytest.mark.parametrize(("count", "told"), [(0, "0 B"), (999, "999 B"), (1_100_000, "1.1 MB"), (2e15, "2000.0 TB")])
def test_sizes_read_well(count, told):
    assert wording.bytes_of(count) == told

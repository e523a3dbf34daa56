"""The plugin's routes: which plans are found, what is served of them, and what is refused."""

import importlib.metadata
import json
import os

import pytest
import werkzeug.test
from tensorboard.plugins import base_plugin

from tests.tuner.views import studies
from tf_ext.tensorboard.finder import PlanFinder
from tf_ext.tensorboard.plugin import StageTreePlugin
from tf_ext.tuner.plan import Plan


@pytest.fixture
def logdir(tmp_path):
    root = tmp_path / "logs"
    studies.digits(root / "digits" / "first")
    studies.grid(root / "grid", rates=2, changes=3)
    studies.digits(tmp_path / "secret")
    return root


def _plugin(logdir):
    return StageTreePlugin(base_plugin.TBContext(logdir=str(logdir)))


def _get(plugin, path, method="GET", **query):
    client = werkzeug.test.Client(plugin.get_plugin_apps()[path])
    response = client.open("/", method=method, query_string=query)
    return response.status_code, response.get_data(as_text=True), response.headers


def _tree(plugin, **query):
    code, text, _ = _get(plugin, "/tree", **query)
    return code, json.loads(text)


def test_plans_are_found_at_any_depth_but_not_outside_and_not_through_links(logdir):
    os.symlink(logdir.parent / "secret", logdir / "link")
    (logdir / "plain").mkdir()
    os.symlink(logdir.parent / "secret" / "plan.sqlite", logdir / "plain" / "plan.sqlite")
    plugin = _plugin(logdir)
    assert plugin.is_active()
    assert json.loads(_get(plugin, "/plans")[1]) == {"plans": ["digits/first", "grid"]}


def test_a_plan_is_served_as_it_is_drawn(logdir):
    code, drawn = _tree(_plugin(logdir), plan="digits/first")
    assert code == 200 and drawn["model"]["totals"]["requested"] == 160
    assert [stage["state"] for stage in drawn["model"]["stages"]] == ["done"] * 3 + ["pending", "done", "failed"]
    assert drawn["body"].count("data-stage=") == 6
    assert drawn["model"]["trials"][-1]["message"] == "out of <memory>"


def test_the_log_directory_itself_may_be_a_plan(logdir):
    plugin = _plugin(logdir / "grid")
    assert json.loads(_get(plugin, "/plans")[1]) == {"plans": ["."]}
    assert _tree(plugin, plan=".")[0] == 200


@pytest.mark.parametrize(
    "name",
    ["", "nothing", "..", "../secret", "digits/../../secret", "%2e%2e/secret", "{absolute}", "digits/first/", "grid\0"],
)
def test_what_was_not_found_is_not_served(logdir, name):
    code, answer = _tree(_plugin(logdir), plan=name.format(absolute=logdir.parent / "secret"))
    assert (code, answer) == (404, {"error": "There is no such plan under the log directory."})


def test_what_has_not_changed_is_not_sent_again(logdir):
    plugin = _plugin(logdir)
    first = _tree(plugin, plan="grid")[1]
    again = _tree(plugin, plan="grid", have=first["fingerprint"])[1]
    assert again == {"fingerprint": first["fingerprint"], "unchanged": True}
    with Plan(logdir / "grid") as plan:
        studies.ask(plan, 1, 1, "new", {"lr": 9.0}, 3, "RUNNING")
    changed = _tree(plugin, plan="grid", have=first["fingerprint"])[1]
    assert changed["model"]["totals"]["stages"]["pending"] == 1


def test_one_study_alone_and_one_that_is_not_there(logdir):
    plugin = _plugin(logdir)
    assert _tree(plugin, plan="grid", study="grid")[1]["model"]["studies"][0]["name"] == "grid"
    code, answer = _tree(plugin, plan="grid", study="<b>")
    assert code == 500 and "expected one of the studies" in answer["error"]


def test_a_damaged_plan_is_told(logdir):
    (logdir / "grid" / "plan.sqlite").write_bytes(b"damaged " * 1000)
    code, answer = _tree(_plugin(logdir), plan="grid")
    assert code == 500 and "tf-ext tuner repair" in answer["error"]


def test_other_methods_are_refused(logdir):
    assert _get(_plugin(logdir), "/tree", method="POST", plan="grid")[0] == 405


def test_the_module_is_one_file_without_imports_and_with_a_render_function(logdir):
    code, text, headers = _get(_plugin(logdir), "/index.js")
    assert code == 200 and headers["Content-Type"].startswith("application/javascript")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "export async function render()" in text
    assert not [line for line in text.splitlines() if line.startswith("import ")] and "http" not in text
    assert ".stage-tree" in _get(_plugin(logdir), "/style.css")[1]


@pytest.mark.parametrize("logdir", [None, "", "gs://bucket/logs", "/no/such/directory"])
def test_without_a_local_log_directory_there_are_no_plans(logdir):
    assert PlanFinder(logdir).plans() == {}
    assert not StageTreePlugin(base_plugin.TBContext(logdir=logdir)).is_active()


def test_tensorboard_finds_the_plugin_by_its_entry_point():
    (point,) = importlib.metadata.entry_points(group="tensorboard_plugins", name="stage_tree")
    assert point.load() is StageTreePlugin

"""A plan as a file: pages that stand alone, pictures, JSON that browsers read, whole or not at all."""

import html.parser
import json
import os
import pathlib
import xml.etree.ElementTree

import pytest

from tests.tuner.views import studies
from tf_ext.tuner import views
from tf_ext.tuner.plan import Plan, Run
from tf_ext.tuner.views import choosing, export, layout, svg

_SVG = "{http://www.w3.org/2000/svg}"


class _Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.addresses: list[str] = []
        self.model = ""
        self._in_model = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value is not None]
        self._in_model = ("id", "model") in attrs

    def handle_data(self, data):
        if self._in_model:
            self.model += data

    def handle_endtag(self, tag):
        self._in_model = False


@pytest.fixture
def plan(tmp_path):
    return studies.digits(tmp_path / "plan")


def _boxes(text):
    root = xml.etree.ElementTree.fromstring(text)
    groups = [g for g in root.iter(f"{_SVG}g") if "data-stage" in g.attrib]
    rects = [g.find(f"{_SVG}rect") for g in groups]
    return groups, [rect for rect in rects if rect is not None]


def test_bars_are_as_long_as_their_steps_and_begin_where_the_one_before_ends(plan):
    groups, rects = _boxes(export.render(plan, "svg"))
    assert [g.get("class") for g in groups] == [
        "stage done", "stage done", "stage done", "stage pending unscored", "stage done", "stage failed unscored",
    ]  # fmt: skip
    x = [float(rect.get("x", "")) for rect in rects]
    width = [float(rect.get("width", "")) + 1 for rect in rects]
    assert width[4] == pytest.approx(2 * width[0], abs=0.2)
    assert x[1] == x[4] == pytest.approx(x[0] + width[0], abs=0.2)
    rows = [rect.get("y") for rect in rects]
    assert rows[0] == rows[1] == rows[2] and len(set(rows)) == 4
    assert rects[3].get("stroke-dasharray") == "4 2"


def test_what_is_not_trained_is_as_long_as_the_stage_before_lets_one_guess(plan):
    boxes = layout.lay_out(choosing.most_shared(views.read(plan), None)).boxes
    assert [(box.x, box.width, box.row) for box in boxes] == [
        (0, 20, 0), (20, 20, 0), (40, 20, 0), (40, 20, 1), (20, 40, 2), (0, 60, 3),
    ]  # fmt: skip


def test_the_brightest_colour_is_that_of_the_best_score(plan):
    colours = svg.score_colours(views.read(plan))
    assert colours == {0: "#fde725", 1: "#440154", 2: "#440154", 4: "#fde725"}
    with Plan(plan) as opened:
        opened.study("digits", "val_loss", "max", {})
    assert svg.score_colours(views.read(plan))[2] == "#fde725"


def test_the_page_needs_no_network_and_holds_the_trials(plan):
    text = export.render(plan, "html")
    page = _Page(text)
    assert page.addresses == [] and "default-src 'none'" in text
    model = json.loads(page.model)
    assert "svg" not in model and len(model["stages"]) == 6
    first = model["stages"][0]
    assert [model["trials"][place]["trial"] for place in first["trials"]] == ["1", "0", "2"]  # the best first
    assert (first["trial_count"], model["totals"]["merge_rate"]) == (3, 160 / 120)
    assert 'role="button"' in text and "aria-live" in text and "prefers-color-scheme: dark" in text


def test_texts_of_a_plan_cannot_become_markup(tmp_path):
    bad = "</script><script>alert(1)</script>"
    with Plan(tmp_path / bad.replace("/", "_")) as plan:
        study, context = plan.study(bad, "val_loss", "min", {}), plan.context("c", {})
        studies.ask(plan, study, context, bad, {"optimizer": bad}, 2, "FAILED", message=bad)
        text = export.render(plan, "html")
    assert text.count("</script>") == 2 and "<script>alert" not in text
    assert json.loads(_Page(text).model)["trials"][0]["message"] == bad
    xml.etree.ElementTree.fromstring(export.render(plan, "svg"))


def test_json_holds_every_stage_and_trial_and_no_number_that_browsers_refuse(plan):
    with Plan(plan) as opened:
        opened.record(Run(3, 4, 6, [{"val_loss": float("nan")}, {"val_loss": float("inf")}], 20, 1.0))
    data = json.loads(export.render(plan, "json"), parse_constant=pytest.fail)
    assert data["stages"][3]["metrics"] == {"val_loss": None}
    assert data["stages"][4]["changes"] == [["lr", 0.1, 0.01]]
    first, end = data["stages"][0]["trials"]
    assert {trial["trial"] for trial in data["trials"][first:end]} == {"0", "1", "2"}
    assert data["totals"]["executed"] == 120


def test_a_page_of_a_large_plan_says_what_it_leaves_out(tmp_path):
    plan = studies.grid(tmp_path / "plan", rates=3, changes=8)
    count = len(views.read(plan).stages)
    text = export.render(plan, "html", limit=10)
    assert f"{count - 10} of {count} stages are not drawn" in text
    model = json.loads(_Page(text).model)
    assert len(model["stages"]) == 10 and sum(stage["hidden"] for stage in model["stages"]) == count - 10
    assert len(model["trials"]) <= 24


def test_an_empty_plan_makes_a_page_that_says_so(tmp_path):
    Plan(tmp_path).close()
    assert "no stage was asked for yet" in export.render(tmp_path, "html")
    assert xml.etree.ElementTree.fromstring(export.render(tmp_path, "svg")).tag == f"{_SVG}svg"
    assert json.loads(export.render(tmp_path, "json"))["stages"] == []


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "tree.html"
    export.write(path, "old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        export.write(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "kind"), [(None, "html"), ("a.svg", "svg"), ("a.JSON", "json"), ("a.html", "html"), ("a", "html")]
)
def test_the_file_name_tells_the_format(name, kind):
    assert export.kind_of(None if name is None else pathlib.Path(name)) == kind


def test_an_unknown_format_is_refused(plan):
    with pytest.raises(ValueError, match="one of html, svg, json, got 'pdf'"):
        export.render(plan, "pdf")

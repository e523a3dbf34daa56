"""The plugin's page in a real TensorBoard and a real browser: stages are drawn, and a click tells of their trials."""

import pathlib
import re
import subprocess
import sys
import threading

import pytest

import tf_ext.testing
from tests.tensorboard.chromium import Chromium
from tests.tuner.views import studies
from tf_ext.tuner.plan import Plan
from tf_ext.tuner.views import export

# A server that ends when its standard input does, and so with the process that started it. The empty module makes
# TensorBoard do without TensorFlow, which takes ten seconds to start with two processors.
_SERVER = """
import os, sys, threading, types
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
import tensorboard.compat
sys.modules["tensorboard.compat.notf"] = tensorboard.compat.notf = types.ModuleType("tensorboard.compat.notf")
from tensorboard.main import run_main
run_main()
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    tf_ext.testing.require("chromium")
    root = tmp_path_factory.mktemp("logs")
    studies.digits(root / "digits")
    return root


@pytest.fixture(scope="module")
def address(logdir):
    options = ["--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, *options], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    timer = threading.Timer(60, server.kill)
    timer.start()
    try:
        assert server.stderr is not None
        told = []
        for line in server.stderr:
            told.append(line)
            if match := re.search(r"http://127\.0\.0\.1:\d+/", line):
                threading.Thread(target=server.stderr.read, daemon=True).start()  # or the pipe is full one day
                yield match[0]
                return
        pytest.fail("TensorBoard did not start:\n" + "".join(told))
    finally:
        timer.cancel()
        server.kill()
        server.wait(10)


def _details(browser):
    return browser.run("[...document.querySelectorAll('.details td, .details th')].map(cell => cell.textContent)")


def _choose_and_read(browser):
    """What is the same on the plugin's page and on an exported one."""
    browser.wait("document.querySelectorAll('.stage-tree [data-stage]').length === 6")
    widths = browser.run(
        "[...document.querySelectorAll('[data-stage] rect')].map(r => r.getBoundingClientRect().width)"
    )
    assert widths[4] == pytest.approx(2 * widths[0], rel=0.02) and widths[5] == pytest.approx(3 * widths[0], rel=0.02)
    browser.click("document.querySelector('[data-stage=\"0\"] rect')")
    cells = _details(browser)
    assert cells[cells.index("steps") + 1] == "20 in 1 s"
    assert cells[cells.index("metrics of the last epoch") + 1] == "loss=0.3  val_loss=0.6"
    at = cells.index("hyper-parameters", cells.index("trial"))
    assert [cells[at + 1 + 7 * i : at + 8 + 7 * i] for i in range(3)] == [
        ["1", "digits", "COMPLETED", "0.1767", "5", "6", "lr=0.1@0|0.01@2  units=8"],
        ["0", "digits", "COMPLETED", "0.2667", "5", "6", "lr=0.1  units=8"],
        ["2", "digits", "RUNNING", "–", "–", "6", "lr=0.1@0|0.02@4  units=8"],  # noqa: RUF001
    ]
    for key in ("ArrowRight", "ArrowDown"):
        browser.press(key)
    assert browser.run("document.querySelector('.chosen').dataset.stage") == "4"
    assert browser.run("document.activeElement.dataset.stage") == "4"
    assert browser.run("document.querySelector('.on-path').dataset.stage") == "0"
    fill = "getComputedStyle(document.querySelector('[data-stage=\"4\"] rect')).fill"
    assert browser.run(fill) == "rgb(42, 127, 79)"
    browser.click("document.querySelector('input[value=score]')")
    assert browser.run(fill) == "rgb(253, 231, 37)"


def test_an_exported_page_tells_of_stages_and_trials(logdir, tmp_path):
    path = pathlib.Path(tmp_path / "tree.html")
    export.write(path, export.render(logdir / "digits", "html"))
    with Chromium() as browser:
        browser.call("Page.navigate", url=path.as_uri())
        _choose_and_read(browser)


def test_the_plugin_draws_a_plan_and_follows_it(address, logdir):
    with Chromium() as browser:
        browser.call("Page.navigate", url=f"{address}data/plugin_entry.html?name=stage_tree")
        _choose_and_read(browser)
        with Plan(logdir / "digits") as plan:
            studies.train(plan, 3, 4, 6, 0.02)
        browser.wait("document.querySelector('[data-stage=\"3\"]').classList.contains('done')")
        assert browser.run("document.querySelector('.chosen').dataset.stage") == "4"  # what was chosen stays
        assert browser.run("document.querySelector('.stage-tree').classList.contains('by-score')")


def test_tensorboard_has_a_tab_for_it(address):
    with Chromium() as browser:
        browser.call("Page.navigate", url=f"{address}#stage_tree")
        browser.wait("document.body.innerText.toLowerCase().includes('stage tree')")
        listing = browser.run(f"fetch('{address}data/plugins_listing').then(r => r.json())")
        assert listing["stage_tree"]["enabled"] is True
        assert listing["stage_tree"]["tab_name"] == "Stage tree"

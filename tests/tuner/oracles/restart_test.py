"""Kills at any moment, and restarts: the same trials come back, and the search finds what it would have found."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import time

import pytest

from tests.tuner.oracles.catalogue import ORACLES, STOCK, made, order_of, settings_of
from tests.tuner.oracles.driver import KilledError, exact, outcome, placed, search
from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError
from tf_ext.tuner.oracles import (
    HyperbandOracle,
    RandomSearchOracle,
    StageOracle,
    _journal,
)


@contextlib.contextmanager
def copying(directory: pathlib.Path, to: pathlib.Path, moment: int):
    """Copies the directory as it is when the `moment`th change is about to be made to it. Yields the count of changes."""
    changes = [0]

    def note():
        if changes[0] == moment and directory.exists():
            shutil.copytree(directory, to)
        changes[0] += 1

    with pytest.MonkeyPatch.context() as patch:
        replace, append = os.replace, _journal.Journal.append
        patch.setattr(os, "replace", lambda *paths: (note(), replace(*paths))[1])
        patch.setattr(_journal.Journal, "append", lambda self, event: (note(), append(self, event))[1])
        yield changes


@pytest.mark.parametrize("name", ORACLES)
def test_a_kill_at_any_moment_changes_nothing(tmp_path, name):
    undisturbed = made(name, tmp_path, "undisturbed")
    with copying(tmp_path / "none", tmp_path / "none", -1) as changes:
        search(undisturbed, order=order_of(name, 0))
    moments = random.Random(name).sample(range(changes[0]), k=min(6, changes[0]))
    for number, moment in enumerate(moments):
        killed = tmp_path / f"killed{number}"
        with copying(tmp_path / f"run{number}", killed, moment):
            search(made(name, tmp_path, f"run{number}"), order=order_of(name, number))
        if not killed.exists():
            continue  # before there was anything
        again = made(name, tmp_path, killed.name)
        again.reload()
        search(again, order=order_of(name, number + 100))
        assert outcome(again) == outcome(undisturbed), moment
        if name in ("grid", "random", "stock random"):
            assert exact(again) == exact(undisturbed), moment
        finished = made(name, tmp_path, killed.name)
        finished.reload()
        assert exact(finished) == exact(again)


@pytest.mark.parametrize("name", ["sha", "hyperband", "pbt", "asha", "median", "random"])
def test_open_trials_come_back_in_order_with_ids_and_values(tmp_path, name):
    with pytest.raises(KilledError):
        search(before := made(name, tmp_path), order=order_of(name, 5), stop_after=4)
    was_open = sorted(before.ongoing_trials.values(), key=lambda trial: before.start_order.index(trial.trial_id))
    assert was_open
    after = made(name, tmp_path)
    after.reload()
    assert after.ongoing_trials == {}
    come_back = [after.create_trial(f"new{i}") for i in range(len(was_open))]
    assert [t.trial_id for t in come_back] == [t.trial_id for t in was_open]
    assert [t.hyperparameters.values for t in come_back] == [t.hyperparameters.values for t in was_open]
    assert {t.status for t in come_back} == {"RUNNING"}


def test_kill_9_of_a_process(tmp_path):
    """Again and again, at random moments, until the search is through."""
    undisturbed = search(made("hyperband", tmp_path, "undisturbed"))
    chance, kills = random.Random(1), 0
    for attempt in range(200):
        child = os.fork()
        if child == 0:
            try:
                oracle = made("hyperband", tmp_path)
                oracle.reload()
                search(oracle, order=random.Random(attempt))
                os._exit(0)
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.01, 0.1 + 0.02 * attempt))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        kills += os.WIFSIGNALED(status)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        if not os.WIFSIGNALED(status):
            break
    assert kills > 0
    again = made("hyperband", tmp_path)
    again.reload()
    assert outcome(again) == outcome(undisturbed)


def test_a_torn_last_line_is_dropped_and_a_corrupted_one_before_is_told(tmp_path):
    undisturbed = search(made("sha", tmp_path, "undisturbed"))
    with pytest.raises(KilledError):
        search(made("sha", tmp_path), stop_after=5)
    path = tmp_path / "search" / "oracle.jsonl"
    whole = path.read_bytes()
    for cut in (1, 2, 20, 60):
        path.write_bytes(whole[:-cut])
        again = made("sha", tmp_path)
        again.reload()
        assert outcome(search(again)) == outcome(undisturbed)
        assert path.read_bytes().startswith(whole[: whole.rfind(b"\n", 0, -cut) + 1])
    lines = whole.split(b"\n")
    path.write_bytes(b"\n".join([*lines[:3], lines[3][:-9], *lines[4:]]))
    with pytest.raises(CorruptedPlanError, match=r"line 4 of .*head -n 3"):
        made("sha", tmp_path).reload()


def test_trials_that_the_state_does_not_know_do_not_count(tmp_path):
    """Keras Tuner writes a trial's file before its own: after a kill in between, that trial took a place for ever."""
    for name in ("random", "stock random"):
        with pytest.raises(KilledError):
            search(made(name, tmp_path, name), stop_after=4, width=2)
        project = tmp_path / name
        shutil.copytree(project / "trial_0", project / "trial_9")
        state = json.loads((project / "trial_9" / "trial.json").read_text())
        (project / "trial_9" / "trial.json").write_text(json.dumps(state | {"trial_id": "9"}))
        (project / "trial_8").mkdir()
        (project / "trial_8" / "trial.json").write_text('{"trial_id": "8", "hyperpar')
        again = made(name, tmp_path, name)
        again.reload()
        assert len(again.trials) <= 6
        search(again)
        assert list(again.trials) == [str(i) for i in range(9)]
        assert {trial.status for trial in again.trials.values()} == {"COMPLETED"}


@pytest.mark.parametrize("name", ["hyperband", "stock hyperband"])
def test_hyperband_resumes(tmp_path, name):
    """keras-tuner #835: trial objects were queued for a retry where their ids belong."""
    with pytest.raises(KilledError):
        search(made(name, tmp_path), stop_after=6)
    again = made(name, tmp_path)
    again.reload()
    assert all(isinstance(trial_id, str) for trial_id in again._retry_queue)
    assert outcome(search(again)) == outcome(search(made(name, tmp_path, "undisturbed")))


def test_the_stock_grid_resumes(tmp_path):
    """keras-tuner #1055: how far a grid is was not saved; the first trial to end raised a KeyError."""
    with pytest.raises(KilledError):
        search(made("stock grid", tmp_path), stop_after=3)
    again = made("stock grid", tmp_path)
    again.reload()
    assert exact(search(again)) == exact(search(made("stock grid", tmp_path, "undisturbed")))


def test_an_open_trial_without_a_file_does_not_break_the_reload(tmp_path):
    """keras-tuner #301 and #987: a KeyError where `oracle.json` names a trial whose file is not there or torn."""
    stock = placed(STOCK.RandomSearchOracle(**settings_of(max_trials=5)), tmp_path)
    for number in range(3):
        stock.create_trial(f"t{number}")
    (tmp_path / "search" / "trial_1" / "trial.json").unlink()
    torn = tmp_path / "search" / "trial_2" / "trial.json"
    torn.write_text(torn.read_text()[:50])
    for oracle in (
        StageOracle(STOCK.RandomSearchOracle(**settings_of(max_trials=5))),
        RandomSearchOracle(**settings_of(max_trials=5)),
    ):
        placed(oracle, tmp_path).reload()
        search(oracle)
        statuses = [(trial.trial_id, trial.status) for trial in oracle.trials.values()]
        assert statuses == list(zip("01234", ["COMPLETED", "FAILED", "FAILED", "COMPLETED", "COMPLETED"], strict=True))
        assert "cut its file short" in oracle.trials["1"].message


@pytest.mark.parametrize("ours", [RandomSearchOracle, lambda **s: StageOracle(STOCK.RandomSearchOracle(**s))])
def test_a_search_that_keras_tuner_began_is_continued(tmp_path, ours):
    stock = placed(STOCK.RandomSearchOracle(**settings_of(max_trials=8)), tmp_path)
    trials = [stock.create_trial(f"t{number}") for number in range(4)]
    stock.update_trial("0", {"loss": 0.5}, step=2)
    trials[0].status = "COMPLETED"
    stock.end_trial(trials[0])
    oracle = placed(ours(**settings_of(max_trials=8)), tmp_path)
    oracle.reload()
    assert (oracle.trials["0"].score, oracle.trials["0"].best_step) == (0.5, 2)
    search(oracle)
    undisturbed = search(placed(RandomSearchOracle(**settings_of(max_trials=8)), tmp_path, "undisturbed"))
    assert [t.hyperparameters.values for t in oracle.trials.values()] == [
        t.hyperparameters.values for t in undisturbed.trials.values()
    ]


def test_what_we_write_keras_tuner_reads(tmp_path):
    ours = search(made("random", tmp_path))
    stock = placed(STOCK.RandomSearchOracle(**settings_of(max_trials=11)), tmp_path)
    stock.reload()
    assert sorted(exact(stock), key=repr) == sorted(exact(ours), key=repr)
    assert stock.create_trial("t").trial_id == "09"


def test_a_hyperband_of_keras_tuner_is_not_taken_for_one_of_ours(tmp_path):
    stock = placed(STOCK.HyperbandOracle(**settings_of(max_epochs=4)), tmp_path)
    stock.create_trial("t")
    with pytest.raises(PlanMismatchError, match="that HyperbandOracle began, got one of keras_tuner"):
        placed(HyperbandOracle(**settings_of(max_epochs=4)), tmp_path).reload()

"""Kills at any moment, and restarts: the same trials come back, and the search finds what it would have found."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import time

import keras_tuner
import numpy as np
import pytest

from tests.tuner.oracles.driver import KilledError, end, exact, outcome, placed, search, space
from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError
from tf_ext.tuner.oracles import (
    ASHAOracle,
    GridSearchOracle,
    HyperbandOracle,
    MedianStoppingOracle,
    PopulationBasedTrainingOracle,
    RandomSearchOracle,
    StageOracle,
    SuccessiveHalvingOracle,
    _journal,
)

STOCK = keras_tuner.oracles


class GuessingOracle(keras_tuner.Oracle):
    """A user's own: its generator goes on from trial to trial, and it prefers what did well."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.generator = np.random.RandomState(self.seed)

    def populate_space(self, trial_id):
        done = [trial for trial in self.trials.values() if trial.status == "COMPLETED"]
        base = min(done, key=lambda trial: trial.score).hyperparameters.values["units"] if done else 32
        units = int(np.clip(base + self.generator.randint(-9, 10), 1, 64))
        return {
            "status": "RUNNING",
            "values": {"kind": "a", "rate": self.generator.uniform(1e-4, 1e-1), "units": units},
        }


def small() -> keras_tuner.HyperParameters:
    hp = keras_tuner.HyperParameters()
    hp.Choice("kind", ["a", "b"])
    with hp.conditional_scope("kind", ["b"]):
        hp.Boolean("norm")
    hp.Choice("rate", [0.1, 0.01, 0.001])
    return hp


def _settings(**more):
    return {"objective": "loss", "seed": 3, "hyperparameters": space(conditional=True)} | more


ORACLES = {
    "grid": lambda: GridSearchOracle("loss", hyperparameters=small()),
    "random": lambda: RandomSearchOracle(**_settings(max_trials=9)),
    "sha": lambda: SuccessiveHalvingOracle(**_settings(max_trials=9, max_epochs=9)),
    "hyperband": lambda: HyperbandOracle(**_settings(max_epochs=4, factor=2)),
    "pbt": lambda: PopulationBasedTrainingOracle(**_settings(population=4, interval=2, max_epochs=5, quantile=0.5)),
    "asha": lambda: ASHAOracle(**_settings(max_trials=8, max_epochs=4, factor=2)),
    "median": lambda: MedianStoppingOracle(RandomSearchOracle(**_settings(max_trials=9)), 2, 3, 2),
    "stock random": lambda: StageOracle(STOCK.RandomSearchOracle(**_settings(max_trials=9))),
    "stock grid": lambda: StageOracle(STOCK.GridSearchOracle("loss", hyperparameters=small()), lookahead=1),
    "stock hyperband": lambda: StageOracle(STOCK.HyperbandOracle(**_settings(max_epochs=4, factor=2)), lookahead=1),
    "user's own": lambda: StageOracle(GuessingOracle(**_settings(max_trials=9))),
}
# What these suggest depends on the order in which trials end; with the same order it is the same.
ORDERED = {"asha", "median", "stock grid", "stock hyperband", "user's own"}


def _order(name: str, seed: int) -> random.Random | None:
    return None if name in ORDERED else random.Random(seed)


def _made(name, directory, project="search"):
    oracle = placed(ORACLES[name](), directory, project)
    oracle.parallelism = 3
    return oracle


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
    undisturbed = _made(name, tmp_path, "undisturbed")
    with copying(tmp_path / "none", tmp_path / "none", -1) as changes:
        search(undisturbed, order=_order(name, 0))
    moments = random.Random(name).sample(range(changes[0]), k=min(6, changes[0]))
    for number, moment in enumerate(moments):
        killed = tmp_path / f"killed{number}"
        with copying(tmp_path / f"run{number}", killed, moment):
            search(_made(name, tmp_path, f"run{number}"), order=_order(name, number))
        if not killed.exists():
            continue  # before there was anything
        again = _made(name, tmp_path, killed.name)
        again.reload()
        search(again, order=_order(name, number + 100))
        assert outcome(again) == outcome(undisturbed), moment
        if name in ("grid", "random", "stock random"):
            assert exact(again) == exact(undisturbed), moment
        finished = _made(name, tmp_path, killed.name)
        finished.reload()
        assert exact(finished) == exact(again)


@pytest.mark.parametrize("name", ["sha", "hyperband", "pbt", "asha", "median", "random"])
def test_open_trials_come_back_in_order_with_ids_and_values(tmp_path, name):
    with pytest.raises(KilledError):
        search(before := _made(name, tmp_path), order=_order(name, 5), stop_after=4)
    was_open = sorted(before.ongoing_trials.values(), key=lambda trial: before.start_order.index(trial.trial_id))
    assert was_open
    after = _made(name, tmp_path)
    after.reload()
    assert after.ongoing_trials == {}
    come_back = [after.create_trial(f"new{i}") for i in range(len(was_open))]
    assert [t.trial_id for t in come_back] == [t.trial_id for t in was_open]
    assert [t.hyperparameters.values for t in come_back] == [t.hyperparameters.values for t in was_open]
    assert {t.status for t in come_back} == {"RUNNING"}


def test_kill_9_of_a_process(tmp_path):
    """Again and again, at random moments, until the search is through."""
    undisturbed = search(_made("hyperband", tmp_path, "undisturbed"))
    chance, kills = random.Random(1), 0
    for attempt in range(200):
        child = os.fork()
        if child == 0:
            try:
                oracle = _made("hyperband", tmp_path)
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
    again = _made("hyperband", tmp_path)
    again.reload()
    assert outcome(again) == outcome(undisturbed)


def test_a_torn_last_line_is_dropped_and_a_corrupted_one_before_is_told(tmp_path):
    undisturbed = search(_made("sha", tmp_path, "undisturbed"))
    with pytest.raises(KilledError):
        search(_made("sha", tmp_path), stop_after=5)
    path = tmp_path / "search" / "oracle.jsonl"
    whole = path.read_bytes()
    for cut in (1, 2, 20, 60):
        path.write_bytes(whole[:-cut])
        again = _made("sha", tmp_path)
        again.reload()
        assert outcome(search(again)) == outcome(undisturbed)
        assert path.read_bytes().startswith(whole[: whole.rfind(b"\n", 0, -cut) + 1])
    lines = whole.split(b"\n")
    path.write_bytes(b"\n".join([*lines[:3], lines[3][:-9], *lines[4:]]))
    with pytest.raises(CorruptedPlanError, match=r"line 4 of .*head -n 3"):
        _made("sha", tmp_path).reload()


def test_trials_that_the_state_does_not_know_do_not_count(tmp_path):
    """Keras Tuner writes a trial's file before its own: after a kill in between, that trial took a place for ever."""
    for name in ("random", "stock random"):
        with pytest.raises(KilledError):
            search(_made(name, tmp_path, name), stop_after=4, width=2)
        project = tmp_path / name
        shutil.copytree(project / "trial_0", project / "trial_9")
        state = json.loads((project / "trial_9" / "trial.json").read_text())
        (project / "trial_9" / "trial.json").write_text(json.dumps(state | {"trial_id": "9"}))
        (project / "trial_8").mkdir()
        (project / "trial_8" / "trial.json").write_text('{"trial_id": "8", "hyperpar')
        again = _made(name, tmp_path, name)
        again.reload()
        assert len(again.trials) <= 6
        search(again)
        assert list(again.trials) == [str(i) for i in range(9)]
        assert {trial.status for trial in again.trials.values()} == {"COMPLETED"}


@pytest.mark.parametrize("name", ["hyperband", "stock hyperband"])
def test_hyperband_resumes(tmp_path, name):
    """keras-tuner #835: trial objects were queued for a retry where their ids belong."""
    with pytest.raises(KilledError):
        search(_made(name, tmp_path), stop_after=6)
    again = _made(name, tmp_path)
    again.reload()
    assert all(isinstance(trial_id, str) for trial_id in again._retry_queue)
    assert outcome(search(again)) == outcome(search(_made(name, tmp_path, "undisturbed")))


def test_the_stock_grid_resumes(tmp_path):
    """keras-tuner #1055: how far a grid is was not saved; the first trial to end raised a KeyError."""
    with pytest.raises(KilledError):
        search(_made("stock grid", tmp_path), stop_after=3)
    again = _made("stock grid", tmp_path)
    again.reload()
    assert exact(search(again)) == exact(search(_made("stock grid", tmp_path, "undisturbed")))


def test_an_open_trial_without_a_file_does_not_break_the_reload(tmp_path):
    """keras-tuner #301 and #987: a KeyError where `oracle.json` names a trial whose file is not there or torn."""
    stock = placed(STOCK.RandomSearchOracle(**_settings(max_trials=5)), tmp_path)
    for number in range(3):
        stock.create_trial(f"t{number}")
    (tmp_path / "search" / "trial_1" / "trial.json").unlink()
    torn = tmp_path / "search" / "trial_2" / "trial.json"
    torn.write_text(torn.read_text()[:50])
    for oracle in (
        StageOracle(STOCK.RandomSearchOracle(**_settings(max_trials=5))),
        RandomSearchOracle(**_settings(max_trials=5)),
    ):
        placed(oracle, tmp_path).reload()
        search(oracle)
        statuses = [(trial.trial_id, trial.status) for trial in oracle.trials.values()]
        assert statuses == list(zip("01234", ["COMPLETED", "FAILED", "FAILED", "COMPLETED", "COMPLETED"], strict=True))
        assert "cut its file short" in oracle.trials["1"].message


@pytest.mark.parametrize("ours", [RandomSearchOracle, lambda **s: StageOracle(STOCK.RandomSearchOracle(**s))])
def test_a_search_that_keras_tuner_began_is_continued(tmp_path, ours):
    stock = placed(STOCK.RandomSearchOracle(**_settings(max_trials=8)), tmp_path)
    trials = [stock.create_trial(f"t{number}") for number in range(4)]
    stock.update_trial("0", {"loss": 0.5}, step=2)
    trials[0].status = "COMPLETED"
    stock.end_trial(trials[0])
    oracle = placed(ours(**_settings(max_trials=8)), tmp_path)
    oracle.reload()
    assert (oracle.trials["0"].score, oracle.trials["0"].best_step) == (0.5, 2)
    search(oracle)
    undisturbed = search(placed(RandomSearchOracle(**_settings(max_trials=8)), tmp_path, "undisturbed"))
    assert [t.hyperparameters.values for t in oracle.trials.values()] == [
        t.hyperparameters.values for t in undisturbed.trials.values()
    ]


def test_what_we_write_keras_tuner_reads(tmp_path):
    ours = search(_made("random", tmp_path))
    stock = placed(STOCK.RandomSearchOracle(**_settings(max_trials=11)), tmp_path)
    stock.reload()
    assert sorted(exact(stock), key=repr) == sorted(exact(ours), key=repr)
    assert stock.create_trial("t").trial_id == "09"


def test_a_hyperband_of_keras_tuner_is_not_taken_for_one_of_ours(tmp_path):
    stock = placed(STOCK.HyperbandOracle(**_settings(max_epochs=4)), tmp_path)
    stock.create_trial("t")
    with pytest.raises(PlanMismatchError, match="that HyperbandOracle began, got one of keras_tuner"):
        placed(HyperbandOracle(**_settings(max_epochs=4)), tmp_path).reload()


def test_more_trials_continue_a_finished_search(tmp_path):
    search(_made("random", tmp_path))
    more = placed(RandomSearchOracle(**_settings(max_trials=14)), tmp_path)
    more.reload()
    assert more.remaining_trials() == 5
    search(more)
    whole = search(placed(RandomSearchOracle(**_settings(max_trials=14)), tmp_path, "whole"))
    assert [t.hyperparameters.values for t in more.trials.values()] == [
        t.hyperparameters.values for t in whole.trials.values()
    ]
    fewer = placed(RandomSearchOracle(**_settings(max_trials=3)), tmp_path)
    fewer.reload()
    assert fewer.create_trial("t").status == "STOPPED"


def test_random_numbers_go_on_where_they_were(tmp_path):
    """Beginning anew, it would meet more known values than it takes for a sign that the space is exhausted."""
    settings = _settings(max_trials=30)
    with pytest.raises(KilledError):
        search(placed(RandomSearchOracle(**settings), tmp_path), stop_after=24, width=1)
    again = placed(RandomSearchOracle(**settings), tmp_path)
    again.reload()
    assert [again.create_trial(f"t{i}").trial_id for i in range(2)] == ["24", "25"]
    assert len(again.trials) == 26
    undisturbed = search(placed(RandomSearchOracle(**settings), tmp_path, "undisturbed"))
    for trial_id, trial in again.trials.items():
        assert trial.hyperparameters.values == undisturbed.trials[trial_id].hyperparameters.values


@pytest.mark.parametrize(
    ("name", "stop_after", "sizes"), [("hyperband", 1, [3, 3, 3]), ("hyperband", 10, [3, 3, 3]), ("sha", 5, [3])]
)
def test_a_rung_that_chance_could_not_fill_stays_as_it_is(tmp_path, monkeypatch, name, stop_after, sizes):
    """Whether the space is exhausted is a matter of luck with random numbers; a restart must not try its luck again."""
    drawn, lucky = [], RandomSearchOracle._random_values

    def unlucky(self):
        drawn.append(self)
        return None if len(drawn) == 4 else lucky(self)

    monkeypatch.setattr(keras_tuner.Oracle, "_random_values", unlucky)
    with pytest.raises(KilledError):
        search(_made(name, tmp_path), stop_after=stop_after)
    again = _made(name, tmp_path)
    again.reload()
    search(again)
    assert [len(bracket.rungs[0]) for bracket in again._brackets] == sizes


def test_budgets_that_may_grow_grow(tmp_path):
    search(placed(HyperbandOracle(**_settings(max_epochs=4, factor=2)), tmp_path))
    twice = placed(HyperbandOracle(**_settings(max_epochs=4, factor=2, hyperband_iterations=2)), tmp_path)
    twice.reload()
    once = len(twice.trials)
    assert len(search(twice).trials) == 2 * once

    search(placed(STOCK_WRAPPED(hyperband_iterations=1), tmp_path, "stock"))
    twice = placed(STOCK_WRAPPED(hyperband_iterations=2), tmp_path, "stock")
    twice.reload()  # keras-tuner #234, #803: the value of the file was taken
    assert len(search(twice).trials) == 2 * once

    search(placed(ASHAOracle(**_settings(max_trials=4, max_epochs=4, factor=2)), tmp_path, "asha"))
    more = placed(ASHAOracle(**_settings(max_trials=9, max_epochs=4, factor=2)), tmp_path, "asha")
    more.reload()
    search(more)
    assert sum(t.hyperparameters.values["tuner/round"] == 0 for t in more.trials.values()) == 9

    pbt = {"population": 3, "interval": 2}
    search(placed(PopulationBasedTrainingOracle(**_settings(max_epochs=5, **pbt)), tmp_path, "pbt"))
    longer = placed(PopulationBasedTrainingOracle(**_settings(max_epochs=8, **pbt)), tmp_path, "pbt")
    longer.reload()
    search(longer)
    assert sorted({t.hyperparameters.values["tuner/epochs"] for t in longer.trials.values()}) == [2, 4, 5, 7, 8]


def STOCK_WRAPPED(**more):  # noqa: N802
    return StageOracle(STOCK.HyperbandOracle(**_settings(max_epochs=4, factor=2, **more)), lookahead=1)


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (lambda: HyperbandOracle(**_settings(max_epochs=4)), lambda: HyperbandOracle(**_settings(max_epochs=8)),
         "`max_epochs` to be 4 .* got 8: .* Set it back, or .* `project_name` or `overwrite=True`"),
        (lambda: STOCK_WRAPPED(), lambda: StageOracle(STOCK.HyperbandOracle(**_settings(max_epochs=8, factor=2))),
         "`max_epochs` to be 4 .* got 8"),
        (lambda: SuccessiveHalvingOracle(**_settings()), lambda: SuccessiveHalvingOracle(**_settings(max_trials=5)),
         "`max_trials` to be 27 .* got 5"),
        (lambda: ASHAOracle(**_settings()), lambda: ASHAOracle(**_settings(factor=4)), "`factor` to be 3 .* got 4"),
        (lambda: PopulationBasedTrainingOracle(**_settings()),
         lambda: PopulationBasedTrainingOracle(**_settings(perturb=["rate"])), r"`perturb` to be None .* got \['rate'\]"),
        (lambda: RandomSearchOracle(**_settings()), lambda: RandomSearchOracle(**_settings(seed=8)),
         "`seed` to be 3 .* got 8"),
        (lambda: RandomSearchOracle(**_settings()),
         lambda: RandomSearchOracle(**_settings(objective=keras_tuner.Objective("loss", "max"))), "`objective` to be"),
        (lambda: RandomSearchOracle(**_settings()), lambda: GridSearchOracle(**_settings()),
         "`oracle` to be 'RandomSearchOracle' .* got 'GridSearchOracle'"),
        (lambda: RandomSearchOracle(**_settings()), lambda: RandomSearchOracle(**_settings(hyperparameters=other())),
         r"`hyperparameters\['units'\]` to be"),
    ],
)  # fmt: skip
def test_settings_that_cannot_change_are_refused_by_name(tmp_path, first, then, said):
    oracle = placed(first(), tmp_path)
    end(oracle, oracle.create_trial("t"), 1)
    with pytest.raises(PlanMismatchError, match=said):
        placed(then(), tmp_path).reload()
    placed(first(), tmp_path).reload()  # and nothing was changed by that


def other():
    hp = keras_tuner.HyperParameters()
    hp.Int("units", 1, 999)
    return hp


def test_without_a_seed_the_first_one_stays(tmp_path):
    first = placed(RandomSearchOracle("loss", 6, hyperparameters=space()), tmp_path)
    for number in range(3):
        end(first, first.create_trial(f"t{number}"), 2)
    again = placed(RandomSearchOracle("loss", 6, hyperparameters=space()), tmp_path)
    again.reload()
    assert again.seed == first.seed
    assert [t.hyperparameters.values for t in search(again).trials.values()] == [
        t.hyperparameters.values for t in search(first).trials.values()
    ]


def test_new_hyperparameters_join_the_search(tmp_path):
    search(_made("random", tmp_path))
    hp = space(conditional=True)
    hp.Boolean("dropout")
    more = placed(RandomSearchOracle(**_settings(max_trials=11, hyperparameters=hp)), tmp_path)
    more.reload()
    search(more)
    assert ["dropout" in t.hyperparameters.values for t in more.trials.values()] == [False] * 9 + [True] * 2
    last = placed(RandomSearchOracle(**_settings(max_trials=11, hyperparameters=hp)), tmp_path)
    last.reload()
    assert exact(last) == exact(more)


@pytest.mark.parametrize("tune_new_entries", [True, False])
def test_what_a_model_asked_for_is_there_after_a_restart(tmp_path, tune_new_entries):
    def made():
        return placed(RandomSearchOracle(**_settings(max_trials=6, tune_new_entries=tune_new_entries)), tmp_path)

    oracle = made()
    for number in range(4):
        trial = oracle.create_trial(f"t{number}")
        trial.hyperparameters.Choice("late", [5, 6, 7])
        end(oracle, trial, 2)
    again = made()
    again.reload()
    assert exact(again) == exact(oracle)
    assert {trial.hyperparameters.values["late"] for trial in again.trials.values()} <= {5, 6, 7}
    assert len(again.hyperparameters.space) == len(oracle.hyperparameters.space)


def test_a_search_that_was_not_reloaded_begins_anew(tmp_path):
    search(_made("random", tmp_path))
    fresh = placed(RandomSearchOracle(**_settings(max_trials=4, seed=11)), tmp_path)
    end(fresh, fresh.create_trial("t"), 1)
    again = placed(RandomSearchOracle(**_settings(max_trials=4, seed=11)), tmp_path)
    again.reload()
    assert len(again.trials) == 1


def test_reloading_again_in_one_process_sends_open_trials_back(tmp_path):
    oracle = _made("sha", tmp_path)
    trials = [oracle.create_trial(f"t{i}") for i in range(3)]
    end(oracle, trials[1], 1)
    oracle.reload()
    assert oracle.ongoing_trials == {}
    assert [oracle.create_trial(f"u{i}").trial_id for i in range(3)] == ["00", "02", "03"]


def test_reloading_where_nothing_is_does_nothing(tmp_path):
    for name in ORACLES:
        oracle = _made(name, tmp_path, name)
        oracle.reload()
        assert oracle.create_trial("t").status == "RUNNING"

"""Searches that are killed and begun again end as if nothing had happened, and train at most the stages that ran anew."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.tuner import killed_search, small
from tf_ext import tuner
from tf_ext.checkpoint.store import Store


def results(search):
    """All that a search found, by the numbers of its trials."""
    return {
        name: (trial.status, trial.score, trial.best_step, dict(trial.hyperparameters.values))
        for name, trial in search.oracle.trials.items()
    }


def run_and_kill(oracle, directory, runs):
    """Starts the search as a process and kills it when it has trained so many stages. Returns whether it was killed."""
    command = [sys.executable, "-m", "tests.tuner.killed_search", oracle, str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    plan = directory / oracle / "plan.sqlite"
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        if plan.exists() and trained(directory / oracle) >= runs:
            time.sleep(random.Random(runs).uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            break
    process.wait(60)
    return process.returncode == -signal.SIGKILL


def trained(directory):
    try:
        with tuner.Plan(directory, create=False) as plan:
            return plan.totals()["run"]
    except Exception:  # it is being made
        return 0


@pytest.mark.parametrize("oracle", ["grid", "hyperband"])
def test_killed_tuner(tmp_path, oracle):
    undisturbed = killed_search.search_with(oracle, tmp_path / "undisturbed")
    kills = sum(run_and_kill(oracle, tmp_path, runs) for runs in (1, 4))
    assert kills
    search = killed_search.search_with(oracle, tmp_path)
    assert results(search) == results(undisturbed)
    assert small.histories(search) == small.histories(undisturbed)
    assert small.totals(search)["steps"] == small.totals(undisturbed)["steps"]
    assert small.totals(search)["again"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("oracle", ["random", "sha", "population"])
def test_killed_tuner_of_other_oracles(tmp_path, oracle):
    test_killed_tuner(tmp_path, oracle)


def test_killed_workers(tmp_path):
    """Their stages are trained by the workers that take their places."""
    undisturbed = killed_search.search_with("grid", tmp_path / "undisturbed")
    executor = tuner.LocalExecutor(2)
    killed = []

    class Killing(tuner.GridSearch):
        def on_trial_end(self, trial):
            super().on_trial_end(trial)
            if len(killed) < 2:
                killed.append(executor.pids[len(killed)])
                os.kill(killed[-1], signal.SIGKILL)

    search = Killing(
        killed_search.build, "val_loss", seed=5, directory=tmp_path, project_name="grid", executor=executor, exact=True
    )
    search.search(*small.data(), validation_split=0.25, epochs=killed_search.EPOCHS, verbose=0)
    assert len(killed) == 2
    assert results(search) == results(undisturbed)
    assert small.totals(search)["steps"] == small.totals(undisturbed)["steps"]


def test_workers_end_with_the_tuner(tmp_path):
    command = [sys.executable, "-m", "tests.tuner.killed_search", "grid", str(tmp_path), "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while trained(tmp_path / "grid") < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    workers = children_of(process.pid)
    process.kill()
    process.wait(60)
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while any(alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(worker) for worker in workers)


def children_of(pid):
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True).stdout
    return [int(line) for line in listed.split()]


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_another_budget_is_refused_by_name(tmp_path):
    killed_search.search_with("grid", tmp_path)
    search = tuner.GridSearch(killed_search.build, "val_loss", seed=5, directory=tmp_path, project_name="grid")
    with pytest.raises(tuner.PlanMismatchError, match=r"epochs=4.*got 6.*project_name"):
        search.search(*small.data(), validation_split=0.25, epochs=6, verbose=0)


def test_finished_search_trains_nothing(tmp_path):
    first = killed_search.search_with("grid", tmp_path)
    before = small.totals(first)
    again = killed_search.search_with("grid", tmp_path)
    assert small.totals(again) == before
    assert results(again) == results(first)


def test_states_that_vanish_are_trained_again(tmp_path):
    """Somebody deletes all checkpoints while the search runs: what leads to them is trained again, to the same results."""
    undisturbed = killed_search.search_with("hyperband", tmp_path / "undisturbed")
    deleted = []

    class Losing(tuner.Hyperband):
        def on_trial_end(self, trial):
            super().on_trial_end(trial)
            if len(deleted) < 6:
                store = Store(os.path.join(self.project_dir, "states"))
                deleted.append([name for name in store.names() if name.startswith("n")])
                for name in deleted[-1]:
                    store.delete(name)

    search = Losing(
        killed_search.build,
        "val_loss",
        max_epochs=killed_search.EPOCHS,
        factor=2,
        seed=5,
        directory=tmp_path,
        project_name="hyperband",
        memory=0,
    )
    search.search(*small.data(), validation_split=0.25, epochs=killed_search.EPOCHS, verbose=0)
    assert sum(map(len, deleted)) > 2
    assert results(search) == results(undisturbed)
    assert small.histories(search) == small.histories(undisturbed)
    assert small.totals(search)["steps"] == small.totals(undisturbed)["steps"]
    assert small.totals(search)["again"] > 0

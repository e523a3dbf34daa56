"""Every oracle: its trials have the metrics of the same trials trained from beginning to end by themselves."""

import errno

import keras
import pytest

from tests.tuner import killed_search, small
from tf_ext import tuner
from tf_ext.tuner import oracles
from tf_ext.tuner._reruns import rerun

FIT = {"validation_split": 0.25, "epochs": 4, "verbose": 0}


def median(tmp_path):
    inner = oracles.RandomSearchOracle("val_loss", max_trials=5, seed=5)
    oracle = oracles.MedianStoppingOracle(inner, grace_epochs=1, interval=1, min_trials=2)
    search = tuner.Tuner(oracle, killed_search.build, directory=tmp_path, exact=True)
    search.search(*small.data(), **FIT)
    return search


def bayes(tmp_path):
    pytest.importorskip("sklearn")
    search = tuner.BayesianOptimization(
        killed_search.build, "val_loss", max_trials=4, num_initial_points=2, seed=5, directory=tmp_path, exact=True
    )
    search.search(*small.data(), **FIT)
    return search


SEARCHES = {
    "sha": lambda path: killed_search.search_with("sha", path),
    "asha": lambda path: killed_search.search_with("asha", path),
    "hyperband": lambda path: killed_search.search_with("hyperband", path),
    "population": lambda path: killed_search.search_with("population", path),
    "median": median,
    "bayes": bayes,
}


@pytest.mark.parametrize(
    "oracle", [pytest.param(name, marks=[pytest.mark.slow] if name == "bayes" else []) for name in SEARCHES]
)
def test_trials_are_as_alone(tmp_path, oracle):
    search = SEARCHES[oracle](tmp_path)
    with tuner.Plan(search.project_dir, create=False) as plan:
        assert plan.totals()["again"] == 0
        (study,) = plan.studies()
        records = sorted(plan.trials(study["id"]), key=lambda record: record.epochs)
        assert len(records) >= 4
        for record in (records[0], records[-1]):
            ((_, history, same),) = rerun(plan, record.trial)
            assert len(history) == record.epochs
            assert same, (record.trial, record.values)
        decisions = [event["data"] for event in plan.events(study["id"], kinds=["decision"])]
        runs = sum(run.end - run.start for run in plan.all_runs())
    if oracle in ("asha", "median"):
        assert decisions and oracles.replay(decisions) == []
    if oracle not in ("bayes", "population"):  # what a member of a population goes on from was not asked for
        asked = sum(r.epochs - int(r.values.get("tuner/initial_epoch", 0)) for r in records)
        assert runs < asked  # something was shared


def test_a_promoted_trial_scores_its_whole_path(tmp_path):
    """Keras Tuner scores the epochs after the promotion only, and goes on from the best epoch's weights."""
    search = killed_search.search_with("hyperband", tmp_path)
    histories = small.histories(search)
    promoted = [t for t in search.oracle.trials.values() if t.hyperparameters.values.get("tuner/initial_epoch")]
    assert promoted
    for trial in promoted:
        values = {k: v for k, v in trial.hyperparameters.values.items() if not k.startswith("tuner/")}
        history = histories[tuple(sorted(values.items())), 0, trial.hyperparameters.values["tuner/epochs"]]
        assert trial.score == min(epoch["val_loss"] for epoch in history)


def test_a_full_disk_ends_the_search_with_a_sentence(tmp_path, monkeypatch):
    from tf_ext.checkpoint.store import Store

    save, saved = Store.save, []

    def full(self, name, *arguments, **keywords):
        saved.append(name)
        if len(saved) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(self, name, *arguments, **keywords)

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(OSError, match="run the search again"):
        killed_search.search_with("grid", tmp_path)
    monkeypatch.undo()
    search = killed_search.search_with("grid", tmp_path)
    undisturbed = killed_search.search_with("grid", tmp_path / "undisturbed")
    assert small.histories(search) == small.histories(undisturbed)
    assert small.totals(search)["steps"] == small.totals(undisturbed)["steps"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_trials(tmp_path):
    """Each trial has another model. Keras Tuner's searches were killed for want of memory (#873, #395)."""
    import resource

    def build(hp):
        width = hp.Choice("units", list(range(8, 48)))
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(width), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"], jit_compile=False)
        return model

    peaks = []

    class Watching(tuner.GridSearch):
        def on_trial_end(self, trial):
            super().on_trial_end(trial)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    search = Watching(build, "val_accuracy", seed=5, directory=tmp_path)
    search.search(*small.data(), validation_split=0.25, epochs=1, verbose=0)
    assert len(peaks) == 40
    assert peaks[-1] - peaks[10] < 60  # MB, over 30 models

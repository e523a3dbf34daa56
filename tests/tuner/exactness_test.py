"""Trials that share stages have, bit for bit, the metrics of trials that are trained alone."""

import keras
import numpy as np
import pytest

from tests.tuner import small
from tf_ext import tuner
from tf_ext.tuner.segments import Sequence, path_of

RATES = ["0.1@0|0.02@4", "0.1@0|0.01@3", "0.1@0"]
BATCHES = ["16@0|32@3", "16@0"]


def sgd(hp, **settings):
    rate = tuner.sequence(hp, "learning_rate", settings.pop("rates", RATES))
    return keras.optimizers.SGD(rate, momentum=0.9)


def search_over(tmp_path, build, name="shared", epochs=small.EPOCHS, **fit):
    search = tuner.GridSearch(build, "val_accuracy", seed=5, directory=tmp_path, project_name=name, exact=True)
    search.search(*small.data(), validation_split=0.25, epochs=epochs, verbose=0, **fit)
    return search


def assert_as_alone(tmp_path, build_with, candidates, trials=2, **fit):
    """Compares some trials of a grid with searches whose grids have that one trial only.

    Args:
        tmp_path: Where the projects lie.
        build_with: Takes the candidates of each hyper-parameter and returns a build function.
        candidates: The candidates by name.
        trials: How many trials are trained alone: the last ones, which shared most.
    """
    shared = search_over(tmp_path, build_with(candidates), **fit)
    found = small.histories(shared)
    steps = small.totals(shared)
    assert steps["again"] == 0
    for number, (values, _, _) in enumerate(list(found)[-trials:]):
        alone = search_over(tmp_path, build_with({k: [v] for k, v in values}), name=f"alone{number}", **fit)
        ((_, history),) = small.histories(alone).items()
        assert history == found[values, 0, small.EPOCHS], dict(values)
    return shared, found


def test_as_plain_keras(tmp_path):
    """Against a loop that knows nothing of the tuner but the order of the data."""

    def build(hp):
        tuner.sequence(hp, "batch_size", BATCHES)
        return small.model(sgd(hp))

    found = small.histories(search_over(tmp_path, build))
    assert len(found) == len(RATES) * len(BATCHES)
    x, y = small.data()
    cut = small.COUNT - small.VALIDATION
    for values, _, epochs in found:
        texts = {name: Sequence.parse(text) for name, text in values}
        keras.backend.clear_session()
        keras.utils.set_random_seed(5)
        model = small.model(keras.optimizers.SGD(texts["learning_rate"].at(0), momentum=0.9))
        data = tuner.data.epochs(x[:cut], y[:cut], seed=5)
        history = []
        for segment in path_of(texts, epochs):
            now = dict(segment.config)
            model.optimizer.learning_rate = now["learning_rate"]
            for epoch in range(segment.start, segment.end):
                logs = model.fit(
                    data.dataset(epoch, now["batch_size"]),
                    validation_data=(x[cut:], y[cut:]),
                    validation_batch_size=now["batch_size"],
                    verbose=0,
                ).history
                history.append({name: value[0] for name, value in logs.items()})
        assert history == found[values, 0, epochs]


OPTIMIZERS = {
    "sgd": lambda rate: keras.optimizers.SGD(rate, momentum=0.9, nesterov=True),
    "adam": lambda rate: keras.optimizers.Adam(rate),
    "adamw-ema": lambda rate: keras.optimizers.AdamW(rate, weight_decay=0.01, use_ema=True, ema_overwrite_frequency=5),
    "accumulated": lambda rate: keras.optimizers.Adam(rate, gradient_accumulation_steps=2),
}


@pytest.mark.parametrize(
    "optimizer", [pytest.param(name, marks=[pytest.mark.slow] if name == "accumulated" else []) for name in OPTIMIZERS]
)
def test_optimizers(tmp_path, optimizer):
    def build_with(candidates):
        return lambda hp: small.model(
            OPTIMIZERS[optimizer](tuner.sequence(hp, "learning_rate", candidates["learning_rate"]))
        )

    assert_as_alone(tmp_path, build_with, {"learning_rate": ["0.01@0|0.1@2", "0.01@0|0.002@4", "0.01@0"]})


def test_mixed_precision(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:

        def build_with(candidates):
            def build(hp):
                inner = keras.optimizers.Adam(tuner.sequence(hp, "learning_rate", candidates["learning_rate"]))
                return small.model(keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=5))

            return build

        assert_as_alone(tmp_path, build_with, {"learning_rate": ["0.01@0|0.001@4", "0.01@0"]})
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    "callback",
    [
        lambda: keras.callbacks.EarlyStopping("val_loss", patience=1),
        lambda: keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        lambda: keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.3, patience=1),
    ],
    ids=["early-stopping", "best-weights", "plateau"],
)
def test_callbacks(tmp_path, callback):
    def build_with(candidates):
        def build(hp):
            dropout = tuner.sequence(hp, "dropout", candidates["dropout"])
            rate = tuner.sequence(hp, "learning_rate", candidates["learning_rate"])
            return small.model(keras.optimizers.SGD(rate, momentum=0.9), dropout)

        return build

    candidates = {"learning_rate": ["0.5@0|0.2@4", "0.5@0|0.2@5"], "dropout": ["0.0@0", "0.0@0|0.5@3"]}
    assert_as_alone(tmp_path, build_with, candidates, callbacks=[callback()])


def test_early_stopping_ends_all_trials_of_a_stage(tmp_path):
    def build(hp):
        return small.model(keras.optimizers.SGD(tuner.sequence(hp, "learning_rate", ["0.0@0|0.1@4", "0.0@0|0.2@5"])))

    stop = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=1.0)
    search = search_over(tmp_path, build, callbacks=[stop])
    histories = list(small.histories(search).values())
    assert [len(history) for history in histories] == [2, 2]
    assert small.totals(search)["run"] == 1


CHANGES = {
    "momentum": ["0.5@0|0.9@3", "0.5@0|0.9@4", "0.5@0"],
    "momentum-from-none": ["0.0@0|0.9@3", "0.0@0"],
    "dropout": ["0.1@0|0.6@3", "0.1@0|0.6@4", "0.1@0"],
    "optimizer": ["sgd@0|adam@3", "sgd@0|adam@4", "sgd@0"],
    "weight_decay": ["0.1@0|0.01@3", "0.1@0"],
}


def build_changing(what, candidates):
    def build(hp):
        rate = tuner.sequence(hp, "learning_rate", ["0.05@0|0.01@2"])
        value = tuner.sequence(hp, what.partition("-")[0], candidates[what.partition("-")[0]])
        if what.startswith("momentum"):
            return small.model(keras.optimizers.SGD(rate, momentum=value))
        if what == "dropout":
            return small.model(keras.optimizers.Adam(rate), dropout=value)
        if what == "weight_decay":
            return small.model(keras.optimizers.AdamW(rate, weight_decay=value))
        return small.model(keras.optimizers.get({"class_name": value, "config": {"learning_rate": rate}}))

    return build


@pytest.mark.parametrize(
    "what", [pytest.param(name, marks=[pytest.mark.slow] if name == "weight_decay" else []) for name in CHANGES]
)
def test_changes(tmp_path, what):
    name = what.partition("-")[0]

    def build_with(candidates):
        return build_changing(what, candidates)

    _, found = assert_as_alone(tmp_path, build_with, {name: CHANGES[what]}, trials=1)
    constant, changing = list(found.values())[-1], next(iter(found.values()))
    assert changing[:3] == constant[:3]
    assert changing[4] != constant[4]  # the change has an effect


def test_a_model_that_is_built_anew_keeps_nothing_of_another_trial(tmp_path):
    """Trials with different learning rates use one model in turn, and part where another dropout rate begins."""

    def build_with(candidates):
        def build(hp):
            rate = tuner.sequence(hp, "learning_rate", candidates["learning_rate"])
            kind = tuner.sequence(hp, "optimizer", candidates["optimizer"])
            optimizer = keras.optimizers.get({"class_name": kind, "config": {"learning_rate": rate}})
            return small.model(optimizer, tuner.sequence(hp, "dropout", candidates["dropout"]))

        return build

    candidates = {
        "learning_rate": ["0.05@0|0.01@2", "0.05@0|0.02@3", "0.05@0"],
        "dropout": ["0.3@0|0.1@3", "0.3@0"],
        "optimizer": ["sgd@0", "sgd@0|adam@3"],
    }
    assert_as_alone(tmp_path, build_with, candidates, trials=4)


def test_the_users_own_hook(tmp_path):
    def smooth(model, value):
        model.compile(
            model.optimizer,
            keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=value),
            metrics=["accuracy"],
            jit_compile=False,
        )

    def build(hp):
        value = tuner.sequence(hp, "smoothing", ["0.0@0|0.4@3", "0.0@0"], applies_to=smooth)
        made = small.model(keras.optimizers.SGD(0.05))
        smooth(made, value)
        return made

    x, y = small.data()
    search = tuner.GridSearch(build, "val_accuracy", seed=5, directory=tmp_path)
    search.search(x, np.eye(2, dtype="float32")[y], validation_split=0.25, epochs=5, verbose=0)
    with_smoothing, without = small.histories(search).values()
    assert with_smoothing[:3] == without[:3]
    assert with_smoothing[3]["loss"] > without[3]["loss"] + 0.05


def test_a_scaled_learning_rate_is_not_assigned(tmp_path):
    """The name says learning rate, but the model has twice the value: it is built anew."""

    def build_with(candidates):
        return lambda hp: small.model(
            keras.optimizers.SGD(2 * tuner.sequence(hp, "learning_rate", candidates["learning_rate"]))
        )

    _, found = assert_as_alone(tmp_path, build_with, {"learning_rate": ["0.05@0|0.01@3", "0.05@0"]})
    direct = search_over(
        tmp_path,
        lambda hp: small.model(keras.optimizers.SGD(tuner.sequence(hp, "learning_rate", ["0.1@0|0.02@3"]))),
        name="direct",
    )
    assert next(iter(small.histories(direct).values())) == next(iter(found.values()))


def test_executions_have_seeds_of_their_own(tmp_path):
    def build(hp):
        return small.model(keras.optimizers.SGD(tuner.sequence(hp, "learning_rate", ["0.1@0|0.01@2", "0.1@0"])))

    x, y = small.data()
    searches = []
    for name, executions, seed in (("both", 2, 5), ("first", 1, 5), ("second", 1, 6)):
        search = tuner.GridSearch(
            build,
            "val_accuracy",
            seed=seed,
            executions_per_trial=executions,
            directory=tmp_path,
            project_name=name,
        )
        search.search(x, y, validation_split=0.25, epochs=4, verbose=0)
        searches.append(search)
    both, first, second = map(small.histories, searches)
    for (values, execution, epochs), history in both.items():
        alone = first if execution == 0 else second
        assert history == alone[values, 0, epochs]
    for trial in searches[0].oracle.trials.values():
        values = tuple(sorted(trial.hyperparameters.values.items()))
        bests = [max(e["val_accuracy"] for e in both[values, k, 4]) for k in (0, 1)]
        assert trial.score == np.mean(bests)

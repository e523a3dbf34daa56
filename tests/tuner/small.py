"""A small study for the tests: data, a model with everything that has a state, and a search over it."""

import keras
import numpy as np

from tf_ext import tuner

COUNT = 192
VALIDATION = 48
EPOCHS = 6


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(COUNT, 6)).astype("float32")
    return x, (x[:, 0] + 0.3 * rng.normal(size=COUNT) > 0).astype("int32")


def model(optimizer, dropout=0.3):
    made = keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Dense(12, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2, dtype="float32"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    return made


def histories(search):
    """The metrics of all epochs of all trials, by the trial's values."""
    with tuner.Plan(search.project_dir, create=False) as plan:
        (study,) = plan.studies()
        found = {}
        for record in plan.trials(study["id"]):
            lineage, node = [], record.leaf
            nodes = {number: (parent, start) for number, _, parent, start, _ in plan.all_nodes()}
            end = record.epochs
            while node:
                parent, start = nodes[node]
                logs = [e for run in plan.runs(node) for e in run.history][: end - start]
                lineage = logs + lineage
                node, end = parent, start
            values = {k: v for k, v in record.values.items() if not k.startswith("tuner/")}
            found[tuple(sorted(values.items())), record.execution, record.epochs] = lineage
    return found


def totals(search):
    with tuner.Plan(search.project_dir, create=False) as plan:
        return plan.totals()

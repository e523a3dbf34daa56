"""The physical limit: the matrix products of the level-batched version, operands ready, and nothing else."""

import numpy as np
import tensorflow as tf

from benchmarks.harness import UnavailableError
from benchmarks.recursion.cells import Runner
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Model
from benchmarks.recursion.schedule import Schedule, by_level

MOST_PRODUCTS = 1000


def rows(model: Model, schedule: Schedule) -> list[tuple[str, int]]:
    """Lists the forward products of `peers_level.py` as (weight, number of rows)."""
    leaves, inner = int(schedule.leaves.sum()), int(schedule.inner.sum())
    levels = [d for d in range(schedule.depth) if schedule.inner[d]]
    if model.kind == "binary":
        return [("leaf_kernel", leaves), *(("kernel", int(schedule.inner[d])) for d in levels)]
    products = [("input_kernel", leaves + inner), ("forget_input_kernel", inner)]
    for d in levels:
        products += [
            ("forget_kernel", len(schedule.parents[d + 1])),
            ("kernel", int(schedule.inner[d])),
        ]
    return products


def prepare(model: Model, forest: Forest) -> Runner:
    """Makes the products of a forest ready: forward only, or forward and both backward ones.

    Raises:
        UnavailableError: If there are so many levels that starting the operators takes longer than the products.
    """
    products = rows(model, by_level(forest))
    if len(products) > MOST_PRODUCTS:
        raise UnavailableError(f"{len(products)} products of a row or two are no limit: their operators cost more")
    names = [name for name, _ in products]
    random = np.random.default_rng(0)

    def draw(side: int) -> list[tf.Tensor]:
        sizes = [(n, model.weights[name].shape[side]) for name, n in products]
        return [tf.constant(random.normal(size=size), tf.float32) for size in sizes]

    variables = {name: tf.Variable(model.weights[name]) for name in set(names)}
    xs, dys = draw(0), draw(1)

    # The operands are captured: as arguments they would cost more than the products of a small forest.
    @tf.function(autograph=False)
    def forward() -> list[tf.Tensor]:
        w = {name: variable.read_value() for name, variable in variables.items()}
        return [tf.matmul(x, w[name]) for name, x in zip(names, xs, strict=True)]

    @tf.function(autograph=False)
    def backward() -> list[tf.Tensor]:
        w = {name: variable.read_value() for name, variable in variables.items()}
        results = []
        for name, x, dy in zip(names, xs, dys, strict=True):
            results.append(tf.matmul(x, w[name]))
            results.append(tf.matmul(dy, w[name], transpose_b=True))
            results.append(tf.matmul(x, dy, transpose_a=True))
        return results

    return Runner(forward, lambda: (backward(), {}))

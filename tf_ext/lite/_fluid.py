"""The fluid bound: how fast a mix of requests could be served at best if work could be divided at will."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_ext.lite.simulator import Model

_STEPS = 400


def alone_us(model: Model) -> float:
    """Returns the least time that one request takes with all workers to itself, microseconds."""
    workers = len(model.pieces[0].latency_us)
    return _cheapest(model, [1.0] * workers)[0]


def bound_us(models: Sequence[Model], weights: Sequence[float], workers: int) -> float:
    """Returns a lower bound of the time between two requests that can be sustained.

    For any prices of the workers' time that sum to 1, requests cannot be served faster than their cheapest ways cost: this
    is the dual of the linear programme that divides requests over pieces and workers. The prices are improved by
    multiplicative weights, and each step's cost is a bound by itself.

    Args:
        models: The models.
        weights: The share of each model among the requests; they sum to 1.
        workers: How many workers there are.

    Returns:
        Microseconds per request, on average over the mix.
    """
    logs = [0.0] * workers
    best, load = 0.0, [0.0] * workers
    scale = sum(weight * alone_us(model) for model, weight in zip(models, weights, strict=True))
    for step in range(1, _STEPS + 1):
        top = max(logs)
        prices = [math.exp(log - top) for log in logs]
        prices = [price / sum(prices) for price in prices]
        cost, load = 0.0, [0.0] * workers
        for model, weight in zip(models, weights, strict=True):
            cheapest, used = _cheapest(model, prices)
            cost += weight * cheapest
            for worker, us in enumerate(used):
                load[worker] += weight * us
        best = max(best, cost)
        logs = [log + us / (scale * math.sqrt(step)) for log, us in zip(logs, load, strict=True)]
    return best


def _cheapest(model: Model, prices: Sequence[float]) -> tuple[float, list[float]]:
    """The cost of a model's cheapest way through its units, and how long that keeps each worker busy."""
    workers = len(prices)
    cost = [math.inf] * model.units + [0.0]
    used = [[0.0] * workers for _ in range(model.units + 1)]
    for piece in sorted(model.pieces, key=lambda piece: -piece.begin):
        for worker, us in enumerate(piece.latency_us):
            if us is not None and us * prices[worker] + cost[piece.end] < cost[piece.begin]:
                cost[piece.begin] = us * prices[worker] + cost[piece.end]
                used[piece.begin] = list(used[piece.end])
                used[piece.begin][worker] += us
    return cost[0], used[0]

"""Workloads for the simulator, drawn from a seed: which networks an app runs, and when requests come.

Fixed before any policy was tuned. Seeds 0-999 are for tuning, 1000-1999 for reporting.
"""

from __future__ import annotations

import random

from tf_ext.lite import _fluid
from tf_ext.lite.phones import Phone, networks, phones
from tf_ext.lite.simulator import Job, Workload

__all__ = ["KINDS", "draw", "together"]

KINDS = ("together", "frames", "requests", "bursts")
"""`together`: all requests at time 0. `frames`: each network has a period of its own, as in an app that sees a camera.
`requests`: several apps, each network's requests come at random. `bursts`: some requests at once, then a pause."""

_CAMERA = (
    "face_detection",
    "face_landmark",
    "iris",
    "palm_detection",
    "hand_landmark",
    "pose_landmark",
    "selfie_segmentation",
)
_APPS = (
    "mobilenet_v1",
    "mobilenet_v1_quant",
    "mobilenet_v2",
    "efficientnet_lite0",
    "squeezenet",
    "nasnet_mobile",
    "efficientdet_lite0",
    *_CAMERA,
)
_HEAVY = ("inception_v4", "inception_resnet_v2")
_NOISE = 0.1


def draw(seed: int) -> Workload:
    """Returns the workload of a seed.

    The kinds and the phones take turns. Requests come at 0.4 to 1.2 times the rate that the phone could sustain at best (the
    fluid bound). Each network has a service-level objective of 2 to 8 times what it takes alone.

    Args:
        seed: Any number from 0.

    Returns:
        A workload of 4 to about 160 jobs, with actual times up to 10 % off the table.
    """
    kind = KINDS[seed % len(KINDS)]
    every = list(phones().values())
    phone = every[seed // len(KINDS) % len(every)]
    rng = random.Random(f"{kind} {seed}")
    names = _names(rng, kind)
    models = tuple(phone.model(networks()[name]) for name in names)
    alone = [_fluid.alone_us(model) for model in models]
    weights = [rng.uniform(0.5, 1.5) / us**0.5 for us in alone]
    if kind == "together":
        arrivals = [(0, rng.choices(range(len(models)), weights)[0]) for _ in range(rng.randint(4, 40))]
    else:
        weights = [weight / sum(weights) for weight in weights]
        spacing = _fluid.bound_us(models, weights, len(phone.processors)) / rng.uniform(0.4, 1.2)
        arrivals = _arrivals(rng, kind, weights, spacing)
    slos = [round(us * rng.uniform(2.0, 8.0)) for us in alone]
    jobs = tuple(Job(model, time, slos[model]) for time, model in arrivals)
    return Workload(f"{kind}/{phone.name}/{seed}", models, jobs, len(phone.processors), noise=_NOISE, seed=seed)


def together(seed: int, jobs: int, phone: Phone, processors: int) -> Workload:
    """Returns a small workload where all requests come at time 0, without noise, on the first processors of a phone.

    Args:
        seed: Of the drawing.
        jobs: How many requests there are.
        phone: The phone.
        processors: How many of its processors are used.
    """
    rng = random.Random(f"together {seed}")
    part = Phone(phone.name, phone.processors[:processors])
    models = tuple(part.model(networks()[name]) for name in rng.sample(_APPS, rng.randint(2, 5)))
    drawn = tuple(Job(rng.randrange(len(models)), 0) for _ in range(jobs))
    return Workload(f"together/{phone.name}/{seed}", models, drawn, processors)


def _names(rng: random.Random, kind: str) -> list[str]:
    names = rng.sample(_CAMERA if kind == "frames" else _APPS, rng.randint(3, 6))
    if kind in ("together", "requests") and rng.random() < 0.2:
        names.append(rng.choice(_HEAVY))
    return names


def _arrivals(rng: random.Random, kind: str, weights: list[float], spacing: float) -> list[tuple[int, int]]:
    """Times and models of about a hundred requests, one every `spacing` microseconds on average."""
    jobs = rng.randint(60, 160)
    span = jobs * spacing
    arrivals: list[tuple[int, int]] = []
    if kind == "frames":
        for model, weight in enumerate(weights):
            period = spacing / weight
            time = rng.uniform(0, period)
            while time < span:
                arrivals.append((round(time), model))
                time += period
    elif kind == "requests":
        for model, weight in enumerate(weights):
            time = rng.expovariate(weight / spacing)
            while time < span:
                arrivals.append((round(time), model))
                time += rng.expovariate(weight / spacing)
    else:
        time = 0.0
        while time < span:
            size = rng.randint(2, 12)
            arrivals += [(round(time), rng.choices(range(len(weights)), weights)[0]) for _ in range(size)]
            time += size * spacing * rng.uniform(0.5, 1.5)
    return sorted(arrivals) or [(0, 0)]

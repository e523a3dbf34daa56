"""The studies that the simulator is measured with. `docs/design/tuner_studies.md` describes them.

They were written down before the first of them was simulated; what they merge was not looked at while they were made.
"""

import itertools
import random
from collections.abc import Sequence as Many

from tf_ext.tuner._study import Algorithm
from tf_ext.tuner.segments import Config, Scalar, Sequence
from tf_ext.tuner.simulator import StudyDefinition

Values = dict[str, Scalar | Sequence]

WORKERS = 40  # as many GPUs as in the paper's evaluation
PAPER = {"gpu_hours": {"single": 4.81, "several": 6.77}, "time": {"single": 2.76, "several": 3.53}}

_SECONDS = {64: 48.0, 128: 40.0, 256: 34.0, 512: 31.0}  # an epoch, by batch size
_OVERHEAD_S = 5.0  # to load a checkpoint, to evaluate and to save, once a stage


def stage_cost(config: Config, epochs: int) -> float:
    """Seconds of a stage: assumed, of the order of one ResNet-56 epoch on CIFAR-10 on a GPU of the paper's time."""
    batch = dict(config).get("batch", 128)
    return _OVERHEAD_S + epochs * _SECONDS.get(int(batch), 40.0)


def _steps(*values: float, at: Many[int] = ()) -> Sequence:
    return Sequence.of(list(zip(values, (0, *at), strict=True)))


def _product(**axes: Many[Scalar | Sequence]) -> list[Values]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _sample(space: list[Values], count: int, seed: int) -> list[Values]:
    return random.Random(seed).sample(space, count)


def resnet_space() -> list[Values]:
    """900 points: learning rate in steps, batch size, momentum and cutout over time, weight decay."""
    rates = [_steps(0.1, 0.01, 0.001, at=at) for at in itertools.product((40, 60, 80), (90, 100, 110))]
    rates += [_steps(0.1, 0.02, 0.004, at=at) for at in itertools.product((30, 60), (90, 100))]
    rates += [_steps(0.05, 0.005, at=(at,)) for at in (60, 90)]
    return _product(
        lr=rates,
        batch=[_steps(128), _steps(128, 256, at=(60,)), _steps(128, 512, at=(80,))],
        momentum=[_steps(0.9), _steps(0.9, 0.95, at=(60,)), _steps(0.85, 0.9, at=(20,))],
        cutout=[_steps(0), _steps(0, 16, at=(40,))],
        weight_decay=[1e-4, 5e-4],
    ) + _product(
        lr=[_steps(0.01, 0.1, 0.01, 0.001, at=(5, *at)) for at in itertools.product((40, 60, 80), (90, 100, 110))],
        batch=[
            _steps(128),
            _steps(128, 256, at=(60,)),
            _steps(128, 512, at=(80,)),
            _steps(256),
            _steps(256, 512, at=(60,)),
        ],
        momentum=[_steps(0.9), _steps(0.9, 0.95, at=(60,))],
        cutout=[_steps(0), _steps(0, 16, at=(40,))],
        weight_decay=[1e-4, 5e-4],
    )


def mobilenet_space() -> list[Values]:
    """432 points, with three optimizer settings that share nothing with each other."""
    return _product(
        lr=[_steps(0.1, 0.01, 0.001, at=at) for at in itertools.product((30, 50, 70), (80, 100))]
        + [_steps(0.1, 0.05, 0.01, at=at) for at in itertools.product((20, 40), (60, 80, 100))],
        batch=[_steps(128), _steps(64, 128, at=(30,)), _steps(128, 256, at=(70,))],
        momentum=[_steps(0.9), _steps(0.9, 0.99, at=(40,))],
        cutout=[_steps(0), _steps(0, 8, at=(60,))],
        weight_decay=[1e-5, 4e-5, 1e-4],
    )


def grid() -> StudyDefinition:
    """A full grid of 216 trials of 120 epochs."""
    space = _product(
        lr=[_steps(0.1, 0.01, 0.001, at=at) for at in itertools.product((40, 60, 80), (90, 100, 110))],
        batch=[_steps(128), _steps(128, 256, at=(60,)), _steps(128, 512, at=(80,))],
        momentum=[_steps(0.9), _steps(0.9, 0.95, at=(60,))],
        cutout=[_steps(0), _steps(0, 16, at=(40,))],
        weight_decay=[1e-4, 5e-4],
    )
    return StudyDefinition("resnet-grid", tuple((values, 120) for values in space))


def successive_halving() -> StudyDefinition:
    """448 trials of the ResNet space, rungs at 15, 60 and 120 epochs."""
    trials = tuple((values, 120) for values in _sample(resnet_space(), 448, seed=1))
    return StudyDefinition("resnet-sha", trials, "sha", reduction=4, min_epochs=15, seed=1)


def asynchronous_halving() -> StudyDefinition:
    """240 trials of the MobileNet space, rungs at 15, 60 and 120 epochs."""
    trials = tuple((values, 120) for values in _sample(mobilenet_space(), 240, seed=2))
    return StudyDefinition("mobilenet-asha", trials, "asha", reduction=4, min_epochs=15, seed=2)


def fine_tuning() -> StudyDefinition:
    """A grid of 40 trials of 24 tenths of an epoch, as for fine-tuning a language model."""
    space = _product(
        lr=[_steps(1e-5, peak, peak / 2, peak / 5, at=(2, *at)) for peak in (5e-5, 3e-5) for at in ((8, 16), (12, 18))]
        + [_steps(1e-5, 5e-5, 1e-5, at=(2, at)) for at in (8, 12, 16, 20)]
        + [_steps(5e-5, 1e-5, at=(12,)), _steps(3e-5, 1e-5, at=(12,))],
        dropout=[_steps(0.1), _steps(0.1, 0.2, at=(12,))],
        batch=[_steps(128), _steps(128, 256, at=(16,))],
    )
    return StudyDefinition("bert-grid", tuple((values, 24) for values in space))


def continuous() -> StudyDefinition:
    """100 random trials whose values are drawn from intervals: nothing to merge."""
    draw = random.Random(3)
    trials = []
    for _ in range(100):
        values: Values = {
            "lr": 10 ** draw.uniform(-4, -1),
            "momentum": draw.uniform(0.8, 0.99),
            "batch": draw.choice((64, 128, 256)),
        }
        trials.append((values, 120))
    return StudyDefinition("continuous-random", tuple(trials))


def single() -> list[StudyDefinition]:
    """The studies that are simulated one by one."""
    return [grid(), successive_halving(), asynchronous_halving(), fine_tuning(), continuous()]


def several(count: int) -> list[StudyDefinition]:
    """Studies of one model at the same time: each draws 144 trials of the ResNet space, all with different seeds."""
    studies = []
    for number in range(count):
        trials = tuple((values, 120) for values in _sample(resnet_space(), 144, seed=100 + number))
        algorithm: Algorithm = "sha" if number % 2 == 0 else "asha"
        name = f"resnet-{algorithm}-{number}"
        studies.append(StudyDefinition(name, trials, algorithm, reduction=4, min_epochs=15, seed=100 + number))
    return studies

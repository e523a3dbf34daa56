"""The exact optima that the benchmark holds the simulator against."""

import random

import pytest

from benchmarks.lite import exact
from tf_ext.lite import simulator
from tf_ext.lite.simulator import Job, Model, Piece, Workload


def _whole(rng: random.Random) -> Workload:
    models = tuple(
        Model(str(i), 1, (Piece(0, 1, tuple(rng.choice([None, rng.randint(1, 99)]) for _ in range(2)) + (50.0,)),))
        for i in range(3)
    )
    return Workload("whole", models, tuple(Job(rng.randrange(3), 0) for _ in range(rng.randint(1, 5))), 3)


@pytest.mark.parametrize("seed", range(20))
def test_both_searches_find_the_same(seed):
    """They have nothing in common but what they are to find."""
    workload = _whole(random.Random(seed))
    assert exact.of_whole(workload) == pytest.approx(exact.of_split(workload))


@pytest.mark.parametrize("seed", range(20))
def test_no_policy_is_better(seed):
    rng = random.Random(seed)
    models = []
    for number in range(2):
        units = rng.randint(1, 3)
        bounds = [(b, e) for b in range(units) for e in range(b + 1, units + 1)]
        pieces = [Piece(b, e, tuple(float(rng.randint(1, 50) * (e - b)) for _ in range(2))) for b, e in bounds]
        models.append(Model(str(number), units, tuple(pieces)))
    workload = Workload("split", tuple(models), tuple(Job(rng.randrange(2), 0) for _ in range(3)), 2)
    best = exact.of_split(workload)
    for policy in simulator.policies():
        result = simulator.simulate(workload, policy)
        assert result.makespan_us >= best.makespan
        assert result.mean_latency_us >= best.mean_latency - 1e-6


def test_a_split_pays_where_it_is_known_to():
    """Unit 0 is fast on worker 0, unit 1 on worker 1: two jobs pass each other in 10 + 10 + 10."""
    pieces = (Piece(0, 1, (10.0, 90.0)), Piece(1, 2, (90.0, 10.0)), Piece(0, 2, (60.0, 60.0)))
    workload = Workload("pipeline", (Model("pipeline", 2, pieces),), (Job(0, 0), Job(0, 0)), 2)
    assert exact.of_split(workload) == exact.Optimum(30.0, 25.0)


def test_whole_models_of_several_units_are_refused():
    model = Model("two", 2, (Piece(0, 2, (1.0,)),))
    with pytest.raises(ValueError, match="Models of one unit were expected"):
        exact.of_whole(Workload("two", (model,), (Job(0, 0),), 1))


def test_interleaving_gains_nothing_on_one_worker():
    """Two jobs of two pieces: the shorter one as a whole, and then the other, is best."""
    sizes = [(5.0, 1.0), (1.0, 9.0)]
    models = tuple(Model("two", 2, (Piece(0, 1, (a,)), Piece(1, 2, (b,)))) for a, b in sizes)
    workload = Workload("one", models, (Job(0, 0), Job(1, 0)), 1)
    assert exact.of_split(workload) == exact.Optimum(16.0, (6 + 16) / 2)

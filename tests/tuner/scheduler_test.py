"""The scheduler's choices, and the exact search behind them against brute force."""

import heapq
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_ext.tuner import _exact
from tf_ext.tuner.scheduler import BreadthFirstScheduler, CriticalPathScheduler
from tf_ext.tuner.segments import Segment
from tf_ext.tuner.stage_tree import StageTree


def _tree(*paths):
    """A tree of requests named 0, 1, ...; a path is pairs (number of epochs, name of a config), an epoch is a second."""
    tree = StageTree(lambda config, epochs: float(epochs))
    for number, path in enumerate(paths):
        ends = list(itertools.accumulate(epochs for epochs, _ in path))
        names = [(("name", name),) for _, name in path]
        tree.add(number, tuple(Segment(a, b, n) for a, b, n in zip([0, *ends], ends, names, strict=False)))
    return tree


def _name(stage):
    return None if stage is None else stage.config[0][1]


def _makespan(tree, workers, kind=CriticalPathScheduler):
    """Runs a tree on a clock of its own; returns when the last stage ends, and the stages in the order of their starts."""
    now, order, last = 0.0, [], dict.fromkeys(range(workers))
    scheduler = kind(tree, workers, clock=lambda: now)
    events, busy = [], set()
    while len(tree):
        for worker in range(workers):
            if worker not in busy and (stage := scheduler.pick(worker, last[worker])) is not None:
                tree.start(stage)
                busy.add(worker)
                order.append(stage)
                heapq.heappush(events, (now + stage.cost, stage.serial, worker, stage))
        assert events, "nothing runs and nothing is picked"
        now = events[0][0]
        while events and events[0][0] == now:
            _, _, worker, stage = heapq.heappop(events)
            tree.finish(stage, checkpoint=True)
            busy.remove(worker)
            last[worker] = stage
    return now, order


def _live_checkpoints(order):
    """The most checkpoints that are held at a time when each goes as its last child begins."""
    most = 0
    for step in range(len(order)):
        begun = set(order[: step + 1])
        most = max(most, sum(any(child not in begun for child in stage.children) for stage in order[:step]))
    return most


def test_the_longest_chain_comes_first_even_if_its_first_stage_is_short():
    tree = _tree([(5, "a")], [(1, "b"), (9, "c")], [(3, "d")], *([(1, f"x{i}")] for i in range(20)))
    assert _name(CriticalPathScheduler(tree, 2).pick("w", None)) == "b"


def test_a_worker_keeps_to_its_own_chain_among_equals_and_leaves_it_for_an_urgent_one():
    for other, expected in ((10, "c"), (16, "d")):
        tree = _tree([(1, "a"), (10, "c")], [(1, "b"), (other, "d")], *([(1, f"x{i}")] for i in range(20)))
        scheduler = CriticalPathScheduler(tree, 4)
        stages = {_name(stage): stage for stage in tree.roots}
        for name in ("b", "a"):
            tree.start(stages[name])
            tree.finish(stages[name], checkpoint=True)
        assert _name(scheduler.pick("w", stages["a"])) == expected
        text = scheduler.explain(stages["a"])
        assert "longest chain" in text and f"name={expected}" in text


def test_a_worker_keeps_to_its_own_chain_while_none_is_urgent():
    tree = _tree([(1, "a"), (3, "c")], [(9, "b")], *([(4, f"x{i}")] for i in range(30)))
    scheduler = CriticalPathScheduler(tree, 2)
    first = next(stage for stage in tree.roots if _name(stage) == "a")
    tree.start(first)
    tree.finish(first, checkpoint=True)
    assert _name(scheduler.pick("w", first)) == "c"
    assert "short against" in scheduler.explain(first)


def test_one_worker_goes_depth_first_and_takes_the_longest_child_last():
    tree = _tree([(1, "a"), (1, "b")], [(1, "a"), (5, "c"), (1, "d")], [(1, "a"), (5, "c"), (2, "e")], [(9, "f")])
    _, order = _makespan(tree, 1)
    assert [_name(stage) for stage in order] == ["a", "b", "c", "d", "e", "f"]


def test_one_worker_holds_few_checkpoints():
    # Each fork has a short child and a long one that forks again: the long one last needs one checkpoint at a time.
    paths = [[(1, f"n{i}") for i in range(depth)] + [(1, f"leaf{depth}")] for depth in range(1, 9)]
    _, order = _makespan(_tree(*paths), 1)
    assert _live_checkpoints(order) == 1
    _, order = _makespan(_tree(*paths), 1, BreadthFirstScheduler)
    assert _live_checkpoints(order) == 1  # a caterpillar is easy; a bush is not:
    bush = [[(1, f"{i}"), (1, f"{i}{j}"), (1, f"{i}{j}{k}")] for i, j, k in itertools.product(range(4), repeat=3)]
    held = [
        _live_checkpoints(_makespan(_tree(*bush), 1, kind)[1])
        for kind in (CriticalPathScheduler, BreadthFirstScheduler)
    ]
    assert held[0] == 2 and held[1] >= 8


def test_nothing_ready_is_said_so():
    tree = _tree([(1, "a"), (1, "b")])
    scheduler = CriticalPathScheduler(tree, 2)
    tree.start(scheduler.pick("w", None))
    assert scheduler.pick("v", None) is None
    assert "no stage is ready" in scheduler.explain()


def test_few_stages_are_ordered_better_than_by_longest_chain():
    # Costs 3 3 2 2 2 on two workers: longest first takes 7, the best order 6.
    makespan, _ = _makespan(_tree(*([(cost, f"x{i}")] for i, cost in enumerate((3, 3, 2, 2, 2)))), 2)
    assert makespan == 6


def test_waiting_for_a_stage_that_is_about_to_end_may_be_best():
    # Whoever takes the third long one at once, makes a fork of two long ones wait for a worker: 19 seconds, not 18.
    tree = _tree([(1, "a"), (10, "b")], [(1, "a"), (10, "c")], [(9, "d")], [(9, "e")])
    makespan, order = _makespan(tree, 3)
    assert makespan == 18
    assert [_name(stage) for stage in order][-1] in ("d", "e")


def test_at_least_one_worker_is_expected():
    with pytest.raises(ValueError, match="at least one worker"):
        CriticalPathScheduler(_tree([(1, "a")]), 0)


def _brute_force(problem):
    """The shortest makespan over all orders and all assignments to machines."""
    jobs, machines, best = range(len(problem.costs)), range(len(problem.free)), float("inf")
    for order in itertools.permutations(jobs):
        if any(problem.parents[job] >= 0 and order.index(problem.parents[job]) > order.index(job) for job in jobs):
            continue
        for chosen in itertools.product(machines, repeat=len(jobs)):
            free, ends = list(problem.free), {-1: 0.0}
            for job, machine in zip(order, chosen, strict=True):
                start = max(free[machine], ends[problem.parents[job]], problem.releases[job])
                ends[job] = free[machine] = start + problem.costs[job]
            best = min(best, max(free))
    return best


@st.composite
def _problems(draw, most=4, machines=3):
    count = draw(st.integers(1, most))
    times = st.integers(0, 6).map(float)
    return _exact.Problem(
        costs=draw(st.lists(st.integers(1, 9).map(float), min_size=count, max_size=count)),
        parents=[draw(st.integers(-1, job - 1)) for job in range(count)],
        releases=draw(st.lists(times, min_size=count, max_size=count)),
        free=draw(st.lists(times, min_size=1, max_size=machines)),
    )


def _feasible(problem, plan):
    ends = [start + cost for start, cost in zip(plan.starts, problem.costs, strict=True)]
    for job, parent in enumerate(problem.parents):
        assert plan.starts[job] >= max(problem.releases[job], ends[parent] if parent >= 0 else 0.0)
    free = sorted(problem.free)
    for job in plan.order:
        assert free[0] <= plan.starts[job]
        free = sorted([*free[1:], ends[job]])
    assert plan.makespan == max(*ends, *problem.free)


@settings(max_examples=120, deadline=None)
@given(_problems())
def test_the_exact_search_finds_what_brute_force_finds(problem):
    plan = _exact.plan(problem)
    assert plan.optimal and plan.makespan == _brute_force(problem)
    assert _exact.lower_bound(problem) <= plan.makespan
    _feasible(problem, plan)


@settings(max_examples=60, deadline=None)
@given(_problems(most=6, machines=2))
def test_the_exact_search_finds_what_brute_force_finds_for_six(problem):
    assert _exact.plan(problem).makespan == _brute_force(problem)


def test_a_search_that_is_cut_short_is_no_worse_than_the_longest_chain_first():
    draw = random.Random(3)
    for _ in range(50):
        costs = [float(draw.randint(1, 20)) for _ in range(14)]
        parents = [draw.randint(-1, job - 1) for job in range(14)]
        problem = _exact.Problem(costs, parents, [0.0] * 14, [0.0] * 3)
        by_chain = _exact.plan(problem, max_nodes=0)
        capped = _exact.plan(problem, max_nodes=100, order=by_chain.order)
        assert capped.nodes <= 100 and capped.makespan <= by_chain.makespan
        _feasible(problem, capped)


def test_a_schedule_is_kept_that_is_good_enough():
    # Longest first ends at 7, the best at 6.
    problem = _exact.Problem([3.0, 3.0, 2.0, 2.0, 2.0], [-1] * 5, [0.0] * 5, [0.0] * 2)
    assert [_exact.plan(problem, tolerance=share).makespan for share in (0.0, 0.1, 0.2)] == [6, 6, 7]
    kept = _exact.plan(problem, order=(0, 1, 2, 3, 4), enough=7.0)
    assert (kept.makespan, kept.order, kept.nodes) == (7, (0, 1, 2, 3, 4), 0)


def test_the_end_that_is_planned_at_first_is_kept():
    """Later picks start from the plan, so that none of them loses what the first has found."""
    for seed in range(40):
        draw = random.Random(seed)
        costs = [draw.randint(1, 20) for _ in range(11)]
        tree, parents = StageTree(lambda config, epochs: float(epochs)), []
        for job, cost in enumerate(costs):
            parents.append(draw.randint(-1, job - 1))
            path, at = [], job
            while at >= 0:
                path.insert(0, (costs[at], (("job", at),)))
                at = parents[at]
            ends = list(itertools.accumulate(cost for cost, _ in path))
            tree.add(job, tuple(Segment(a, b, c) for (_, c), a, b in zip(path, [0, *ends], ends, strict=False)))
        best = _exact.plan(_exact.Problem([float(c) for c in costs], parents, [0.0] * 11, [0.0] * 3)).makespan
        assert _makespan(tree, 3)[0] <= 1.02 * best


def test_the_same_tree_is_always_scheduled_in_the_same_way():
    draw = random.Random(5)
    paths = [[(draw.randint(1, 5), draw.choice("abc")) for _ in range(4)] for _ in range(30)]
    runs = [[(s.start, _name(s)) for s in _makespan(_tree(*paths), 3)[1]] for _ in range(2)]
    assert runs[0] == runs[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([CriticalPathScheduler, BreadthFirstScheduler]))
def test_every_stage_is_run_once_and_within_the_bound_of_lists(seed, workers, kind):
    draw = random.Random(seed)
    paths = [[(draw.randint(1, 5), draw.choice("abc")) for _ in range(draw.randint(1, 4))] for _ in range(12)]
    tree = _tree(*paths)
    work, chain, stages = tree.work, max(stage.remaining for stage in tree.roots), len(tree)
    makespan, order = _makespan(tree, workers, kind)
    assert len(order) == len(set(order)) == stages
    assert max(chain, work / workers) <= makespan <= work / workers + (1 - 1 / workers) * chain  # Graham, 1966

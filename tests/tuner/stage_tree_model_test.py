"""Stage trees against a naive model: the set of all prefixes of configs, epoch by epoch."""

import random
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tf_ext.tuner import _tree
from tf_ext.tuner.segments import Segment
from tf_ext.tuner.stage_tree import StageTree

CONFIGS = [(("lr", value),) for value in (0.1, 0.01, 0.001)]


def _path(*pieces):
    """A path of pairs (number of epochs, config)."""
    segments, at = [], 0
    for epochs, config in pieces:
        segments.append(Segment(at, at + epochs, config))
        at += epochs
    return tuple(segments)


def _cost(config, epochs):
    return epochs * (2.0 if config == CONFIGS[0] else 3.0)


def _epochs(path):
    return tuple(segment.config for segment in path for _ in range(segment.end - segment.start))


def _prefix(stage):
    """The config of every epoch up to the end of a stage."""
    return (_prefix(stage.parent) if stage.parent is not None else ()) + (stage.config,) * stage.epochs


def _run_all(tree):
    answered = []
    while tree.ready():
        answered += tree.finish(tree.start(tree.ready()[0]).stages[-1], checkpoint=True)
    assert len(tree) == 0
    return answered


paths = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(CONFIGS)), min_size=1, max_size=4).map(
    lambda p: _path(*p)
)


@given(st.lists(paths, min_size=1, max_size=12), st.sets(st.integers(1, 9), max_size=2))
def test_every_distinct_epoch_is_run_once(some_paths, cuts):
    tree = StageTree(_cost, cuts)
    for number, path in enumerate(some_paths):
        tree.add(number, path)
    prefixes = {_epochs(path)[:n] for path in some_paths for n in range(1, len(_epochs(path)) + 1)}
    assert tree.distinct == len(prefixes)
    assert tree.requested == sum(len(_epochs(path)) for path in some_paths)
    assert tree.work == sum(_cost(prefix[-1], 1) for prefix in prefixes)
    assert sorted(_run_all(tree)) == list(range(len(some_paths)))
    assert (tree.executed, tree.repeated) == (len(prefixes), 0)


@given(st.lists(paths, min_size=1, max_size=12))
def test_stages_are_cut_only_where_paths_end_or_diverge(some_paths):
    tree = StageTree(_cost)
    for number, path in enumerate(some_paths):
        tree.add(number, path)
    for stage in tree.walk():
        followers = {
            _epochs(p)[stage.end : stage.end + 1] for p in some_paths if _epochs(p)[: stage.end] == _prefix(stage)
        }
        assert len(followers) > 1 or () in followers or followers != {(stage.config,)}


class _Model:
    """What is known and what is waited for, as plain sets of prefixes."""

    def __init__(self):
        self.known = set()
        self.waiting = {}
        self.answered = set()

    def learn(self, prefix):
        self.known |= {prefix[:n] for n in range(1, len(prefix) + 1)}

    def settle(self):
        """The requests that are answered now and were not before."""
        new = {request for request, prefix in self.waiting.items() if prefix in self.known}
        self.answered |= new
        for request in new:
            del self.waiting[request]
        return new


def _check(tree, model):
    stages = list(tree.walk())
    running = {_prefix(s)[:n] for s in stages if s.state == "running" for n in range(s.start + 1, s.end + 1)}
    wanted = {p[:n] for p in model.waiting.values() for n in range(1, len(p) + 1)}
    known = {_prefix(s)[:n] for s in stages if s.answered for n in range(s.start + 1, s.end + 1)}
    assert known == model.known
    assert {_prefix(s)[:n] for s in stages for n in range(s.start + 1, s.end + 1)} == wanted | model.known | running
    assert tree.distinct == len(wanted | model.known | running)
    ready = set()
    for stage in stages:
        children = stage.children
        assert [c.start for c in children] == [stage.end] * len(children) and all(c.parent is stage for c in children)
        own = stage.cost if stage.state != "done" else 0.0
        assert stage.remaining == own + max((child.remaining for child in children), default=0.0)
        assert tree.needs_checkpoint(stage) == sum(child.state != "done" for child in children)
        parent = stage.parent
        if stage.state == "pending":
            assert any(c.state == "pending" for c in children) or (stage.requests and not stage.again)
            assert parent is None or parent.state != "done" or parent.checkpoint
            if parent is None or parent.state == "done":
                ready.add(stage)
            if not stage.again and not stage.requests and stage.end not in tree.cuts:
                assert any(child.config != stage.config for child in children)
        assert (stage.run is not None) == (stage.state == "running")
    assert set(tree.ready()) == ready
    assert {s for parent in tree.forks() for s in tree.ready_below(parent)} == ready
    assert tree.work == sum(s.cost for s in stages if s.state != "done")
    assert set(tree.open) == {s for s in stages if s.state != "done"}
    if ready:
        assert tree.ready_heap().largest().remaining == max(s.remaining for s in ready)
        assert tree.ready_heap().smallest().remaining == min(s.remaining for s in ready)


class _Player:
    """Plays random moves on the tree and on the model."""

    def __init__(self, seed, cuts):
        self.random = random.Random(seed)
        self.tree = StageTree(_cost, cuts)
        self.model = _Model()
        self.runs = []
        self.count = 0

    def add(self):
        self.count += 1
        pieces = [(self.random.randint(1, 3), self.random.choice(CONFIGS)) for _ in range(self.random.randint(1, 4))]
        path = _path(*pieces)
        leaf = self.tree.add(self.count, path)
        self.model.waiting[self.count] = _epochs(path)
        assert leaf.answered == (self.count in self.model.settle())

    def discard(self):
        if self.model.waiting or self.model.answered:
            request = self.random.choice([*self.model.waiting, *self.model.answered])
            self.tree.discard(request)
            self.model.waiting.pop(request, None)
            self.model.answered.discard(request)

    def start(self):
        if ready := self.tree.ready():
            self.runs.append(self.tree.start(self.random.choice(sorted(ready, key=lambda s: s.serial))))

    def _take(self):
        return self.runs.pop(self.random.randrange(len(self.runs))) if self.runs else None

    def finish(self):
        if run := self._take():
            stage = self.random.choice(run.stages)
            last = run.stages[-1]
            self.model.learn(_prefix(stage))
            assert set(self.tree.finish(stage, self.random.random() < 0.7)) == self.model.settle()
            if stage is not last:
                self.runs.append(run)

    def requeue(self):
        if run := self._take():
            self.tree.requeue(run.stages[-1])

    def drop(self):
        if stages := [stage for stage in self.tree.walk() if stage.checkpoint]:
            self.tree.drop_checkpoint(self.random.choice(stages))

    def fail(self):
        if run := self._take():
            first = run.stages[0]
            prefix = _prefix(first) if not first.again else None
            lost = set(self.tree.fail(run.stages[-1]))
            if prefix is not None:
                assert lost == {r for r, p in self.model.waiting.items() if p[: len(prefix)] == prefix}
            for request in lost:
                del self.model.waiting[request]
            self.runs = [run for run in self.runs if run.stages[0].state == "running"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sets(st.integers(1, 9), max_size=2), st.integers(10, 60), st.sampled_from([1, 8]))
def test_random_moves_keep_the_tree_equal_to_the_model(seed, cuts, moves, many):
    # Few children are looked through and many kept in a heap; both ways have to be right.
    with mock.patch.object(_tree, "_MANY", many):
        _play(_Player(seed, cuts), moves)


def _play(player, moves):
    names = ["add"] * 4 + ["start"] * 3 + ["finish"] * 3 + ["discard", "requeue", "drop", "fail"]
    for _ in range(moves):
        getattr(player, player.random.choice(names))()
        _check(player.tree, player.model)
    waiting = set(player.model.waiting)
    answered = {request for run in player.runs for request in player.tree.finish(run.stages[-1], True)}
    answered |= set(_run_all(player.tree))
    assert answered == waiting


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 30))
def test_random_moves_with_early_stopping_leave_no_request_unanswered(seed, moves):
    player = _Player(seed, ())
    tree, answered = player.tree, set()
    added = set()
    for _ in range(moves):
        move = player.random.choice(["add", "add", "start", "finish", "stop", "requeue"])
        if move == "add":
            path = _path(*[(player.random.randint(1, 3), player.random.choice(CONFIGS)) for _ in range(3)])
            added.add(len(added))
            if tree.add(len(added) - 1, path).answered:
                answered.add(len(added) - 1)
        elif move == "stop" and player.runs:
            run = player._take()
            epoch = player.random.randint(run.stages[0].start + 1, run.stages[-1].end)
            got = tree.stop(run.stages[-1], epoch)
            assert not answered & set(got) and len(got) == len(set(got))
            answered |= set(got)
        elif move == "finish" and player.runs:
            answered |= set(tree.finish(player._take().stages[-1], True))
        elif move in ("start", "requeue"):
            getattr(player, move)()
        player.runs = [run for run in player.runs if run.stages and run.stages[-1].state == "running"]
        assert all(not stage.children for stage in tree.walk() if stage.stopped)
    for run in player.runs:
        answered |= set(tree.finish(run.stages[-1], True))
    answered |= set(_run_all(tree))
    assert answered == added

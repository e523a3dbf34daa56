"""Stage trees against a naive model: the set of all prefixes of configs, epoch by epoch."""

import collections
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_ext.tuner.segments import Segment, Sequence, path_of
from tf_ext.tuner.stage_tree import StageTree

CONFIGS = [(("lr", value),) for value in (0.1, 0.01)]


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


def _run(tree, stage, checkpoint=True):
    tree.start(stage)
    return tree.finish(stage, checkpoint)


def _run_all(tree):
    answered = []
    while tree.ready():
        answered += _run(tree, tree.ready()[0])
    assert len(tree) == 0
    return answered


A, B = CONFIGS
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


def test_cuts_are_crossed_by_no_stage():
    tree = StageTree(_cost, cuts=(2, 5, 9))
    leaf = tree.add("x", _path((3, A), (5, B)))
    assert [(s.start, s.end) for s in tree.walk()] == [(0, 2), (2, 3), (3, 5), (5, 8)]
    assert leaf.end == 8


def test_a_request_that_ends_in_the_middle_splits_what_is_pending():
    tree = StageTree(_cost)
    long = tree.add("long", _path((6, A)))
    short = tree.add("short", _path((4, A)))
    assert long.parent is short and (short.start, short.end, long.start, long.end) == (0, 4, 4, 6)
    assert (short.cost, long.cost, short.remaining) == (8.0, 4.0, 12.0)
    assert list(short.requests) == ["short"] and list(long.requests) == ["long"]
    assert tree.ready() == [short]


def test_a_known_result_is_answered_from_history_and_trains_nothing():
    tree = StageTree(_cost)
    tree.add("x", _path((4, A), (2, B)))
    _run_all(tree)
    for number, path in enumerate((_path((4, A), (2, B)), _path((3, A)), _path((4, A), (1, B)))):
        assert tree.add(number, path).answered
    assert tree.ready() == []


def test_a_path_that_leaves_a_done_stage_in_its_middle_starts_from_the_latest_checkpoint():
    tree = StageTree(_cost)
    tree.add("x", _path((2, A), (6, B)))
    _run_all(tree)
    leaf = tree.add("y", _path((2, A), (3, B), (1, A)))
    # Epochs 0 to 2 have a checkpoint; 2 to 5 are run again, for want of one, and 5 to 6 for the first time.
    first = leaf.parent
    assert first.again and first.state == "pending" and first.answered and (first.start, first.end) == (2, 5)
    assert tree.ready() == [first]
    assert _run_all(tree) == ["y"]
    assert (tree.executed, tree.repeated) == (9, 3)


def test_without_any_checkpoint_everything_is_run_again():
    tree = StageTree(_cost)
    tree.add("x", _path((2, A), (2, B)))
    _run_all(tree)
    for stage in tree.walk():
        tree.drop_checkpoint(stage)
    tree.add("y", _path((2, A), (2, B), (1, A)))
    _run_all(tree)
    assert (tree.executed, tree.repeated) == (5, 4)


def test_nothing_is_run_again_for_a_request_that_is_taken_back():
    tree = StageTree(_cost)
    leaf = tree.add("x", _path((2, A)))
    _run_all(tree)
    tree.drop_checkpoint(leaf)
    tree.add("y", _path((2, A), (2, B)))
    assert leaf.again
    tree.discard("y")
    assert leaf.state == "done" and not leaf.again and tree.ready() == [] and tree.distinct == 2


def test_a_running_stage_that_is_cut_finishes_with_its_other_half():
    tree = StageTree(_cost)
    long = tree.add("long", _path((6, A)))
    run = tree.start(long)
    short = tree.add("short", _path((4, A), (1, B)))
    first = short.parent
    assert run.stages == [first, long] and first.run is run and first.state == "running"
    tree.add("middle", _path((4, A)))
    assert tree.finish(long, checkpoint=True) == ["middle", "long"]
    # The state after epoch 4 was not kept.
    assert first.state == "pending" and first.again and long.checkpoint
    assert tree.ready() == [first]


def test_a_run_may_finish_stage_by_stage():
    tree = StageTree(_cost)
    long = tree.add("long", _path((6, A)))
    tree.start(long)
    other = tree.add("other", _path((4, A), (1, B)))
    assert tree.finish(other.parent, checkpoint=True) == []
    assert tree.ready() == [other] and long.state == "running"
    assert tree.finish(long, checkpoint=False) == ["long"]
    assert tree.executed == 6 and not other.parent.again


def test_a_lost_worker_loses_the_stage_it_ran():
    tree = StageTree(_cost)
    leaf = tree.add("x", _path((2, A), (2, B)))
    _run(tree, leaf.parent)
    tree.start(leaf)
    # A lost worker begins anew from the parent's checkpoint: it is not to be deleted before.
    assert tree.needs_checkpoint(leaf.parent) == 1
    tree.requeue(leaf)
    assert tree.ready() == [leaf]
    tree.start(leaf)
    tree.drop_checkpoint(leaf.parent)
    tree.requeue(leaf)
    assert tree.ready() == [leaf.parent] and leaf.parent.again


def test_a_stage_that_nobody_waits_for_runs_to_its_end_but_not_again():
    tree = StageTree(_cost)
    leaf = tree.add("x", _path((2, A)))
    tree.start(leaf)
    tree.discard("x")
    assert leaf.state == "running"
    tree.requeue(leaf)
    assert leaf.state == "gone" and list(tree.walk()) == [] and tree.distinct == 0
    assert tree.finish(leaf, checkpoint=True) == []


def test_discarding_joins_what_only_the_request_kept_apart():
    tree = StageTree(_cost)
    long = tree.add("long", _path((6, A)))
    tree.add("short", _path((4, A)))
    tree.add("other", _path((4, A), (1, B)))
    tree.discard("short")
    assert (long.start, long.end) == (4, 6)
    tree.discard("other")
    assert (long.start, long.end) == (0, 6) and tree.ready() == [long] and tree.work == 12.0
    assert long.parent is None and tree.roots == [long]


def test_early_stopping_answers_all_that_wait_below():
    tree = StageTree(_cost)
    tree.add("long", _path((4, A), (4, B)))
    tree.add("longer", _path((4, A), (6, A)))
    stage = tree.add("first", _path((4, A)))
    tree.start(stage)
    assert sorted(tree.stop(stage, 3)) == ["first", "long", "longer"]
    assert stage.end == 3 and tree.distinct == tree.executed == 3 and len(tree) == 0
    assert tree.leaf("long") is stage
    # Whatever comes along the same way stops there, too; what ends or leaves it before does not.
    assert tree.add("later", _path((3, A), (9, B))) is stage
    assert tree.add("shorter", _path((2, A))).answered
    assert not tree.add("leaves", _path((2, A), (1, B))).answered


def test_early_stopping_in_the_first_half_of_a_run():
    tree = StageTree(_cost)
    long = tree.add("long", _path((6, A)))
    tree.start(long)
    tree.add("short", _path((4, A)))
    assert sorted(tree.stop(long, 2)) == ["long", "short"]
    assert [(s.start, s.end, s.stopped) for s in tree.walk()] == [(0, 2, True)]
    assert long.state == "gone"


def test_a_failure_returns_all_that_pass_through():
    tree = StageTree(_cost)
    tree.add("a", _path((2, A), (2, B)))
    tree.add("b", _path((2, A), (2, B), (1, A)))
    other = tree.add("c", _path((2, A), (1, A)))
    stage = tree.leaf("a")
    _run(tree, stage.parent)
    tree.start(stage)
    assert tree.fail(stage) == ["b", "a"]
    assert "a" not in tree and list(tree.walk()) == [other.parent, other]
    assert tree.requested == tree.distinct == 3


def test_what_cannot_be_is_refused():
    tree = StageTree(_cost)
    leaf = tree.add("x", _path((2, A), (2, B)))
    with pytest.raises(ValueError, match="for the second time"):
        tree.add("x", _path((2, A)))
    with pytest.raises(ValueError, match="follow each other"):
        tree.add("y", (Segment(1, 2, A),))
    with pytest.raises(ValueError, match="is ready"):
        tree.start(leaf)
    with pytest.raises(ValueError, match="is running"):
        tree.finish(leaf, checkpoint=True)
    with pytest.raises(KeyError):
        tree.discard("z")


def test_paths_of_sequences_share_their_beginning():
    tree = StageTree(_cost)
    for later in (0.01, 0.02, 0.03):
        tree.add(later, path_of({"lr": Sequence.of([(0.1, 0), (later, 40)]), "batch": 128}, 60))
    assert (tree.requested, tree.distinct) == (180, 40 + 3 * 20)


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
        self.moves = collections.Counter()

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
@given(st.integers(0, 2**32), st.sets(st.integers(1, 9), max_size=2), st.integers(10, 60))
def test_random_moves_keep_the_tree_equal_to_the_model(seed, cuts, moves):
    player = _Player(seed, cuts)
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


def test_what_may_follow_a_rung_makes_its_chain_longer_until_it_is_answered():
    tree = StageTree(_cost)
    rung = tree.add("rung", _path((2, A)), ahead=10.0)
    tree.add("other", _path((2, A), (1, B)))
    assert tree.remaining(rung) == 4.0 + 10.0
    tree.add("more", _path((2, A)), ahead=20.0)
    assert tree.remaining(rung) == 4.0 + 20.0
    tree.discard("more")
    assert tree.remaining(rung) == 4.0 + 10.0 and tree.work == 4.0 + 3.0
    _run(tree, rung)
    assert tree.remaining(rung) == 3.0

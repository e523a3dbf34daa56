"""Stage trees, one behaviour at a time; `stage_tree_model_test.py` holds them against a naive model."""

import pytest

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


def _parent(stage):
    return stage.parent


def _state(stage):
    return stage.state + " again" * stage.again


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
    first = _parent(leaf)
    assert _state(first) == "pending again" and first.answered and (first.start, first.end) == (2, 5)
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
    assert _state(leaf) == "pending again"
    tree.discard("y")
    assert _state(leaf) == "done" and tree.ready() == [] and tree.distinct == 2


def test_a_running_stage_that_is_cut_finishes_with_its_other_half():
    tree = StageTree(_cost)
    long = tree.add("long", _path((6, A)))
    run = tree.start(long)
    short = tree.add("short", _path((4, A), (1, B)))
    first = _parent(short)
    assert run.stages == [first, long] and first.run is run and _state(first) == "running"
    tree.add("middle", _path((4, A)))
    assert tree.finish(long, checkpoint=True) == ["middle", "long"]
    # The state after epoch 4 was not kept.
    assert _state(first) == "pending again" and long.checkpoint
    assert tree.ready() == [first]


def test_a_run_may_finish_stage_by_stage():
    tree = StageTree(_cost)
    long = tree.add("long", _path((6, A)))
    tree.start(long)
    other = tree.add("other", _path((4, A), (1, B)))
    assert tree.finish(other.parent, checkpoint=True) == []
    assert tree.ready() == [other] and long.state == "running"
    assert tree.finish(long, checkpoint=False) == ["long"]
    assert tree.executed == 6 and _state(_parent(other)) == "done"


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
    assert tree.ready() == [leaf.parent] and _state(_parent(leaf)) == "pending again"


def test_a_stage_that_nobody_waits_for_runs_to_its_end_but_not_again():
    tree = StageTree(_cost)
    leaf = tree.add("x", _path((2, A)))
    tree.start(leaf)
    tree.discard("x")
    assert _state(leaf) == "running"
    tree.requeue(leaf)
    assert _state(leaf) == "gone" and list(tree.walk()) == [] and tree.distinct == 0
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
    assert sorted(map(str, tree.stop(stage, 3))) == ["first", "long", "longer"]
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
    assert sorted(map(str, tree.stop(long, 2))) == ["long", "short"]
    assert [(s.start, s.end, s.stopped) for s in tree.walk()] == [(0, 2, True)]
    assert _state(long) == "gone"


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

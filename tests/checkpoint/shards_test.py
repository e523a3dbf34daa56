"""Many writers of one checkpoint: visible with the last of them, and never mixed with another attempt."""

import multiprocessing
import threading

import numpy as np
import pytest

from tf_ext import checkpoint
from tf_ext.checkpoint import Store, _commit, _files, _layout

TIMEOUT_S = 30.0


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def _write(store, shard, num_shards=2, attempt="t", name="x", value=None, metadata=None):
    with store.writer(name, shard=shard, num_shards=num_shards, attempt=attempt, metadata=metadata) as writer:
        writer.put(f"part-{shard}", value if value is not None else attempt.encode())
    return writer.committed


def test_a_checkpoint_is_visible_with_its_last_shard(store):
    assert not _write(store, 1, 3, metadata={"a": 1})
    assert not _write(store, 0, 3)
    assert "x" not in store
    with pytest.raises(checkpoint.IncompleteCheckpointError, match=r"found 2 of 3, missing 2\. Wait for its writers"):
        store.load("x")
    with pytest.raises(checkpoint.IncompleteCheckpointError, match="missing 2"):
        store.commit("x", "t")
    assert _write(store, 2, 3, metadata={"b": [2]})
    assert {key: store.load("x")[key] for key in store.load("x")} == {"part-0": b"t", "part-1": b"t", "part-2": b"t"}
    assert store.metadata("x") == {"a": 1, "b": [2]}
    assert store.load("x").attempt == "t"
    store.commit("x", "t")  # once more does no harm


def test_shards_of_a_crashed_attempt_never_complete_another(store):
    _write(store, 0, attempt="first")
    assert not _write(store, 1, attempt="second")
    assert "x" not in store
    assert _write(store, 0, attempt="second")
    assert dict(store.load("x")) == {"part-0": b"second", "part-1": b"second"}
    # The first attempt wakes up late, is whole after all, and is now the newest.
    assert _write(store, 1, attempt="first")
    assert store.load("x")["part-0"] == b"first"


def test_a_shard_is_written_once_in_an_attempt(store):
    _write(store, 0)
    with pytest.raises(checkpoint.ShardConflictError, match="only writer of shard 0.*new `attempt`"):
        _write(store, 0, value=b"other")
    assert _write(store, 1)
    assert store.load("x")["part-0"] == b"t"


def test_writers_that_disagree_are_told(store):
    _write(store, 0, 2)
    with pytest.raises(checkpoint.ShardConflictError, match="expected 2 shards as other writers.*got 3"):
        _write(store, 1, 3)
    with pytest.raises(checkpoint.ShardConflictError, match="expected a shard from 0 to num_shards - 1 = 1, got 2"):
        _write(store, 2, 2)
    with pytest.raises(checkpoint.ShardConflictError, match="expected an `attempt` for the 2 shards"):
        store.writer("x", shard=0, num_shards=2)


def test_a_key_in_two_shards_and_metadata_that_differs_are_refused(store):
    for shard in (0, 1):
        writer = store.writer("k", shard=shard, num_shards=2, attempt="t")
        if shard == 0:
            with writer:
                writer.put("same", b"0")
        else:
            with pytest.raises(checkpoint.ShardConflictError, match="got 'same' in shards 0 and 1"), writer:
                writer.put("same", b"1")
    _write(store, 0, name="m", metadata={"loss": 1.0, "nan": float("nan")})
    with pytest.raises(checkpoint.ShardConflictError, match=r"'loss' as 1.0 and, from shard 1, as 2.0"):
        _write(store, 1, name="m", metadata={"loss": 2.0, "nan": float("nan")})
    assert store.names() == []


def test_commit_finishes_what_the_last_writer_could_not(store, monkeypatch):
    _write(store, 0)
    with monkeypatch.context() as patch:
        patch.setattr(_commit, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            _write(store, 1)
    assert "x" not in store
    store.commit("x", "t")
    assert store.load("x")["part-1"] == b"t"
    with pytest.raises(checkpoint.CheckpointNotFoundError, match="never written, or have been replaced or deleted"):
        store.commit("x", "unknown")


@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_an_attempt_that_was_visible_never_comes_back(store, monkeypatch, how):
    # The crash falls between the rename of the manifest and the removal of the old data.
    _write(store, 0), _write(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(_files, "move_aside", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.save("x", {"new": b"1"}) if how == "replaced" else store.delete("x")
    with pytest.raises(checkpoint.CheckpointNotFoundError, match="replaced or deleted since"):
        store.commit("x", "t")
    assert list(store.load("x") if "x" in store else []) == (["new"] if how == "replaced" else [])
    assert store.collect_garbage() > 0  # marked as superseded, so that its age does not matter
    assert not list(store.directory.glob("generations/x@t"))


def test_what_vanishes_while_it_is_looked_at_is_no_error(store):
    # A reader looks for shards without the lock, and two collectors may remove the same trash.
    _write(store, 0)
    generation = store.directory / "generations/x@t"
    moved = _files.move_aside(generation, store.directory / "trash")
    assert _layout.shards_present(generation) == {}
    assert _files.remove_tree(moved) > 0
    assert _files.remove_tree(moved) == 0
    assert _files.move_aside(generation, store.directory / "trash") is None


def test_the_collector_spares_living_writers_and_young_attempts(store):
    _write(store, 0, attempt="young")
    with store.writer("y", shard=0, num_shards=2, attempt="alive") as writer:
        writer.put("a", b"1")
        assert store.collect_garbage(3600) == 0
        assert store.collect_garbage(0) > 0  # the other one, and not this
        assert [path.name for path in store.directory.joinpath("generations").iterdir()] == ["y@alive"]
    assert _write(store, 1, attempt="alive", name="y")
    assert store.load("y")["a"] == b"1"
    assert store.collect_garbage(0) == 0


def test_threads_that_close_at_once_commit_once(store):
    for attempt in range(8):
        barrier = threading.Barrier(4)

        def write(shard, attempt=attempt, barrier=barrier):
            with store.writer("x", shard=shard, num_shards=4, attempt=str(attempt)) as writer:
                writer.put(f"part-{shard}", np.full(100, attempt))
                barrier.wait(TIMEOUT_S)

        threads = [threading.Thread(target=write, args=(shard,)) for shard in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        with store.load("x") as loaded:
            assert sorted(loaded) == [f"part-{shard}" for shard in range(4)]
            assert all((loaded[key] == attempt).all() for key in loaded)


def _rank(directory, shard, barrier):
    store = Store(directory)
    with store.writer("x", shard=shard, num_shards=3, attempt="job") as writer:
        barrier.wait(TIMEOUT_S)
        writer.put(f"part-{shard}", np.full(1000, shard))
        barrier.wait(TIMEOUT_S)


def test_processes_write_a_checkpoint_together(store):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    ranks = [context.Process(target=_rank, args=(store.directory, shard, barrier)) for shard in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(TIMEOUT_S)
    assert [rank.exitcode for rank in ranks] == [0, 0, 0]
    with store.load("x") as loaded:
        assert [int(loaded[f"part-{shard}"].sum()) for shard in range(3)] == [0, 1000, 2000]

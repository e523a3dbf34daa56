"""Bits that were lost on the disk are found, wherever they lie, and never come out as data."""

import json
import os

import numpy as np
import pytest

from tf_ext import checkpoint
from tf_ext.checkpoint import Store, _format

BLOBS = {"a": np.arange(5, dtype=np.float32), "b": b"bytes", "e": np.zeros((0, 2))}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    store.save("x", BLOBS, {"m": 1})
    return store


def _shard(store):
    return next(store.directory.glob("generations/*/shard-*"))


def _manifest(store):
    return store.directory / "checkpoints/x.json"


def _read_all(store):
    with store.load("x") as loaded:
        return {key: loaded[key] for key in loaded}, loaded.metadata


def test_a_flipped_bit_of_the_manifest_is_found_wherever_it_is(store):
    path = _manifest(store)
    data = path.read_bytes()
    for position in range(len(data) - 1):  # the last is a line break behind the document
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            blobs, metadata = _read_all(store)
        except (checkpoint.CorruptedCheckpointError, checkpoint.FormatVersionError):
            continue
        # A space of the header, say, may be another white character: what comes out is right.
        assert metadata == {"m": 1}
        assert all(np.asarray(blobs[key]).tobytes() == np.asarray(BLOBS[key]).tobytes() for key in BLOBS)


def test_a_flipped_bit_of_a_blob_is_found_and_the_others_can_be_read(store):
    path = _shard(store)
    data = bytearray(path.read_bytes())
    data[data.index(b"bytes") + 2] ^= 1
    path.write_bytes(data)
    loaded = store.load("x")
    np.testing.assert_array_equal(loaded["a"], BLOBS["a"])
    with pytest.raises(checkpoint.CorruptedCheckpointError, match=r"blob 'b' of checkpoint 'x'.*expected CRC-32 \d+"):
        loaded["b"]
    with pytest.raises(checkpoint.CorruptedCheckpointError):
        loaded.verify()


@pytest.mark.parametrize("size", [0, 10, -1])
def test_a_file_that_was_cut_is_found_when_it_is_opened(store, size):
    path = _shard(store)
    os.truncate(path, size if size >= 0 else path.stat().st_size - 1)
    with pytest.raises(checkpoint.CorruptedCheckpointError, match=r"expected \d+ bytes, found"):
        store.load("x")


def test_a_file_that_is_cut_while_it_is_open_is_found(store):
    loaded = store.load("x")
    os.truncate(_shard(store), 70)
    with pytest.raises(checkpoint.CorruptedCheckpointError, match="blob 'a'"):
        loaded["a"]


def test_a_file_that_was_removed_is_named(store):
    _shard(store).unlink()
    with pytest.raises(
        checkpoint.CorruptedCheckpointError, match="expected the file .*shard-00000-of-00001, found none"
    ):
        store.load("x")


@pytest.mark.parametrize("size", [0, 1, 40, 130])
def test_a_manifest_that_was_cut_is_found(store, size):
    os.truncate(_manifest(store), size)
    for call in (store.load, store.metadata):
        with pytest.raises(checkpoint.CorruptedCheckpointError, match="Delete this checkpoint"):
            call("x")


def test_another_version_of_the_format_is_refused_by_its_number(store, monkeypatch):
    monkeypatch.setattr(_format, "VERSION", 2)
    store.save("x", BLOBS)
    monkeypatch.undo()
    with pytest.raises(
        checkpoint.FormatVersionError, match=r"expected version 1 of .*manifest, found 2\. Read it with"
    ):
        store.load("x")


def test_a_dtype_that_is_unknown_here_is_named(store):
    body = json.loads(_manifest(store).read_bytes().splitlines()[1])
    body["blobs"]["a"]["dtype"] = "float3_e1m1"
    _manifest(store).write_bytes(_format.frame(_format.MANIFEST, body))
    with pytest.raises(checkpoint.CorruptedCheckpointError, match="found 'float3_e1m1'"):
        store.load("x")["a"]


def test_a_corrupted_checkpoint_can_be_deleted_and_replaced_and_its_data_collected(store):
    data = _manifest(store).read_bytes()
    _manifest(store).write_bytes(b"{}")
    assert store.collect_garbage(0) == 0  # the manifest may be repaired by hand: its data stays
    _manifest(store).write_bytes(data)
    assert store.load("x")["b"] == b"bytes"

    _manifest(store).write_bytes(b"{}")
    store.save("x", {"new": b"1"})
    assert dict(store.load("x")) == {"new": b"1"}
    assert store.collect_garbage(0) > 0

    _manifest(store).write_bytes(b"{}")
    store.delete("x")
    assert store.names() == []


def test_a_corrupted_shard_is_not_committed(tmp_path):
    store = Store(tmp_path)
    with store.writer("x", shard=0, num_shards=2, attempt="t") as writer:
        writer.put("a", b"1")
    path = _shard(store)
    path.write_bytes(path.read_bytes()[:-1])
    with (
        pytest.raises(checkpoint.CorruptedCheckpointError, match="expected an end with"),
        store.writer("x", shard=1, num_shards=2, attempt="t"),
    ):
        pass
    assert "x" not in store

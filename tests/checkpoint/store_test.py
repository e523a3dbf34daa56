"""What goes into a store comes out of it, and what cannot is refused."""

import json
import pickle

import hypothesis
import hypothesis.extra.numpy as numpy_strategies
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

from tf_ext import checkpoint
from tf_ext.checkpoint import Store

ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float8_e8m0fnu")

_dtypes = st.one_of(
    numpy_strategies.scalar_dtypes(),  # all byte orders, times, texts of any length
    st.sampled_from([np.dtype(getattr(ml_dtypes, name)) for name in ML_DTYPES]),
    st.sampled_from([np.dtype("V3"), np.dtype("S0"), np.dtype("U0"), np.dtype("V0")]),
)


@st.composite
def _arrays(draw):
    dtype = draw(_dtypes)
    shape = draw(numpy_strategies.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    size = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if not size:
        return np.empty(shape, dtype)
    array = np.frombuffer(data, np.uint8).view(dtype).reshape(shape)
    return draw(st.sampled_from([array, array.T, array[..., ::-1] if array.ndim else array]))


_blobs = st.dictionaries(st.text(max_size=8), st.one_of(_arrays(), st.binary(max_size=20)), max_size=5)
_metadata = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def same(got, expected):
    if isinstance(expected, bytes):
        return type(got) is bytes and got == expected
    # Bytes are compared, since a NaN is no NaN's equal and its payload counts.
    return (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@hypothesis.given(blobs=_blobs, metadata=_metadata)
@hypothesis.settings(
    max_examples=80, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_blobs_and_metadata_come_back_as_they_were(tmp_path, blobs, metadata):
    store = Store(tmp_path)
    store.save("x", blobs, metadata)
    with store.load("x") as loaded:
        assert list(loaded) == list(blobs)
        for key, value in blobs.items():
            assert same(loaded[key], value), key
        assert loaded.nbytes == sum(len(v) if isinstance(v, bytes) else v.nbytes for v in blobs.values())
    assert store.metadata("x") == metadata


@pytest.mark.parametrize("name", ML_DTYPES)
def test_types_of_ml_dtypes_keep_their_name_and_bits(store, name):
    bits = np.arange(16, dtype=np.uint8).view(np.uint8)
    array = bits.view(getattr(ml_dtypes, name))
    store.save("x", {"a": array})
    loaded = store.load("x")["a"]
    assert loaded.dtype.name == name
    assert loaded.tobytes() == bits.tobytes()


def test_a_blob_larger_than_a_chunk_and_a_key_longer_than_a_page(store):
    array = np.random.default_rng(0).standard_normal(400_001)
    key = "k" * 100_000 + "/../\n\0\ud800"
    store.save("x", {key: array, "after": np.float32(2)})
    loaded = store.load("x")
    assert same(loaded[key], array)
    assert loaded["after"] == 2


def test_arrays_that_were_read_are_the_readers_own(store):
    store.save("x", {"a": np.zeros(3), "b": bytearray(b"xy"), "c": memoryview(b"abcd")[::2]})
    loaded = store.load("x")
    loaded["a"][:] = 7
    np.testing.assert_array_equal(loaded["a"], [0, 0, 0])
    assert (loaded["b"], loaded["c"]) == (b"xy", b"ac")


def test_the_mapping_of_names(store):
    assert (store.names(), "b" in store, len(store), bool(store)) == ([], False, 0, True)
    store.save("b", {})
    store.save("a-1.x", {})
    assert (store.names(), list(store), "b" in store, "c" in store, 3 in store) == (
        ["a-1.x", "b"],
        ["a-1.x", "b"],
        True,
        False,
        False,
    )
    store.delete("b")
    assert store.names() == ["a-1.x"]
    with pytest.raises(checkpoint.CheckpointNotFoundError, match="expected a checkpoint 'b'.*found 'a-1.x'"):
        store.delete("b")


def test_a_store_may_be_pickled(store):
    store.save("x", {"a": np.arange(3)})
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(store)).load("x")["a"], [0, 1, 2])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/x", "a/b", "a@b", ".x", "a b", "ä", "a\0", "x" * 121, None, 3]
)
def test_names_that_are_no_file_names_are_refused(store, name):
    for call in (store.load, store.delete, store.metadata, lambda n: store.save(n, {}), store.writer):
        with pytest.raises(checkpoint.InvalidNameError, match="expected the name to be 1 to 120"):
            call(name)
    with pytest.raises(checkpoint.InvalidNameError, match="expected the attempt to be") as caught:
        store.commit("x", name)
    assert repr(name) in str(caught.value)
    assert store.names() == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([object()]), "dtype object"),
        (np.zeros(2, [("x", "i4")]), "fields of a structured array one by one"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        ([1, 2], "got list"),
        ("text", "got str"),
        (None, "got NoneType"),
    ],
)
def test_a_value_that_cannot_come_back_is_refused_and_leaves_nothing(store, value, message):
    store.save("x", {"a": b"old"})
    with pytest.raises(checkpoint.InvalidBlobError, match=message):
        store.save("x", {"fine": b"1", "bad": value})
    assert store.load("x")["a"] == b"old"
    assert not list(store.directory.rglob("*.tmp"))


@pytest.mark.parametrize("bad", [{1: 2}, {"a": (1, 2)}, {"a": np.float32(1)}, {"a": {"b": [{2: 3}]}}, {"a": b""}])
def test_metadata_that_json_would_change_is_refused(store, bad):
    with pytest.raises(checkpoint.InvalidBlobError, match="metadata"):
        store.save("x", {}, bad)
    assert store.names() == []


def test_a_key_that_is_not_there(store):
    store.save("x", {"a": b"", "b": b""})
    loaded = store.load("x")
    with pytest.raises(KeyError) as caught:
        loaded["c"]
    assert str(caught.value) == "expected a key of checkpoint 'x', got 'c'. It has 2: 'a', 'b'."
    assert loaded.get("c") is None
    assert "c" not in loaded


def test_a_closed_checkpoint_says_so(store):
    store.save("x", {"a": b"1"})
    with store.load("x") as loaded:
        assert loaded["a"] == b"1"
    with pytest.raises(checkpoint.CheckpointError, match="'x' was closed"):
        loaded["a"]


def test_a_writer_is_used_inside_with(store):
    writer = store.writer("x")
    with pytest.raises(checkpoint.WriterClosedError):
        writer.put("a", b"")
    with writer:
        writer.put("a", b"1")
        with pytest.raises(checkpoint.ShardConflictError, match="'a', which is in this shard already"):
            writer.put("a", b"2")
    assert writer.committed
    with pytest.raises(checkpoint.WriterClosedError):
        writer.put("b", b"")
    with pytest.raises(checkpoint.WriterClosedError, match="Make a new one"), writer:
        pass
    assert dict(store.load("x")) == {"a": b"1"}


def test_an_exception_inside_a_writer_leaves_the_old_checkpoint(store):
    store.save("x", {"a": b"old"})

    def fail():
        with store.writer("x") as writer:
            writer.put("a", b"new")
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert store.load("x")["a"] == b"old"
    store.collect_garbage(0)
    assert len(list(store.directory.joinpath("generations").iterdir())) == 1


def test_keep_deletes_the_oldest(store):
    for name in ("run-b", "run-a", "other", "run-c", "run-a"):
        store.save(name, {"a": b"x"})
    assert store.keep(2, prefix="run-") == ["run-b"]
    assert store.names() == ["other", "run-a", "run-c"]
    assert store.keep(1) == ["other", "run-c"]
    assert store.keep(0) == ["run-a"]
    assert not list(store.directory.joinpath("generations").iterdir())
    with pytest.raises(ValueError, match="got -1"):
        store.keep(-1)


def test_the_manifest_is_json_that_others_can_read(store):
    store.save("x", {"a": np.zeros((2, 3), ">i2"), "b": b"xyz"}, {"m": 1})
    header, body = store.directory.joinpath("checkpoints/x.json").read_text().splitlines()
    assert json.loads(header)["version"] == 1
    manifest = json.loads(body)
    assert manifest["metadata"] == {"m": 1}
    entry = manifest["blobs"]["a"]
    assert (entry["dtype"], entry["shape"], entry["length"], entry["offset"] % 64) == (">i2", [2, 3], 12, 0)
    (shard, size) = manifest["shards"][0]
    data = next(store.directory.rglob(shard)).read_bytes()
    assert len(data) == size
    begin = manifest["blobs"]["b"]["offset"]
    assert data[begin : begin + 3] == b"xyz"

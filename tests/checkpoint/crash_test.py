"""Processes that are killed in the midst of their work, and processes that get into each other's way."""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tf_ext import checkpoint
from tf_ext.checkpoint import Store

TIMEOUT_S = 30.0
SHAPE = (50_000,)

# Each checkpoint is three arrays and metadata of one number, so that a mixture of two shows. A line is printed before each.
_SAVE_FOREVER = f"""
import sys, numpy as np
from tf_ext.checkpoint import Store
store, number = Store(sys.argv[1]), int(sys.argv[2])
while True:
    number += 1
    print(number, flush=True)
    store.save("x", {{key: np.full({SHAPE}, number) for key in "abc"}}, {{"number": number}})
"""


def _number(store):
    """The number of the visible checkpoint, all of whose parts must agree on it."""
    with store.load("x") as loaded:
        number = loaded.metadata["number"]
        assert sorted(loaded) == ["a", "b", "c"]
        for key in loaded:
            assert loaded[key].shape == SHAPE
            assert (loaded[key] == number).all()
    return number


def _start(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def _kill(process):
    """Kills a process; returns the last number that it printed."""
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    # A line may have been cut short by the kill.
    return [int(line) for line in output.splitlines(keepends=True) if line.endswith("\n")]


def test_a_process_killed_at_any_moment_leaves_the_old_checkpoint_or_the_new_one(tmp_path):
    store, draw = Store(tmp_path), random.Random(0)
    store.save("x", {key: np.zeros(SHAPE, int) for key in "abc"}, {"number": 0})
    last = 0
    for _ in range(12):
        process = _start(_SAVE_FOREVER, tmp_path, last)
        # It is killed after so many saves, and somewhere in the next: the pause is the fault, and waits for nothing.
        lines = [int(process.stdout.readline()) for _ in range(draw.randint(1, 4))]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=draw.uniform(0, 0.02))
        lines += _kill(process)
        number = _number(store)
        assert max(lines[-1] - 1, last) <= number <= lines[-1]
        last = number
    assert last > 0
    # Nothing stays but the visible checkpoint.
    store.collect_garbage(0)
    left = [path for path in store.directory.rglob("*") if path.is_file() and path.name not in ("lock", "superseded")]
    assert sorted(path.name for path in left) == ["shard-00000-of-00001", "x.json"]
    assert _number(store) == last


_DIE_AT = """
import os, signal, sys
from tf_ext.checkpoint import Store
store, deadly = Store(sys.argv[1]), int(sys.argv[2])
count = 0
def dies(function):
    def call(*args, **kwargs):
        global count
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call
for name in ("fsync", "rename", "replace", "mkdir", "unlink", "utime", "rmdir"):
    setattr(os, name, dies(getattr(os, name)))
if sys.argv[3] == "save":
    store.save("x", {"new": b"1" * 1000}, {"number": 1})
elif sys.argv[3] == "delete":
    store.delete("x")
print(count, flush=True)
"""


@pytest.mark.parametrize("what", ["save", "delete"])
def test_death_before_each_step_leaves_old_or_new_and_the_next_can_work(tmp_path, what):
    seen, steps = [], 0
    for deadly in range(1, 40):
        store = Store(tmp_path / str(deadly))
        store.save("x", {"old": b"0"}, {"number": 0})
        process = _start(_DIE_AT, store.directory, deadly, what)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        found = dict(store.load("x")) if "x" in store else None
        assert found in ({"old": b"0"}, {"new": b"1" * 1000} if what == "save" else None)
        seen.append(found == {"old": b"0"})
        store.collect_garbage(0)
        files = [path.name for path in store.directory.rglob("*") if path.is_file()]
        assert sorted(set(files) - {"lock", "superseded"}) == (["shard-00000-of-00001", "x.json"] if found else [])
        assert (dict(store.load("x")) if found else None) == found
        store.save("x", {"next": b"2"})  # no lock is left
        assert dict(store.load("x")) == {"next": b"2"}
        if process.returncode == 0:
            steps = int(output)
            break
        assert process.returncode == -signal.SIGKILL
    assert steps >= (8 if what == "save" else 4)
    # Once it is gone, the old one does not come back: there is one moment of change.
    assert seen == sorted(seen, reverse=True)
    assert seen[0] and not seen[-1]


def _replace_and_delete(directory, seed, stop):
    store, draw = Store(directory), random.Random(seed)
    while not stop.is_set():
        number = draw.randrange(1_000_000)
        store.save("x", {key: np.full(SHAPE, number) for key in "abc"}, {"number": number})
        if draw.random() < 0.2:
            with contextlib.suppress(checkpoint.CheckpointNotFoundError):  # another one may be faster
                store.delete("x")
        store.collect_garbage(3600)


def test_a_reader_among_writers_sees_whole_checkpoints_only(tmp_path):
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    store = Store(tmp_path)
    writers = [context.Process(target=_replace_and_delete, args=(tmp_path, seed, stop)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    numbers: set[int] = set()
    held: Any = None
    try:
        for _ in range(100_000):
            try:
                numbers.add(_number(store))
                held = held or store.load("x")
            except checkpoint.CheckpointNotFoundError:
                continue
            if len(numbers) >= 40 or any(not writer.is_alive() for writer in writers):
                break
    finally:
        stop.set()
        for writer in writers:
            writer.join(TIMEOUT_S)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(numbers) >= 40
    # What was opened at first has been replaced many times, and can still be read.
    assert all((held[key] == held.metadata["number"]).all() for key in held)
    store.collect_garbage(0)
    assert len(list((tmp_path / "generations").iterdir())) == len(store.names())


def test_the_collector_spares_a_writer_in_another_process_until_it_is_killed(tmp_path):
    code = (
        "import sys\nfrom tf_ext.checkpoint import Store\n"
        "with Store(sys.argv[1]).writer('x') as writer:\n"
        "    writer.put('a', b'1' * 10_000_000)\n    print(1, flush=True)\n    sys.stdin.read()\n"
    )
    store = Store(tmp_path)
    process: Any = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "1\n"
    assert store.collect_garbage(0) == 0
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    assert store.collect_garbage(3600) == 0
    assert store.collect_garbage(0) >= 9_000_000
    assert not list((tmp_path / "generations").iterdir())


def test_a_disk_that_is_full_leaves_the_old_checkpoint(tmp_path):
    code = (
        "import resource, signal, sys\nfrom tf_ext.checkpoint import Store\n"
        "store = Store(sys.argv[1])\nstore.save('x', {'a': b'old'})\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    store.save('x', {'a': b'1' * 5_000_000})\nexcept OSError as error:\n    print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert done.stdout == "OSError\n"
    store = Store(tmp_path)
    assert store.load("x")["a"] == b"old"
    assert not list(tmp_path.rglob("*.tmp"))


def test_data_is_durable_before_the_manifest_names_it(tmp_path, monkeypatch):
    # What fsync does cannot be seen short of a power cut; that it comes before the rename, and on what, can.
    events = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def record(kind, path):
        events.append((kind, os.path.basename(path)))

    monkeypatch.setattr(os, "fsync", lambda fd: (record("sync", os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (record("move", b), replace(a, b))[1])
    monkeypatch.setattr(os, "rename", lambda a, b: (record("move", b), rename(a, b))[1])
    Store(tmp_path).save("x", {"a": b"1"})
    kinds = [(kind, "aside" if name.endswith(".tmp") else name.partition("@")[0]) for kind, name in events]
    assert kinds[-7:] == [
        ("sync", "generations"),
        ("sync", "aside"),  # the shard
        ("move", "shard-00000-of-00001"),
        ("sync", "x"),  # its directory
        ("sync", "aside"),  # the manifest
        ("move", "x.json"),
        ("sync", "checkpoints"),
    ]


def test_a_file_removed_under_its_writer_is_an_error_and_no_checkpoint(tmp_path):
    store = Store(tmp_path)
    writer = store.writer("x")
    writer.__enter__()
    writer.put("a", b"1")
    next(tmp_path.rglob("*.tmp")).unlink()
    with pytest.raises(checkpoint.CheckpointNotFoundError, match="was removed meanwhile"):
        writer.__exit__(None, None, None)
    assert "x" not in store

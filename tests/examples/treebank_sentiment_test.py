import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from tf_ext.recursion import Vocabulary, from_sexpr

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "treebank_sentiment"


def read(name, vocabulary):
    return from_sexpr((FOLDER / name).read_text(), vocabulary=vocabulary)


def test_sample_is_a_treebank():
    vocabulary = Vocabulary()
    train = read("train.txt", vocabulary)
    test = read("test.txt", vocabulary.freeze())
    assert (len(train), len(test)) == (62, 16)
    for forest in (train, test):
        assert set(np.unique(forest.labels)) == set(range(5))
        assert set(np.unique(forest.arity)) == {0, 2}
    # Every word of the test was seen: what is measured is how phrases are put together.
    assert (test.values[test.is_leaf] != 1).all()
    lines = [set((FOLDER / name).read_text().splitlines()) for name in ("train.txt", "test.txt")]
    assert len(lines[0] & lines[1]) <= 1


@pytest.mark.slow
def test_example_learns():
    command = [sys.executable, "-m", "examples.treebank_sentiment"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    phrases, always, sentences, _ = map(float, re.findall(r"([\d.]+)%", done.stdout))
    assert phrases > always + 20
    assert sentences > 50

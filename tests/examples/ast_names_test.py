import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from examples.ast_names import data as datasets

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module", name="data")
def _data():
    return datasets.load(num_labels=8, max_nodes=60)


def test_modules_of_the_test_are_not_learnt_from(data):
    train, test = ({function.module for function in part.functions} for part in (data.train, data.test))
    assert not train & test
    assert len(train) > 3 * len(test) > 50


@pytest.mark.parametrize("part", ["train", "test"])
def test_trees_are_those_of_the_functions(data, part):
    split = getattr(data, part)
    assert len(split.functions) == len(split.forest) == len(split.labels)
    assert split.forest.sizes.max() <= 60
    assert {data.names[label] for label in split.labels} == set(data.names)
    tokens = data.vocabulary.tokens
    for i in range(0, len(split.functions), 97):
        function = split.functions[i]
        assert data.names[split.labels[i]] == function.label
        found = {tokens[value] for value in split.forest[i].values}
        assert "FunctionDef" in found or "AsyncFunctionDef" in found
        assert repr(function.name) not in found
        assert found & {datasets.HIDDEN_NAME, "<unk>"}


def test_majority_is_the_share_of_the_commonest_training_label(data):
    commonest = max(range(8), key=(data.train.labels == np.arange(8)[:, None]).sum(1).__getitem__)
    assert data.names[commonest] == "init"
    assert data.majority == (data.test.labels == commonest).mean()


@pytest.mark.slow
def test_example_beats_the_majority():
    command = [sys.executable, "-m", "examples.ast_names", "--seconds", "45"]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    accuracy, majority = map(float, re.findall(r"([\d.]+)%", done.stdout.split("held out:")[1])[:2])
    assert accuracy > majority + 10
    assert "Guessed:" in done.stdout

"""Every policy decides what it decided when its decisions were last looked at; see `golden_decisions`."""

import pytest

from tests.lite import golden_decisions
from tf_ext.lite import simulator

FILES = sorted(golden_decisions.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("policy", simulator.policies())
def test_decisions_are_those_kept(path, policy):
    workload, kept = golden_decisions.read(path)
    found = golden_decisions.decisions(workload, policy)
    first = next((i for i, (a, b) in enumerate(zip(found, kept[policy], strict=False)) if a != b), None)
    assert found == kept[policy], f"run {first} differs; python -m tests.lite.golden_decisions renews what is kept"


def test_there_are_golden_decisions_of_all_policies_on_all_kinds():
    assert {path.stem for path in FILES} == set(golden_decisions.inputs())
    for path in FILES:
        assert set(golden_decisions.read(path)[1]) == set(simulator.policies())

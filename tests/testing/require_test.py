"""`require` skips for want of a part, and fails where all parts are required."""

import pytest

from tf_ext.cli.parts import Part
from tf_ext.testing import _parts, require


@pytest.fixture
def absent(monkeypatch):
    part = Part("nothing", "no purpose", "pip install nothing", module="tf_ext_has_no_such_module")
    monkeypatch.setattr(_parts, "PARTS", (part,))


@pytest.mark.usefixtures("absent")
def test_an_absent_part_skips_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.delenv("TF_EXT_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="pip install nothing"):
        require("nothing")


@pytest.mark.usefixtures("absent")
def test_an_absent_part_fails_where_all_are_required(monkeypatch):
    monkeypatch.setenv("TF_EXT_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="nothing may be skipped"):
        require("nothing")


def test_a_present_part_lets_the_test_go_on():
    try:
        require("hypothesis")
    except pytest.skip.Exception as skipped:  # it would count as a skipped test, not as a wrong one
        pytest.fail(str(skipped))


def test_an_unknown_part_is_an_error():
    with pytest.raises(ValueError, match=r"expected one of .*, but got 'hypotesis'"):
        require("hypotesis")

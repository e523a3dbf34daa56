"""What the tests of `tf_ext.lite` have in common."""

import pytest

import tf_ext.testing


@pytest.fixture(scope="session")
def litert() -> None:
    """For tests that run models."""
    tf_ext.testing.require("litert")

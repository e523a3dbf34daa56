import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    """A killed process loses nothing that it wrote, whether or not it lies on the disk: no test here cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield

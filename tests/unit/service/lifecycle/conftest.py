"""What the tests of a process share."""

import gc

import pytest


@pytest.fixture
def _no_cyclic_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()

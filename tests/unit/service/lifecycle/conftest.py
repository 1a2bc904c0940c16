"""What the tests of a process share."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def _no_cyclic_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()

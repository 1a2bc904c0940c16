"""What the tests of a process share."""

import gc
from collections.abc import Iterator

import pytest
from turnscore_service.lifecycle.proof import process as proof_process


@pytest.fixture
def _no_cyclic_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def _proof_of_ordinary_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests that fill the machine, a proof would wait for them."""
    monkeypatch.setattr(proof_process, "PRIORITY", 0)

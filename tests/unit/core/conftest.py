"""What the tests of the core share."""

import pytest
from turnscore_core import preflight


@pytest.fixture
def _proof_of_ordinary_priority(monkeypatch):
    """Beside other tests that fill the machine, a proof would wait for them."""
    monkeypatch.setattr(preflight, "PRIORITY", 0)

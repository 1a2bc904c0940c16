import pytest
from support.versions import Longer


@pytest.fixture
def held():
    scorer = Longer()
    scorer.gate.clear()
    yield scorer
    scorer.gate.set()

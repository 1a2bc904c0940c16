from collections.abc import Iterator

import pytest
from support.versions import Longer


@pytest.fixture
def held() -> Iterator[Longer]:
    scorer = Longer()
    scorer.gate.clear()
    yield scorer
    scorer.gate.set()

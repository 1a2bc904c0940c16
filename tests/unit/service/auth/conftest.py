"""Nobody is left as the caller of the tests that come after."""

from collections.abc import Iterator

import pytest
from turnscore_service.auth.access import ANYBODY, CALLER
from turnscore_service.log_setup import KEY_NAME


@pytest.fixture(autouse=True)
def anybody() -> Iterator[None]:
    yield
    CALLER.set(ANYBODY)
    KEY_NAME.set(None)

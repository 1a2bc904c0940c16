"""Nobody is left as the caller of the tests that come after."""

import pytest
from turnscore_service.auth.access import ANYBODY, CALLER
from turnscore_service.log_setup import KEY_NAME


@pytest.fixture(autouse=True)
def anybody():
    yield
    CALLER.set(ANYBODY)
    KEY_NAME.set(None)

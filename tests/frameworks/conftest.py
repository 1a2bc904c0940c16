"""The turnscore that the chatbots of these tests ask, and what holds for all of them."""

import logging

import pytest
from support.framework_service import ANSWERED, ASKED, BAD, GOOD, SLOW_SECONDS, Patience, gone, serve


@pytest.fixture
def service():
    with serve() as service:
        yield service


@pytest.fixture(params=["down", "slow", "refusing"])
def unwell(request):
    """One that scores nothing, in each way."""
    if request.param == "down":
        yield gone()
        return
    with serve(SLOW_SECONDS if request.param == "slow" else 0.0, is_refusing=request.param == "refusing") as service:
        yield service


@pytest.fixture
def patience():
    return Patience()


@pytest.fixture(autouse=True)
def no_text_is_logged(caplog):
    """No line of our loggers holds what was said, whatever goes wrong."""
    caplog.set_level(logging.DEBUG, logger="turnscore_client")
    yield
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("turnscore")]
    for text in (ASKED, ANSWERED, BAD, GOOD):
        assert not [line for line in ours if text in line]

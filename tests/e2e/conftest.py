import pytest
from support.processes import running_service
from turnscore_client import TurnScoreClient


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """The service on the starter bundles, started once for all tests that leave it running.

    Which number of threads is best is measured by the services of one model, and most memory is not taken ahead: both
    would take longer than all tests of it.
    """
    environment = {"TURNSCORE_RUNTIME__THREADS": "1", "TURNSCORE_BATCHING__MAX_BATCH_TOKENS": "512"}
    with running_service(tmp_path_factory.mktemp("service"), environment=environment) as started:
        yield started


@pytest.fixture
def client(service):
    with TurnScoreClient(service.url, timeout_seconds=60) as opened:
        yield opened

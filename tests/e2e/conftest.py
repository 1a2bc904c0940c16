import pytest
from support.processes import running_service
from turnscore_client import TurnScoreClient


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """The service on the starter bundles, started once for all tests that leave it running."""
    with running_service(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture
def client(service):
    with TurnScoreClient(service.url, timeout_seconds=60) as opened:
        yield opened

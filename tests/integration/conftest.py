import pytest
import pytest_asyncio
from support.processes import running_redis


@pytest.fixture
def redis(tmp_path):
    with running_redis(tmp_path) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser():
    """One for all tests of a module, which run in its loop."""
    from support.pages import chromium  # skips where there is no browser

    async with chromium() as started:
        yield started

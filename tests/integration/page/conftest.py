import pytest
import pytest_asyncio
from support.pages import serving_page, visiting


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def service():
    async with serving_page() as address:
        yield address


@pytest.fixture
def visit(browser, service):
    def start(url="", **options):
        return visiting(browser, url or service.url, **options)

    return start

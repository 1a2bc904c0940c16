from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import pytest_asyncio
from support.pages import Address, Open, Visit, serving_page, visiting


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def service() -> AsyncIterator[Address]:
    async with serving_page() as address:
        yield address


@pytest.fixture
def visit(browser: Any, service: Address) -> Open:
    def start(url: str = "", **options: Any) -> AbstractAsyncContextManager[Visit]:
        return visiting(browser, url or service.url, **options)

    return start

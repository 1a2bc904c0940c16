"""Fixtures of the service's unit tests."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.fakes import sample


@pytest.fixture
async def nothing_is_left() -> AsyncIterator[None]:
    """After every test: no task but the test's own, nothing in flight, no conversation open."""
    before = asyncio.all_tasks()
    yield
    assert {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()} == set()
    assert sample("open_conversations") == 0
    for scorer in ("fake", "other"):
        assert not sample("items_in_flight", scorer=scorer)
        assert not sample("queued_items", scorer=scorer)

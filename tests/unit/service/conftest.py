"""Fixtures of the service's unit tests."""

import asyncio
from unittest.mock import AsyncMock

import pytest
from support.fakes import sample
from turnscore_core import model_loader


@pytest.fixture
async def nothing_is_left():
    """After every test: no task but the test's own, nothing in flight, no conversation open."""
    before = asyncio.all_tasks()
    yield
    assert {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()} == set()
    assert sample("open_conversations") == 0
    for scorer in ("fake", "other"):
        assert not sample("items_in_flight", scorer=scorer)
        assert not sample("queued_items", scorer=scorer)


@pytest.fixture
def _checked_here(monkeypatch):
    """Versions are checked as they are loaded: a process of their own takes seconds to start (core/test_preflight)."""
    monkeypatch.setattr(model_loader, "run_preflight", AsyncMock(return_value=None))

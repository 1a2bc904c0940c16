"""Fixtures of the client's tests: a mock service, and calls made the same way through both clients."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from turnscore_client.testing import MockTurnScore


class Ask(Protocol):
    def __call__(self, mock: MockTurnScore, method: str, *args: Any, **kwargs: Any) -> Any: ...


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNSCORE_URL", "TURNSCORE_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def mock() -> MockTurnScore:
    return MockTurnScore()


def _ask_sync(mock: MockTurnScore, method: str, *args: Any, client: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    with mock.client(**(client or {})) as opened:
        return getattr(opened, method)(*args, **kwargs)


def _ask_async(
    mock: MockTurnScore, method: str, *args: Any, client: dict[str, Any] | None = None, **kwargs: Any
) -> Any:
    async def work() -> Any:
        async with mock.async_client(**(client or {})) as opened:
            return await getattr(opened, method)(*args, **kwargs)

    return asyncio.run(work())


@pytest.fixture(params=[_ask_sync, _ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a method of a client of the mock; `client` holds arguments for the client itself."""
    return request.param

"""Fixtures of the client's tests: a mock service, and calls made the same way through every client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest
from support.fakes import Threaded
from turnscore_client import (
    AsyncTurnScoreClient,
    AsyncTurnScoreGrpcClient,
    Conversation,
    TurnScoreClient,
    TurnScoreGrpcClient,
)
from turnscore_client.testing import MockTurnScore

Talk = Callable[..., Any]


class Ask(Protocol):
    def __call__(self, mock: MockTurnScore, method: str, *args: Any, **kwargs: Any) -> Any: ...


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNSCORE_URL", "TURNSCORE_API_KEY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def mock() -> MockTurnScore:
    return MockTurnScore()


def _ask_with(make: str) -> Ask:
    """Calls a method of the client that this method of the mock makes."""

    def ask(mock: MockTurnScore, method: str, *args: Any, client: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        made = getattr(mock, make)(**(client or {}))
        if make.startswith("async"):
            return asyncio.run(_await(made, method, args, kwargs))
        with made as opened:
            return getattr(opened, method)(*args, **kwargs)

    return ask


async def _await(client: Any, method: str, args: Any, kwargs: Any) -> Any:
    async with client as opened:
        return await getattr(opened, method)(*args, **kwargs)


@pytest.fixture(params=["client", "async_client", "grpc_client", "async_grpc_client"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Calls a method of a client of the mock; `client` holds arguments for the client itself."""
    return _ask_with(request.param)


@pytest.fixture(params=["client", "async_client"])
def ask_http(request: pytest.FixtureRequest) -> Ask:
    """The same for what only those over HTTP do."""
    return _ask_with(request.param)


def _call_through(client_type: Any) -> Callable[..., Awaitable[Any]]:
    """`await call(address, method, ..., client={...})` through a client of that type; one for threads in a thread."""

    def in_thread(address: str, given: dict[str, Any], method: str, args: Any, fields: Any) -> Any:
        with client_type(address, **given) as client:
            return getattr(client, method)(*args, **fields)

    async def call(address: str, method: str, *args: Any, client: dict[str, Any] | None = None, **fields: Any) -> Any:
        given = {"timeout_seconds": 30.0, **(client or {})}
        if not client_type.__name__.startswith("Async"):
            return await asyncio.to_thread(in_thread, address, given, method, args, fields)
        async with client_type(address, **given) as opened:
            return await getattr(opened, method)(*args, **fields)

    return call


@pytest.fixture(params=[TurnScoreGrpcClient, AsyncTurnScoreGrpcClient], ids=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Callable[..., Awaitable[Any]]:
    """Over gRPC."""
    return _call_through(request.param)


@pytest.fixture(params=[TurnScoreClient, AsyncTurnScoreClient], ids=["sync", "async"])
def call_http(request: pytest.FixtureRequest) -> Callable[..., Awaitable[Any]]:
    """Over HTTP."""
    return _call_through(request.param)


@pytest.fixture(params=["client", "async_client", "grpc_client", "async_grpc_client"])
def talk(request: pytest.FixtureRequest) -> Talk:
    """Opens a conversation with the mock and does with it what an async script does, in both worlds alike."""

    async def in_sync(mock: MockTurnScore, script: Callable[..., Any], **given: Any) -> None:
        with getattr(mock, request.param)() as client, client.conversation(**given) as conversation:
            await script(_Awaited(conversation))

    async def in_async(mock: MockTurnScore, script: Callable[..., Any], **given: Any) -> None:
        async with getattr(mock, request.param)() as client, client.conversation(**given) as conversation:
            await script(conversation)

    def run(mock: MockTurnScore, script: Callable[..., Any], **given: Any) -> None:
        asyncio.run((in_async if request.param.startswith("async") else in_sync)(mock, script, **given))

    return run


class _Awaited:
    """A conversation of threads whose `say` may be awaited."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    async def say(self, *args: Any, **kwargs: Any) -> Any:
        return self.conversation.say(*args, **kwargs)

    async def say_messages(self, *args: Any, **kwargs: Any) -> Any:
        return self.conversation.say_messages(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conversation, name)


_KEY = {"api_key": "s3cret", "timeout_seconds": 30.0, "max_retries": 0}


def _client_of(kind: str, address: str, given: dict[str, Any]) -> Any:
    arguments = {**_KEY, **given}
    if kind == "http-sync":
        return TurnScoreClient(f"http://{address}", **arguments)
    if kind == "http-async":
        return AsyncTurnScoreClient(f"http://{address}", **arguments)
    return (TurnScoreGrpcClient if kind == "grpc-sync" else AsyncTurnScoreGrpcClient)(address, **arguments)


@pytest.fixture
def live(kind: str) -> Callable[..., Any]:
    """`async with live(address) as conversation` with a real service; the module says of which `kind`."""

    @asynccontextmanager
    async def open_one(address: str, client: dict[str, Any] | None = None, **given: Any) -> AsyncIterator[Any]:
        made = _client_of(kind, address, client or {})
        if kind.endswith("-sync"):
            async with Threaded(made, given) as conversation:
                yield conversation
        else:
            async with made, made.conversation(**given) as conversation:
                yield conversation

    return open_one

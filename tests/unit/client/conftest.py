"""Fixtures of the client's tests: a mock service, and calls made the same way through every client."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
from support.fakes import Threaded
from turnscore_client import AsyncTurnScoreClient, AsyncTurnScoreGrpcClient, TurnScoreClient, TurnScoreGrpcClient
from turnscore_client.testing import MockTurnScore


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    for name in ("TURNSCORE_URL", "TURNSCORE_API_KEY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def mock():
    return MockTurnScore()


def _invoke(make, is_async, method, args, fields):
    """What the method of a client returns, in both worlds alike."""
    if not is_async:
        with make() as client:
            return getattr(client, method)(*args, **fields)

    async def awaited():
        async with make() as client:
            return await getattr(client, method)(*args, **fields)

    return asyncio.run(awaited())


def _ask_with(name):
    """Calls a method of the client that this method of the mock makes."""

    def ask(mock, method, *args, client=None, **fields):
        return _invoke(partial(getattr(mock, name), **(client or {})), name.startswith("async"), method, args, fields)

    return ask


CLIENTS = ["client", "async_client", "grpc_client", "async_grpc_client"]


@pytest.fixture(params=CLIENTS)
def ask(request):
    """Calls a method of a client of the mock; `client` holds arguments for the client itself."""
    return _ask_with(request.param)


@pytest.fixture(params=CLIENTS[:2])
def ask_http(request):
    """The same for what only those over HTTP do."""
    return _ask_with(request.param)


def _call_through(kind):
    """`await call(address, method, ..., client={...})` through a client of that type, in a thread."""

    async def call(address, method, *args, client=None, **fields):
        make = partial(kind, address, **{"timeout_seconds": 30.0, **(client or {})})
        return await asyncio.to_thread(_invoke, make, kind.__name__.startswith("Async"), method, args, fields)

    return call


@pytest.fixture(params=[TurnScoreGrpcClient, AsyncTurnScoreGrpcClient], ids=["sync", "async"])
def call(request):
    """Over gRPC."""
    return _call_through(request.param)


@pytest.fixture(params=[TurnScoreClient, AsyncTurnScoreClient], ids=["sync", "async"])
def call_http(request):
    """Over HTTP."""
    return _call_through(request.param)


@asynccontextmanager
async def _conversing(made, given):
    """A conversation of that client, in both worlds alike."""
    if hasattr(made, "__aenter__"):
        async with made, made.conversation(**given) as conversation:
            yield conversation
    else:
        async with Threaded(made, given) as conversation:
            yield conversation


@pytest.fixture(params=CLIENTS)
def talk(request):
    """Opens a conversation with the mock and does with it what an async script does."""

    def run(mock, script, **given):
        async def converse():
            async with _conversing(getattr(mock, request.param)(), given) as conversation:
                await script(conversation)

        asyncio.run(converse())

    return run


_KEY = {"api_key": "s3cret", "timeout_seconds": 30.0, "max_retries": 0}


def _client_of(kind, address, given):
    arguments = {**_KEY, **given}
    if kind == "http-sync":
        return TurnScoreClient(f"http://{address}", **arguments)
    if kind == "http-async":
        return AsyncTurnScoreClient(f"http://{address}", **arguments)
    return (TurnScoreGrpcClient if kind == "grpc-sync" else AsyncTurnScoreGrpcClient)(address, **arguments)


@pytest.fixture
def live(kind):
    """`async with live(address) as conversation` with a real service; the module says of which `kind`."""

    def open_one(address, client=None, **given):
        return _conversing(_client_of(kind, address, client or {}), given)

    return open_one

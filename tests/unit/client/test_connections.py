"""Connections: real sockets, running out of time, slow transports, cancellation, and what is left open (nothing)."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import httpcore
import httpx
import pytest
from support.plain_http import Handler, handled_by
from turnscore_client import (
    AsyncTurnScoreClient,
    ConnectionFailedError,
    DeadlineExceededError,
    OverloadedError,
    TurnScoreClient,
    TurnScoreError,
)
from turnscore_client._http import _SENDING_ERRORS, _proxy_to, _translate
from turnscore_client._retry import OutOfTimeError
from turnscore_client.testing import ManualClock, MockTurnScore

FULL = b'{"error": {"code": "overloaded", "message": "full", "retry_after_ms": 10}, "request_id": "r-1"}'


@pytest.fixture
def full_service():
    class FullService(Handler):
        """A real server that refuses everything, and counts its connections and requests."""

        url, connections, requests = "", 0, 0

        def setup(self):
            FullService.connections += 1
            super().setup()

        def do_POST(self):
            self.body()
            FullService.requests += 1
            self.answer(429, FULL)

    with handled_by(FullService) as FullService.url:
        yield FullService


@pytest.fixture
def closed_port_url():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def idle(client):
    """Of each open connection, whether it is free for the next request."""
    return [connection.is_idle() for connection in client._inner._transport._client._transport._pool.connections]


def test_failed_retries_leak_no_connection_and_reuse_the_one_they_have(full_service):
    with TurnScoreClient(full_service.url, clock=ManualClock()) as client:
        for _ in range(2):
            with pytest.raises(OverloadedError):
                client.score(response="a")
        assert idle(client) == [True]
    assert idle(client) == []
    assert (full_service.requests, full_service.connections) == (12, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_share_its_parents_connections(full_service):
    program = (
        "import os, sys\n"
        "from turnscore_client import OverloadedError, TurnScoreClient\n"
        "client = TurnScoreClient(sys.argv[1], max_retries=0)\n"
        "def ask():\n"
        "    try:\n"
        "        client.score(response='a')\n"
        "    except OverloadedError:\n"
        "        pass\n"
        "ask(); child = os.fork()\n"
        "if not child:\n"
        "    ask(); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0; ask()\n"
    )
    subprocess.run([sys.executable, "-c", program, full_service.url], timeout=120, check=True)
    assert (full_service.connections, full_service.requests) == (2, 3)


async def test_a_refused_connection_is_a_typed_error_that_names_the_address(call_http, closed_port_url):
    clock = ManualClock()
    with pytest.raises(ConnectionFailedError, match=closed_port_url):
        await call_http(closed_port_url, "score", response="a", client={"clock": clock})
    assert len(clock.sleeps) == 5


async def test_a_service_that_never_answers_ends_in_deadline_exceeded(call_http):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DeadlineExceededError, match=r"0\.05 s") as raised:
            await call_http(url, "score", response="a", request_id="r-1", client={"timeout_seconds": 0.05})
    assert raised.value.request_id == "r-1"


@pytest.mark.parametrize("error", [UnicodeError("label too long"), httpx.InvalidURL("no host")])
async def test_an_address_that_cannot_be_sent_to_is_a_failed_connection(call_http, error):
    def fail(request):
        raise error

    client = {"transport": httpx.MockTransport(fail), "max_retries": 0}
    with pytest.raises(ConnectionFailedError, match=r"http://scores\.test"):
        await call_http("http://scores.test", "models", client=client)


async def test_cancelling_one_call_leaves_the_client_and_the_other_calls_alone():
    started, release, mock, asked = asyncio.Event(), asyncio.Event(), MockTurnScore(), 0

    async def answer(request):
        nonlocal asked
        asked += 1
        if b"slow" in request.content:
            started.set()
            await release.wait()
        return mock.transport.handle_request(request)

    async with AsyncTurnScoreClient("http://scores.test", transport=httpx.MockTransport(answer)) as client:
        left = asyncio.create_task(client.score(response="slow, and its caller leaves"))
        kept = asyncio.create_task(client.score(response="slow, and its caller stays"))
        await started.wait()
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert asked == 2, "what is cancelled is not tried again"
        release.set()
        assert (await kept).scores["engagement"].value == 0.5
        assert (await client.score(response="later")).scores["engagement"].value == 0.5


def _leaves(error_class):
    below = error_class.__subclasses__()
    return [leaf for child in below for leaf in _leaves(child)] if below else [error_class]


LIBRARY_ERRORS = [
    *_leaves(httpx.RequestError), *_leaves(httpcore.TimeoutException), *_leaves(httpcore.NetworkError),
    *_leaves(httpcore.ProtocolError), *(httpcore.ProxyError, httpcore.UnsupportedProtocol),
]  # fmt: skip


@pytest.mark.parametrize("error_class", LIBRARY_ERRORS)
def test_every_error_of_httpx_and_httpcore_has_a_place(error_class):
    assert issubclass(error_class, _SENDING_ERRORS)
    error = _translate(error_class("because"), "http://scores.test")
    if issubclass(error_class, httpx.ConnectTimeout | httpcore.ConnectTimeout):
        assert isinstance(error, ConnectionFailedError)
    elif issubclass(error_class, httpx.TimeoutException | httpcore.TimeoutException):
        assert isinstance(error, OutOfTimeError)
    else:
        assert isinstance(error, TurnScoreError)


TIMEOUT_SECONDS = 0.2
DRIPS = 1000
HEAD = b"HTTP/1.1 200 OK\r\nX-Filler: "
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


@contextmanager
def dripping_service(start):
    """Sends the start of an answer and then byte after byte of it, 100 times as long as the call may take.

    Fails if the caller listened to the end of it.
    """
    left, ended = threading.Event(), threading.Event()

    def drip(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(start)
            for _ in range(DRIPS):
                connection.sendall(b"x")
                if left.wait(TIMEOUT_SECONDS / 10):
                    return
            ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        is_over = ended.is_set()
        left.set()
        thread.join()
        assert not is_over


@pytest.mark.parametrize("start", [HEAD, BODY], ids=["headers", "body"])
@pytest.mark.parametrize("proxied", [False, True])
def test_an_answer_that_drips_in_over_a_socket_cannot_outlast_the_timeout(start, proxied, monkeypatch):
    with dripping_service(start) as url:
        if proxied:
            monkeypatch.setenv("HTTP_PROXY", url)
            url = "http://scores.test"
        with TurnScoreClient(url, timeout_seconds=TIMEOUT_SECONDS) as client, pytest.raises(DeadlineExceededError):
            client.models()


def test_a_request_that_is_never_read_cannot_outlast_the_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with TurnScoreClient(url, timeout_seconds=0.2) as client, pytest.raises(DeadlineExceededError):
            client.score(response="long " * 4_000_000)


PROXY = "http://proxy.test:8080"


PROXIES = [
    ({}, None),
    ({"HTTP_PROXY": PROXY}, (PROXY, None)),
    ({"HTTP_PROXY": "http://user:pa55@proxy.test:8080"}, (PROXY, (b"user", b"pa55"))),
    ({"HTTP_PROXY": PROXY, "NO_PROXY": "other.test,scores.test"}, None),
    ({"HTTP_PROXY": PROXY, "NO_PROXY": "other.test"}, (PROXY, None)),
]


@pytest.mark.parametrize(("settings", "found"), PROXIES)
def test_the_environment_names_the_proxy(settings, found, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    proxy = _proxy_to(httpx.URL("http://scores.test:3000"))
    assert (proxy and (f"http://{proxy.url.host.decode()}:{proxy.url.port}", proxy.auth)) == found


def test_a_proxy_of_an_unknown_kind_is_refused_when_the_client_is_made(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "ftp://proxy.test")
    with pytest.raises(ValueError, match="proxy"):
        TurnScoreClient("http://scores.test")

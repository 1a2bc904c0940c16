"""Answers and requests that move too slowly end with the call's own timeout."""

import socket
import threading
from contextlib import contextmanager, suppress

import httpx
import pytest
from turnscore_client import DeadlineExceededError, TurnScoreClient
from turnscore_client._http import _proxy_to

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


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, None),
        ({"HTTP_PROXY": PROXY}, (PROXY, None)),
        ({"HTTP_PROXY": "http://user:pa55@proxy.test:8080"}, (PROXY, (b"user", b"pa55"))),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "other.test,scores.test"}, None),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "other.test"}, (PROXY, None)),
    ],
)
def test_the_environment_names_the_proxy(settings, found, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    proxy = _proxy_to(httpx.URL("http://scores.test:3000"))
    told = proxy and (f"http://{proxy.url.host.decode()}:{proxy.url.port}", proxy.auth)
    assert told == found


def test_a_proxy_of_an_unknown_kind_is_refused_when_the_client_is_made(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "ftp://proxy.test")
    with pytest.raises(ValueError, match="proxy"):
        TurnScoreClient("http://scores.test")

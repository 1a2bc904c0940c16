"""A turnscore of this process for chatbots in real frameworks, and a server that keeps what a hosted tool is sent."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from turnscore_client import Scored
from turnscore_client.testing import MockTurnScore

ASKED, ANSWERED = "where is my landlady", "she snores in grimsby"
BAD, GOOD = "mumble mumble", "a better answer by far"
VALUES = {BAD: 0.1, GOOD: 0.9}
SLOW_SECONDS = 5.0
"""How long a slow service takes: far longer than any of these chatbots."""


@dataclass
class Service:
    """Where it is, what it was asked, and what became of the scores."""

    url: str
    mock: MockTurnScore
    told: list[Scored] = field(default_factory=list)

    def options(self, **more: Any) -> dict[str, Any]:
        """What a hook is made with."""
        return {"url": self.url, "on_scored": self.told.append, "timeout_seconds": 10.0, **more}

    @property
    def asked(self) -> list[Any]:
        """The requests' bodies."""
        return [request.body for request in self.mock.requests]


def _value_of(request: Any) -> dict[str, float]:
    return {"quality": VALUES.get(request.response, 0.7)}


def gone() -> Service:
    """One where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Service(f"http://127.0.0.1:{port}", MockTurnScore())


@contextmanager
def serve(seconds: float = 0.0, *, is_refusing: bool = False) -> Iterator[Service]:
    """One that answers after some seconds, or refuses everything."""
    mock, ended = MockTurnScore(scores=_value_of), threading.Event()
    if is_refusing:
        mock.fail_next("overloaded", retry_after_ms=60_000, times=10_000)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if seconds and ended.wait(seconds):
                return
            request = httpx.Request(
                "POST", f"http://turnscore.test{self.path}", headers=dict(self.headers), content=body
            )
            answer = mock.transport.handle_request(request)
            told = answer.read()
            self.send_response(answer.status_code)
            for name, value in {**dict(answer.headers), "content-length": str(len(told))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield Service(f"http://127.0.0.1:{server.server_port}", mock)
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Patience:
    """How long the chatbot was kept: `with patience: ...`."""

    def __enter__(self) -> "Patience":
        self._started_at = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started_at


@dataclass
class Captured:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Capture:
    """Where it is and what came. `answer` makes the JSON of each answer."""

    url: str = ""
    requests: list[Captured] = field(default_factory=list)
    answer: Callable[[Captured], Any] = lambda _: {}

    def bodies(self, method: str, path: str) -> list[Any]:
        """The bodies of what came there, in order."""
        return [each.body for each in self.requests if each.method == method and each.path.split("?")[0] == path]

    @property
    def everything(self) -> str:
        """All that came, to be searched."""
        return json.dumps([each.body for each in self.requests], default=str)


@contextmanager
def capturing(answer: Callable[[Captured], Any] = lambda _: {}) -> Iterator[Capture]:
    """The server, on a free port."""
    capture = Capture(answer=answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            captured = Captured(self.command, self.path, headers, _read(body))
            capture.requests.append(captured)
            told = json.dumps(capture.answer(captured)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    capture.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield capture
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _read(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode(errors="replace")

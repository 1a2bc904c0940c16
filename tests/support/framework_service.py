"""A turnscore of this process for chatbots in real frameworks, and a server that keeps what a hosted tool is sent."""

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from turnscore_client import Scored
from turnscore_client.testing import MockTurnScore

from support.plain_http import Handler, handled_by

ASKED, ANSWERED = "where is my landlady", "she snores in grimsby"
BAD, GOOD = "mumble mumble", "a better answer by far"
VALUES = {BAD: 0.1, GOOD: 0.9}
SLOW_SECONDS = 5.0  # how long a slow service takes: far longer than any of these chatbots


@dataclass
class Service:
    """Where it is, what it was asked, and what became of the scores."""

    url: str
    mock: MockTurnScore
    told: list[Scored] = field(default_factory=list)

    def options(self, **more):
        """What a hook is made with."""
        return {"url": self.url, "on_scored": self.told.append, "timeout_seconds": 10.0, **more}

    @property
    def asked(self):
        """The requests' bodies."""
        return [request.body for request in self.mock.requests]


def _value_of(request):
    return {"quality": VALUES.get(request.response, 0.7)}


def gone():
    """One where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Service(f"http://127.0.0.1:{port}", MockTurnScore())


@contextmanager
def serve(seconds=0.0, *, is_refusing=False):
    """One that answers after some seconds, or refuses everything."""
    mock, ended = MockTurnScore(scores=_value_of, thresholds={"quality": 0.5}), threading.Event()
    if is_refusing:
        mock.fail_next("overloaded", retry_after_ms=60_000, times=10_000)

    class Scores(Handler):
        def do_POST(self):
            body = self.body()
            if seconds and ended.wait(seconds):
                return
            url = f"http://turnscore.test{self.path}"
            told = mock.transport.handle_request(httpx.Request("POST", url, headers=dict(self.headers), content=body))
            self.answer(told.status_code, told.read(), **dict(told.headers))

    with handled_by(Scores) as url:
        try:
            yield Service(url, mock)
        finally:
            ended.set()


class Patience:
    """How long the chatbot was kept: `with patience: ...`."""

    def __enter__(self):
        self._started_at = time.perf_counter()
        return self

    def __exit__(self, *_):
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

    def bodies(self, method, path):
        """The bodies of what came there, in order."""
        return [each.body for each in self.requests if each.method == method and each.path.split("?")[0] == path]

    @property
    def everything(self):
        """All that came, to be searched."""
        return json.dumps([each.body for each in self.requests], default=str)


@contextmanager
def capturing(answer=lambda _: {}):
    """The server, on a free port."""
    capture = Capture(answer=answer)

    class Keeper(Handler):
        def keep(self):
            headers = {name.lower(): value for name, value in self.headers.items()}
            captured = Captured(self.command, self.path, headers, _read(self.body()))
            capture.requests.append(captured)
            self.answer(200, json.dumps(capture.answer(captured)).encode(), content_type="application/json")

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = keep  # noqa: N815

    with handled_by(Keeper) as capture.url:
        yield capture


def _read(body):
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode(errors="replace")

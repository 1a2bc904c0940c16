"""An HTTP server of this process that keeps what it is sent, in place of a hosted tool."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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

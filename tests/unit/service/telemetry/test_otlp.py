"""A collector's reply is bounded in bytes, packed or not."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
from turnscore_service.telemetry.otlp import MAX_REPLY_BYTES, _bounded_session

SENT_AT_MOST = 64 * MAX_REPLY_BYTES


@contextmanager
def collector(kind: str) -> Iterator[tuple[str, list[int]]]:
    """An address, and how many bytes of its reply were sent when it ended or its reader left."""
    sent = [0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            if kind == "short":
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")
                return
            packed = gzip.compress(bytes(SENT_AT_MOST)) if kind == "packed" else b""
            if packed:
                self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(packed)))
            self.end_headers()
            with suppress(OSError):
                if packed:
                    self.wfile.write(packed)
                while not packed and sent[0] < SENT_AT_MOST:
                    self.wfile.write(bytes(65536))
                    sent[0] += 65536

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", sent
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["endless", "packed"])
def test_a_reply_of_too_much_is_left_and_is_a_failed_export(kind: str):
    with collector(kind) as (url, sent), _bounded_session() as session:
        with pytest.raises(requests.exceptions.ConnectionError, match=f"more than {MAX_REPLY_BYTES} bytes"):
            session.post(url, data=b"spans", timeout=10)
        assert sent[0] < SENT_AT_MOST


def test_a_usual_reply_is_read():
    with collector("short") as (url, _), _bounded_session() as session:
        assert session.post(url, data=b"spans", timeout=10).content == b"ok"

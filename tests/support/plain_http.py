"""HTTP without TLS to services of this machine, and small servers that tests ask.

Of the calls: httpx would read the authorities, 27 ms of CPU for each call.

A machine may be slow: only what hangs takes longer than the timeout.
"""

import asyncio
import gzip
import json
import threading
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from support.conditions import in_a_thread

get = partial(httpx.get, verify=False, timeout=60)
post = partial(httpx.post, verify=False, timeout=60)


class Handler(BaseHTTPRequestHandler):
    """Reads a body, unpacked, and answers; says nothing of it."""

    protocol_version = "HTTP/1.1"

    def body(self):
        read = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(read) if self.headers.get("content-encoding") == "gzip" else read

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_): ...


@contextmanager
def handled_by(handler):
    """The URL of a server with that handler, in threads of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


_SCORE = {"value": 0.5, "percentile": 50.0, "details": {}, "model": "fed:1.0.0", "cached": False}
_SCORE["tokens"] = {"used": 1, "dropped": 0}
_TIMING = {"total": 1.0, "tokenize": 0.0, "queue": 0.0, "inference": 1.0}
SCORED = (200, {}, json.dumps({"request_id": "a", "scores": {"fed": _SCORE}, "timing_ms": _TIMING}).encode())


@asynccontextmanager
async def plain_server(behave):
    """Serves in this event loop; the port on 127.0.0.1.

    `behave` takes a path and a body, and returns status, headers and body; None closes the connection without a word.
    """

    async def serve(reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].partition("\r")[0] or 0)
                reply = await behave(head.split()[1], await reader.readexactly(length))
                if reply is None:
                    break
                status, headers, body = reply
                told = {"Content-Length": str(len(body)), **headers}
                lines = [f"HTTP/1.1 {status} ?", *(f"{name}: {value}" for name, value in told.items()), "", ""]
                writer.write("\r\n".join(lines).encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the caller left, or the test ends
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def plain_server_in_a_thread(behave):
    """The same for tests that run a program against it."""
    return in_a_thread(plain_server(behave))

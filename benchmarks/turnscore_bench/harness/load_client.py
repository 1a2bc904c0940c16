"""The load generator, in a process of its own: raw keep-alive connections and bodies made beforehand, so that the
cores it shares with the server are the server's. Prints what it measured as JSON.

    python -m turnscore_bench.harness.load_client JOB.json
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from turnscore_load.raw_http import RawConnection, RawReply, open_connection, post_bytes

_REFUSED = (429, 503)
REFUSED_WAIT_MS = 50
"""Between a refusal that names no time and the next attempt; chosen."""


@dataclass(kw_only=True)
class Tally:
    """What became of the requests."""

    keeps_replies: bool = False
    latencies_ms: list[float] = field(default_factory=list)
    answered: int = 0
    refused: int = 0
    """Replies that said to come again; the same request was then sent again."""
    failed_requests: int = 0
    failed_items: int = 0
    """Errors inside the replies that are counted as answered."""
    first_error: str = ""
    replies: list[str] = field(default_factory=list)

    def count(self, status: int, body: bytes) -> None:
        """Counts a reply; keeps the first one that is an error and no refusal."""
        failed_items = body.count(b'"error":') if status == 200 else 0
        self.answered += status == 200
        self.refused += status in _REFUSED
        self.failed_requests += status != 200 and status not in _REFUSED
        self.failed_items += failed_items
        if (failed_items or status not in (200, *_REFUSED)) and not self.first_error:
            self.first_error = body[:500].decode(errors="replace")
        if self.keeps_replies:
            self.replies.append(body.decode())


class Caller:
    """One connection that sends the next request as soon as the last is answered."""

    def __init__(self, connection: RawConnection, requests: "deque[bytes]", tally: Tally) -> None:
        self._connection = connection
        self._requests = requests
        self._tally = tally
        self._current = b""
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Sends the next request, or ends where there is none."""
        if not self._requests:
            self.done.set_result(None)
            return
        self._current = self._requests.popleft()
        self._send()

    def _take(self, reply: RawReply) -> None:
        if not reply.status:
            self.done.set_exception(ConnectionError(reply.why))
            return
        self._tally.count(reply.status, reply.body)
        if reply.status in _REFUSED:  # a well-behaved caller comes back when the service asks it to
            asyncio.get_running_loop().call_later(_retry_after_ms(reply.body) / 1000, self._send)
            return
        self._tally.latencies_ms.append(1000 * (time.perf_counter() - self._sent_at))
        self.start()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._connection.send(self._current, self._take)


def _retry_after_ms(body: bytes) -> float:
    try:
        return float(json.loads(body)["error"]["retry_after_ms"])
    except (ValueError, KeyError, TypeError):
        return REFUSED_WAIT_MS


async def drive(port: int, path: str, bodies: Iterable[str], clients: int, keeps_replies: bool) -> dict[str, Any]:
    """Sends all bodies over that many connections; raises ConnectionError where the server hangs up."""
    requests, tally = (
        deque(post_bytes(path, port, body.encode()) for body in bodies),
        Tally(keeps_replies=keeps_replies),
    )
    callers = [Caller(await open_connection(port), requests, tally) for _ in range(clients)]
    cpu, started_at = time.process_time(), time.perf_counter()
    for caller in callers:
        caller.start()
    await asyncio.gather(*(caller.done for caller in callers))
    wall, cpu = time.perf_counter() - started_at, time.process_time() - cpu
    return {"wall_seconds": wall, "client_cpu_seconds": cpu, **vars(tally)}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(uvloop.run(drive(**job))))

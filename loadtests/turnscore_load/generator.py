"""Generator: closed-loop and open-loop calls to `POST /v1/score` from one event loop. Counts; judges nothing."""

import asyncio
import json
from collections.abc import Iterator, Sequence

from turnscore_load.address import LOOPBACK
from turnscore_load.answers import judge_http
from turnscore_load.calls import CallRecord, Stage
from turnscore_load.raw_http import RawConnection, RawReply, open_connection, post_bytes
from turnscore_load.traffic import Item, Traffic

MAX_CONNECTIONS = 900
"""Below the usual limit of 1,024 open files. Further calls wait, and their time counts from when they were due."""
_TICK_SECONDS = 0.005
_PATIENCE_SECONDS = 5.0
"""How long after its deadline a call counts as not answered at all. Chosen."""
_FRESH_SECONDS = 3.0
"""A connection idle for longer is not used again: servers close theirs, uvicorn after 5 s."""


class Generator:
    """Makes calls with a deadline to the service on a port. Belongs to one event loop."""

    def __init__(self, port: int, deadline_ms: int, address: str = LOOPBACK) -> None:
        """Calls come from that address of this machine."""
        self._port = port
        self._address = address
        self._patience_seconds = deadline_ms / 1000 + _PATIENCE_SECONDS
        self._idle: list[tuple[float, RawConnection]] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._loop = asyncio.get_running_loop()

    def request(self, item: Item) -> bytes:
        """The item as it goes over a connection; made beforehand, so that sending is all that is left."""
        return post_bytes("/v1/score", self._port, json.dumps(item).encode())

    def requests(self, traffic: Traffic) -> Iterator[bytes]:
        """What the traffic asks, without end."""
        while True:
            yield self.request(traffic.next_ask().item)

    async def run_closed(
        self, clients: int, seconds: float, requests: Iterator[bytes], most_obedient_seconds: float = 1.0
    ) -> Stage:
        """That many clients for that long, each calling again as soon as it is answered.

        A refused one waits as the service asks, but not longer than `most_obedient_seconds`.
        """
        began_at = self._loop.time()
        calls: list[CallRecord] = []

        async def one_client() -> None:
            while (now := self._loop.time()) < began_at + seconds:
                call = await self._call(next(requests), now)
                calls.append(call)
                if call.answer.outcome == "failed":
                    await asyncio.sleep(0.1)  # so that a dead service is not hammered
                elif call.answer.retry_after_seconds is not None:
                    await asyncio.sleep(min(call.answer.retry_after_seconds, most_obedient_seconds))

        await asyncio.gather(*(one_client() for _ in range(clients)))
        return Stage(calls, began_at, seconds)

    async def run_open(self, requests: Sequence[bytes], per_second: float) -> Stage:
        """All requests at an even rate, whatever becomes of those before; returns when the last one is settled."""
        began_at = self._loop.time()
        tasks: list[asyncio.Task[CallRecord]] = []
        while len(tasks) < len(requests):
            due = min(len(requests), int((self._loop.time() - began_at) * per_second) + 1)
            tasks += [
                self._loop.create_task(self._call(requests[number], began_at + number / per_second))
                for number in range(len(tasks), due)
            ]
            await asyncio.sleep(_TICK_SECONDS)
        return Stage([await task for task in tasks], began_at, len(requests) / per_second)

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _call(self, request: bytes, due_at: float) -> CallRecord:
        async with self._room:
            sent_at = self._loop.time()
            if sent_at - due_at < self._patience_seconds:
                reply = await self._exchange(request)
            else:
                reply = RawReply(status=0, why="not sent: every connection was waiting for an answer")
        answer = judge_http(reply.status, reply.retry_after, reply.body, reply.why)
        return CallRecord(due_at=due_at, sent_at=sent_at, done_at=self._loop.time(), answer=answer)

    async def _exchange(self, request: bytes) -> RawReply:
        try:
            connection = self._take_idle() or await open_connection(self._port, self._address)
        except OSError as error:
            return RawReply(status=0, why=f"no connection: {type(error).__name__}")
        replied: asyncio.Future[RawReply] = self._loop.create_future()
        patience = self._loop.call_later(self._patience_seconds, connection.abort, "no answer")
        connection.send(request, replied.set_result)
        reply = await replied
        patience.cancel()
        if connection.is_open:
            self._idle.append((self._loop.time(), connection))
        return reply

    def _take_idle(self) -> RawConnection | None:
        """The connection used last, if it is open and was used lately; the others are older still."""
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_open and self._loop.time() - since < _FRESH_SECONDS:
                return connection
            connection.close()
        return None

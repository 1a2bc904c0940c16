"""The load generator: closed and open loops over HTTP and gRPC from one event loop. Counts; judges no run.

    python -m turnscore_load.generator JOB.json

runs `run_job` in a process of its own and prints what it returns as JSON.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, cast

import uvloop

from turnscore_load.answers import CallAnswer, CallRecord, Stage, judge_fields, judge_foreign, judge_grpc, judge_http
from turnscore_load.machine import LOOPBACK
from turnscore_load.processes import Process, python_path, run_module, run_quietly
from turnscore_load.traffic import Item, Traffic

Api = Literal["http", "foreign", "grpc"]  # `foreign` is HTTP to a server that is not ours.

# Below the usual limit of 1,024 open files. Further calls wait, and their time counts from when they were due.
MAX_CONNECTIONS = 900
# In bodies of a job that is `numbered`: replaced by the request's number, so that no turn comes twice.
NUMBER_MARK = b"0@0@0@0@"
_PATIENCE_SECONDS = 5.0  # how long after its deadline a call counts as not answered at all; chosen
_FRESH_SECONDS = 3.0  # A connection idle for longer is not used again: servers close theirs, uvicorn after 5 s.
_AFTER_FAILURE_SECONDS = 0.1  # so that callers do not spin against a dead service; chosen
_END_OF_HEAD = b"\r\n\r\n"


def post_bytes(path: str, port: int, body: bytes, more: str = "") -> bytes:
    """A POST of JSON as it goes over the connection; `more` are further header lines, each with its end."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nContent-Type: application/json\r\n"
        f"{more}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class HttpConnection(asyncio.Protocol):
    """One kept connection that costs the sender next to nothing, so that load and service can share two cores.

    Requests are those of `post_bytes`. What it reads is only what turnscore sends: HTTP/1.1 with a Content-Length.
    """

    def __init__(self, judge: Callable[[int, str | None, bytes, str], CallAnswer] = judge_http) -> None:
        self._judge = judge
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._replied: asyncio.Future[tuple[int, str | None, bytes, str]] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def call(self, request: bytes) -> tuple[CallAnswer, bytes]:
        assert self._replied is None, "one call at a time"
        replied = self._replied = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._finish(0, why="the connection was closed")
        else:
            self._transport.write(request)
        reply = await replied
        return self._judge(*reply), reply[2]

    def abort(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._finish(0, why=why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio's

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish(0, why=f"the connection was lost: {type(exc).__name__ if exc else 'closed'}")

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(_END_OF_HEAD)
        if end < 0:
            return
        try:
            first, *rest = bytes(self._received[:end]).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
            status, length = int(first.split(" ", 2)[1]), int(headers["content-length"])
        except (ValueError, KeyError, IndexError):
            self.abort("the reply was not HTTP with a length")
            return
        begin = end + len(_END_OF_HEAD)
        if len(self._received) < begin + length:
            return
        body = bytes(self._received[begin : begin + length])
        self._received.clear()
        if headers.get("connection", "").lower() == "close" and self._transport is not None:
            self._transport.close()
        self._finish(status, headers.get("retry-after"), body)

    def _finish(self, status: int, retry_after: str | None = None, body: bytes = b"", why: str = "") -> None:
        replied, self._replied = self._replied, None
        if replied is not None and not replied.done():
            replied.set_result((status, retry_after, body, why))


class GrpcConnection:
    """One channel of its own; requests and replies are serialized messages."""

    def __init__(self, port: int, path: str) -> None:
        import grpc

        options = [("grpc.use_local_subchannel_pool", 1)]  # else all channels would share a connection
        self.channel = grpc.aio.insecure_channel(f"{LOOPBACK}:{port}", options=options)
        self._call: Any = self.channel.unary_unary(path)
        self._calling: Any = None
        self.is_open = True

    async def call(self, request: bytes) -> tuple[CallAnswer, bytes]:
        import grpc
        from turnscore_wire.v1 import to_fields
        from turnscore_wire.v1.turnscore_pb2 import ScoreReply

        self._calling = self._call(request)
        try:
            reply = await self._calling
        except grpc.aio.AioRpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            return judge_grpc(error.code().name, trailers.get("grpc-retry-pushback-ms")), b""
        except asyncio.CancelledError:
            if self.is_open:
                raise
            return CallAnswer(outcome="failed", why="no answer"), b""
        message = ScoreReply.FromString(reply)
        fields = to_fields(message) if message.errors else {"scores": bool(message.scores)}
        return judge_fields(fields, "OK"), reply

    def abort(self, why: str) -> None:
        self.is_open = False
        if self._calling is not None:
            self._calling.cancel()
        self._closing = asyncio.ensure_future(self.channel.close())


Connection = HttpConnection | GrpcConnection
Connect = Callable[[], Awaitable[Connection]]


def connect_to(port: int, api: Api = "http", path: str = "/v1/score", address: str = LOOPBACK) -> Connect:
    """Opens connections to a service on this machine, from that address of the machine. Raises OSError."""

    async def http() -> Connection:
        judge = judge_foreign if api == "foreign" else judge_http
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(lambda: HttpConnection(judge), LOOPBACK, port, local_addr=(address, 0)))[1]

    async def grpc() -> Connection:
        connection = GrpcConnection(port, path)
        await connection.channel.channel_ready()
        return connection

    return {"http": http, "foreign": http, "grpc": grpc}[api]


class Generator:
    """Makes calls with a deadline. Belongs to one event loop."""

    def __init__(self, connect: Connect, deadline_ms: float, *, keeps_replies: bool = False) -> None:
        self._connect = connect
        self._patience_seconds = deadline_ms / 1000 + _PATIENCE_SECONDS
        self._keeps_replies = keeps_replies
        self._idle: list[tuple[float, Connection]] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._loop = asyncio.get_running_loop()

    async def run_closed(
        self,
        clients: int,
        seconds: float,
        requests: Iterator[Any],
        most_obedient_seconds: float = 1.0,
        *,
        comes_back: bool = False,
    ) -> Stage:
        """That many clients for that long, or while there are requests; each calls again once it is answered.

        A refused one waits as the service asks, but at most `most_obedient_seconds`; with `comes_back` it then sends
        the same request again.
        """
        began_at = self._loop.time()
        calls: list[CallRecord] = []

        async def one_client() -> None:
            while (now := self._loop.time()) < began_at + seconds and (request := next(requests, None)) is not None:
                calls.append(await self._call(request, now))
                while (wait := calls[-1].answer.retry_after_seconds) is not None:
                    await asyncio.sleep(min(wait, most_obedient_seconds))
                    if not comes_back:
                        break
                    calls.append(await self._call(request, self._loop.time()))
                if calls[-1].answer.outcome == "failed":
                    await asyncio.sleep(_AFTER_FAILURE_SECONDS)

        await asyncio.gather(*(one_client() for _ in range(clients)))
        return Stage(calls, began_at, min(seconds, self._loop.time() - began_at))

    async def run_open(
        self, requests: Iterable[Any], per_second: float, *, chance: random.Random | None = None
    ) -> Stage:
        """Requests at an even rate, whatever becomes of those before; returns when the last one is settled.

        With `chance` the gaps between them are exponential (a Poisson process).
        """
        began_at = due_at = self._loop.time()
        tasks: list[asyncio.Task[CallRecord]] = []
        for request in requests:
            while (wait := due_at - self._loop.time()) > 0:
                await asyncio.sleep(wait)
            tasks.append(self._loop.create_task(self._call(request, due_at)))
            due_at = due_at + chance.expovariate(per_second) if chance else began_at + len(tasks) / per_second
            if len(tasks) % 64 == 0:
                await asyncio.sleep(0)  # what is due is sent, however far behind
        return Stage([await task for task in tasks], began_at, due_at - began_at)

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].abort("closed")

    async def _call(self, request: Any, due_at: float) -> CallRecord:
        body = b""
        async with self._room:
            sent_at = self._loop.time()
            if sent_at - due_at < self._patience_seconds:
                answer, body = await self._exchange(request)
            else:
                answer = CallAnswer(outcome="failed", why="not sent: every connection was waiting for an answer")
        body = body if self._keeps_replies else b""
        return CallRecord(due_at=due_at, sent_at=sent_at, done_at=self._loop.time(), answer=answer, body=body)

    async def _exchange(self, request: Any) -> tuple[CallAnswer, bytes]:
        try:
            connection = self._take_idle() or await self._connect()
        except OSError as error:
            return CallAnswer(outcome="failed", why=f"no connection: {type(error).__name__}"), b""
        patience = self._loop.call_later(self._patience_seconds, connection.abort, "no answer")
        answer, body = await connection.call(request)
        patience.cancel()
        if connection.is_open:
            self._idle.append((self._loop.time(), connection))
        return answer, body

    def _take_idle(self) -> Connection | None:
        """The connection used last, if it is open and was used lately; the others are older still."""
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_open and self._loop.time() - since < _FRESH_SECONDS:
                return connection
            connection.abort("idle")
        return None


def http_generator(port: int, deadline_ms: float, address: str = LOOPBACK) -> Generator:
    """Of calls to `POST /v1/score`."""
    return Generator(connect_to(port, address=address), deadline_ms)


def score_request(port: int, item: Item) -> bytes:
    """The item as it goes over a connection; made beforehand, so that sending is all that is left."""
    return post_bytes("/v1/score", port, json.dumps(item).encode())


def score_requests(port: int, traffic: Traffic) -> Iterator[bytes]:
    while True:
        yield score_request(port, traffic.next_ask().item)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Bodies in JSON to send by so many clients in a closed loop, or `per_second` at random in an open one.

    `numbered`: the bodies come again and again for `seconds`, the mark in each replaced by a number.
    """

    port: int
    path: str
    bodies: list[str]
    api: Api = "http"
    clients: int = 1
    per_second: float = 0.0
    seconds: float = 1e9
    numbered: bool = False
    obedient_seconds: float = 60.0
    deadline_ms: float = 600_000.0
    keeps_replies: bool = False


def run_elsewhere(job: Job, folder: Path) -> dict[str, Any]:
    """What `run_job` returns, from a process of its own. Raises StartError, too where the service hung up."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "job.json"
    file.write_text(json.dumps(vars(job)))
    done: dict[str, Any] = json.loads(run_quietly(run_module("turnscore_load.generator", file), python_path()))
    return done


def drive(process: Process, job: Job, settle_seconds: float = 0.0) -> dict[str, Any]:
    """`run_elsewhere`, and the CPU seconds of a paused server that runs only as long, and `settle_seconds` more."""
    process.resume()
    try:
        before = process.cpu_seconds()
        done = run_elsewhere(job, process.folder)
        time.sleep(settle_seconds)  # what a server does after its answer is not reported
        return {**done, "cpu_seconds": process.cpu_seconds() - before}
    finally:
        process.pause()


async def run_job(job: Job) -> dict[str, Any]:
    """Wall and CPU seconds, latencies in milliseconds of what was answered or failed, counts, and replies if kept.

    Raises ConnectionError where the server hangs up on a closed loop that is to be answered in full.
    """
    requests = _prepare(job)
    generator = Generator(connect_to(job.port, job.api, job.path), job.deadline_ms, keeps_replies=job.keeps_replies)
    cpu, began_at = time.process_time(), time.perf_counter()
    if job.per_second:
        stage = await generator.run_open(list(requests), job.per_second, chance=random.Random(0))
    else:
        stage = await generator.run_closed(
            job.clients, job.seconds, requests, job.obedient_seconds, comes_back=not job.numbered
        )
    wall, cpu = time.perf_counter() - began_at, time.process_time() - cpu
    generator.close()
    counts = Counter(call.answer.outcome for call in stage.calls)
    failures = stage.failures()
    if lost := [why for why in failures if "connection" in why]:
        raise ConnectionError(f"{failures[lost[0]]} requests: {lost[0]}")
    settled = [call for call in stage.calls if call.answer.outcome != "refused"]
    return {
        "wall_seconds": wall,
        "client_cpu_seconds": cpu,
        "latencies_ms": [call.took_ms for call in settled],
        "answered": counts["answered"],
        "refused": counts["refused"],
        "failed": counts["failed"] + counts["expired"],
        "first_error": next(iter(failures), "a deadline passed" if counts["expired"] else ""),
        "replies": [_read_reply(job.api, call.body) for call in settled] if job.keeps_replies else [],
    }


def _prepare(job: Job) -> Iterator[Any]:
    """Made before the clock starts, so that sending is all that is left."""
    if job.numbered:
        bodies = [body.encode() for body in job.bodies]
        return (
            post_bytes(job.path, job.port, bodies[number % len(bodies)].replace(NUMBER_MARK, b"%08d" % number))
            for number in count()
        )
    if job.api == "grpc":
        from google.protobuf.json_format import Parse
        from turnscore_wire.v1.turnscore_pb2 import ScoreRequest

        return iter([Parse(body, ScoreRequest()).SerializeToString() for body in job.bodies])
    return iter([post_bytes(job.path, job.port, body.encode()) for body in job.bodies])


def _read_reply(api: Api, body: bytes) -> str:
    if api != "grpc":
        return body.decode()
    from google.protobuf.json_format import MessageToJson
    from turnscore_wire.v1.turnscore_pb2 import ScoreReply

    return str(MessageToJson(ScoreReply.FromString(body)))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(run_job(Job(**json.loads(Path(sys.argv[1]).read_text()))))))

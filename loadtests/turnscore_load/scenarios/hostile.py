"""Does what one hostile caller could, bounded and on loopback only, and measures what the service's others notice."""

import asyncio
import http.client
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import typer
import uvloop
from typer import Option
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from turnscore_load.answers import Stage
from turnscore_load.extremes import Extreme, extremes
from turnscore_load.generator import NUMBER_MARK, Job, http_generator, run_elsewhere, score_request
from turnscore_load.machine import LOOPBACK
from turnscore_load.results import Check
from turnscore_load.scenario import TargetScenario
from turnscore_load.services import LoadedService, read_metrics
from turnscore_load.traffic import Traffic, TrafficSettings

NEIGHBOUR = "127.0.0.2"  # another address than the flood's: all of 127.0.0.0/8 is this machine's on Linux
CONNECTIONS = 64
TURNS_PER_SECOND = 4.0
SILENT_SOCKETS = 300
HEAD_BYTES = 8 * 1024 * 1024
MESSAGE_CHARS = 12 * 1024 * 1024
_BODIES = 8
_DEADLINE_MS = 10_000
_SETTLE_SECONDS = 2.0
# In which silent connections are to be closed: twice what `TURNSCORE_HTTP__HEADER_TIMEOUT_SECONDS` is by default.
_PATIENCE_SECONDS = 20.0
# How long, in CPU time, the service's loop may be silent: what docs/security.md promises.
SILENCE_SECONDS = 0.05
_MOST_TIMES = 3  # a machine has moments in which everything waits: the middle of three is the service's
_CLOSE_CODE_BASE = 4000  # a conversation that the service ends closes with this and the error's HTTP status
LEAST_ANSWERED = 0.99
# How many times longer than the longest control a health check may take: the service has several threads. Chosen.
NOISE = 2.0
# Of the service's memory in one attack, buffers included, of which some stay for the next request. Chosen.
MOST_GROWTH_BYTES = 64 * 1024 * 1024


@dataclass(kw_only=True)
class Hostile(TargetScenario[tuple[float, list[Check]]]):
    """Send every form of request at its extremes, silent connections, endless headers, large frames, and two floods."""

    seconds: Annotated[float, Option(min=1, max=120, help="Seconds of each flood.")] = 30.0
    scorer: Annotated[str, Option(help="The scorer that is flooded.")] = "engagement"

    keeps_figures = False

    def measure(self) -> tuple[float, list[Check]]:
        with self.target() as service:
            control = silence_seconds()
            typer.echo("every form of request at its extremes, connections, headers, frames")
            checks = list(attack_all(service, control))
            for kind in ("fresh", "known"):
                typer.echo(f"single turns during a flood of {kind} batches")
                checks = [*uvloop.run(self._flood(service.port, kind)), *checks]
        return control, checks

    def report(self, found: tuple[float, list[Check]]) -> Iterator[str]:
        yield f"On this machine 50 ms of CPU time took up to {1000 * found[0]:.0f} ms."

    def checks(self, found: tuple[float, list[Check]]) -> list[Check]:
        return found[1]

    async def _flood(self, port: int, kind: str) -> list[Check]:
        """Single turns for so many seconds alone, and as long during 64 connections of full batches of that kind."""
        traffic = Traffic(TrafficSettings(seed=len(kind), scorers=(self.scorer,), deadline_ms=_DEADLINE_MS))
        generator = http_generator(port, _DEADLINE_MS, NEIGHBOUR)
        bodies = batches(self.scorer, fresh=kind == "fresh")

        async def single_turns() -> Stage:
            count = int(self.seconds * TURNS_PER_SECOND)
            requests = [score_request(port, traffic.next_ask().item) for _ in range(count)]
            return await generator.run_open(requests, TURNS_PER_SECOND)

        await single_turns()
        quiet = await single_turns()
        alone = await asyncio.to_thread(known_batch_seconds, port, bodies[0]) if kind == "known" else 0.0
        before = batch_buckets(port, self.scorer)
        job = Job(
            port=port, path="/v1/score_batch", bodies=bodies, api="foreign", clients=CONNECTIONS, numbered=True,
            seconds=self.seconds + 2 * _SETTLE_SECONDS, obedient_seconds=0.0, deadline_ms=_DEADLINE_MS,
        )  # fmt: skip
        flooding = asyncio.create_task(asyncio.to_thread(run_elsewhere, job, self.reports))
        await asyncio.sleep(_SETTLE_SECONDS)
        flooded = await single_turns()
        done = await flooding
        generator.close()
        counts = {edge: below - before.get(edge, 0.0) for edge, below in batch_buckets(port, self.scorer).items()}
        total = max(counts.values(), default=0.0)
        longest = next((edge for edge, below in sorted(counts.items()) if total and below >= total), 0.0)
        outcomes = {name: done[name] for name in ("answered", "refused", "failed")}
        # A batch is what the neighbour may find before it: of fresh turns the longest run of the model, of known ones,
        # which need none, a whole request of 256 turns, asked alone.
        bound = 2 * quiet.took_ms(99, "answered") + 1000 * (alone or longest)
        calls, answered = flooded.calls, flooded.count("answered")
        in_time = sum(call.answer.outcome == "answered" and call.took_ms <= bound for call in calls)
        quiet_ms, flooded_ms = (
            f"p50 {stage.took_ms(50, 'answered'):.0f}, p99 {stage.took_ms(99, 'answered'):.0f} ms"
            for stage in (quiet, flooded)
        )
        least = LEAST_ANSWERED * max(1, len(calls))
        claim = f"single turns during {CONNECTIONS} connections of {kind} full batches are answered"
        times = f"{in_time} of {len(calls)}; quiet {quiet_ms}, flooded {flooded_ms}"
        return [
            Check(claim, f"{answered} of {len(calls)}; the flood: {dict(outcomes)}", answered >= least),
            Check(f"and within twice their quiet p99 plus a batch, {bound:.0f} ms", times, in_time >= least),
        ]


def silence_seconds() -> float:
    """The longest that so much CPU time takes on this machine at this moment: on a busy one many times as long."""
    longest = 0.0
    for _ in range(40):
        began_at, cpu = time.monotonic(), time.thread_time()
        while time.thread_time() - cpu < SILENCE_SECONDS:
            pass
        longest = max(longest, time.monotonic() - began_at)
    return longest


def attack_all(service: LoadedService, control_seconds: float) -> Iterator[Check]:
    """Every attack, one after the other. One during which a health check waited long is done up to three times."""
    port = service.port
    attacks: dict[str, Callable[[], tuple[str, bool]]] = {
        **{each.name: lambda each=each: ask(port, each) for each in extremes()},  # type: ignore[misc]
        f"{SILENT_SOCKETS} silent connections": lambda: stay_silent(port),
        f"a request with {HEAD_BYTES // 2**20} MiB of headers": lambda: send_head(port),
        f"a WebSocket message of {MESSAGE_CHARS // 2**20} MiB, deflated": lambda: send_message(port),
    }
    for name, attack in attacks.items():
        before, waits, is_right = service.rss_bytes(), list[float](), True
        while is_right and (not waits or (len(waits) < _MOST_TIMES and max(waits) > SILENCE_SECONDS)):
            with health_checks(port) as took:
                outcome, is_right = attack()
            waits.append(max(took, default=0.0))
        grown, most = service.rss_bytes() - before, NOISE * control_seconds
        yield Check(
            f"{name}: health checks within {1000 * most:.0f} ms, memory within {MOST_GROWTH_BYTES // 2**20} MiB",
            f"{outcome}; {', '.join(f'{1000 * each:.0f}' for each in waits)} ms; {grown / 2**20:+.0f} MiB",
            is_right and statistics.median(waits) <= most and grown <= MOST_GROWTH_BYTES,
        )


@contextmanager
def health_checks(port: int) -> Iterator[list[float]]:
    """The seconds that each health check takes over one connection while the block runs; infinite if one fails."""
    took: list[float] = []
    is_over = threading.Event()

    def check() -> None:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60, source_address=(NEIGHBOUR, 0))
        while not is_over.wait(0.02):
            began_at = time.monotonic()
            try:
                connection.request("GET", "/livez")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                took.append(float("inf"))
                return
            took.append(time.monotonic() - began_at)
        connection.close()

    thread = threading.Thread(target=check, name="health checks", daemon=True)
    thread.start()
    try:
        yield took
    finally:
        is_over.set()
        thread.join()


def ask(port: int, extreme: Extreme) -> tuple[str, bool]:
    """Its status; right is an answer, or a refusal where that is due."""
    if extreme.call == "conversations":
        status = open_conversation(port, extreme)
    else:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
        try:
            connection.request("POST", f"/v1/{extreme.call}", extreme.body, {"content-type": "application/json"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__, False
        finally:
            connection.close()
    return str(status), status in (200, 504) if extreme.is_legal else 400 <= status < 500


@contextmanager
def conversation(port: int, first_message: str) -> Iterator[Any]:
    """The WebSocket of one that begins so."""
    with connect(f"ws://{LOOPBACK}:{port}/v1/conversations", close_timeout=5) as opened:
        opened.send(first_message)
        yield opened


def open_conversation(port: int, extreme: Extreme) -> int:
    """The status of a turn said in a conversation so opened, as HTTP has it, or of what ended it; 0 where none came."""
    try:
        with conversation(port, extreme.body.decode()) as opened:
            opened.recv(30)
            opened.send('{"turn": {"speaker": "system", "text": "ok"}}')
            return 200 if "scored" in json.loads(opened.recv(30)) else 504
    except ConnectionClosed as error:
        return error.rcvd.code - _CLOSE_CODE_BASE if error.rcvd is not None else 0
    except (OSError, TimeoutError):
        return 0


def stay_silent(port: int) -> tuple[str, bool]:
    """How many connections that never say anything are closed in the time there is."""
    opened = [socket.create_connection((LOOPBACK, port)) for _ in range(SILENT_SOCKETS)]
    end = time.monotonic() + _PATIENCE_SECONDS
    closed = 0
    for each in opened:
        each.settimeout(max(0.01, end - time.monotonic()))
        with suppress(TimeoutError):
            while each.recv(4096):
                pass
            closed += 1
        each.close()
    return f"{closed} closed", closed == SILENT_SOCKETS


def send_head(port: int) -> tuple[str, bool]:
    """What answers headers without end."""
    line = b"x-filler: " + b"a" * 8_000 + b"\r\n"
    with socket.create_connection((LOOPBACK, port), timeout=30) as connection:
        reply = b""
        with suppress(OSError):
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: a\r\n")
            for _ in range(HEAD_BYTES // len(line)):
                connection.sendall(line)
            connection.sendall(b"\r\n")
        with suppress(OSError):
            reply = connection.recv(4096)
    status = reply[9:12].decode("latin-1") or "closed"
    return status, status in ("431", "closed")


def send_message(port: int) -> tuple[str, bool]:
    """How a conversation ends in which a small frame holds a large message."""
    message = '{"open": {"context": [{"speaker": "user", "text": "' + "a" * MESSAGE_CHARS + '"}]}}'
    try:
        with conversation(port, message) as opened:
            while True:
                opened.recv(30)
    except ConnectionClosed as error:
        code = error.rcvd.code if error.rcvd is not None else 0
        return f"closed with {code}", code in (1009, 4413)
    except (OSError, TimeoutError) as error:
        return type(error).__name__, False


def batches(scorer: str, *, fresh: bool) -> list[str]:
    """Full batches; no turn of a fresh one was asked before, a known one always has the same turns."""
    traffic = Traffic(TrafficSettings(scorers=(scorer,), deadline_ms=_DEADLINE_MS))
    mark = NUMBER_MARK.decode() if fresh else "known"
    made = []
    for _ in range(_BODIES if fresh else 1):
        items = [traffic.next_ask().item for _ in range(256)]  # what `TURNSCORE_LIMITS__MAX_ITEMS` allows by default
        made.append(json.dumps({"items": [{**each, "response": f"{mark} {each['response']}"} for each in items]}))
    return made


def known_batch_seconds(port: int, body: str) -> float:
    """How long a batch takes of which every turn is known, while there are no other requests: the median of five."""
    took: list[float] = []
    headers: Any = {"content-type": "application/json"}
    end = time.monotonic() + 60.0
    while len(took) < 6:
        began_at = time.monotonic()
        reply = httpx.post(f"http://{LOOPBACK}:{port}/v1/score_batch", content=body, headers=headers, timeout=60)
        if reply.status_code == 429 and began_at < end:
            time.sleep(1)  # the flood before is still being computed
            continue
        reply.raise_for_status()
        took.append(time.monotonic() - began_at)
    return statistics.median(took[1:])


def batch_buckets(port: int, scorer: str) -> dict[float, float]:
    """The scorer's batches so far by their seconds: how many took at most so long."""
    return {
        float(sample.labels["le"]): sample.value
        for sample in read_metrics(port)
        if sample.name == "turnscore_inference_seconds_bucket" and sample.labels["scorer"] == scorer
    }

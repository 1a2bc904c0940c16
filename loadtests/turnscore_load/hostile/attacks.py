"""Attacks: what one caller can send to a service on this machine, and what the others notice of it. Judges nothing."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from turnscore_load.address import LOOPBACK
from turnscore_load.hostile.extremes import Extreme, extremes
from turnscore_load.hostile.heartbeat import Heartbeat

SILENT_SOCKETS = 300
HEAD_BYTES = 8 * 1024 * 1024
MESSAGE_CHARS = 12 * 1024 * 1024
_PATIENCE_SECONDS = 20.0
"""In which silent connections are to be closed: twice what `TURNSCORE_HTTP__HEADER_TIMEOUT_SECONDS` is by default."""
SILENCE_SECONDS = 0.05
"""How long, in CPU time, the service's loop may be silent: what docs/security.md promises."""
_CONTROLS = 40
_MOST_TIMES = 3
"""A machine has moments in which everything waits: the middle of three is the service's."""
_CLOSE_CODE_BASE = 4000
"""A conversation that the service ends closes with this and the error's HTTP status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack: what came of it, whether that is as it should be, and what it cost the service and the others."""

    name: str
    outcome: str
    is_right: bool
    waits_seconds: Sequence[float]
    """The longest that the health check took meanwhile, each time."""
    grown_bytes: int

    @property
    def waited_seconds(self) -> float:
        """The middle of the waits."""
        return median(self.waits_seconds)


def silence_seconds() -> float:
    """The longest that so much CPU time takes on this machine at this moment: on a busy one many times as long."""
    longest = 0.0
    for _ in range(_CONTROLS):
        began_at, cpu = time.monotonic(), time.thread_time()
        while time.thread_time() - cpu < SILENCE_SECONDS:
            pass
        longest = max(longest, time.monotonic() - began_at)
    return longest


def attack_all(port: int, processes: Sequence[psutil.Process]) -> list[Attack]:
    """Every attack, one after the other. One beside which a health check waited long is done again, and once more."""

    def watch(name: str, attack: Callable[[], tuple[str, bool]]) -> Attack:
        before, waits = _memory(processes), list[float]()
        while not waits or (len(waits) < _MOST_TIMES and max(waits) > SILENCE_SECONDS):
            with Heartbeat(port) as heartbeat:
                outcome, is_right = attack()
            waits.append(heartbeat.longest_seconds)
            if not is_right:
                break
        grown_bytes = _memory(processes) - before
        return Attack(name=name, outcome=outcome, is_right=is_right, waits_seconds=waits, grown_bytes=grown_bytes)

    found = [watch(each.name, lambda each=each: ask(port, each)) for each in extremes()]  # type: ignore[misc]
    found.append(watch(f"{SILENT_SOCKETS} silent connections", lambda: stay_silent(port)))
    found.append(watch(f"a request with {HEAD_BYTES // 2**20} MiB of headers", lambda: send_head(port)))
    found.append(watch(f"a WebSocket message of {MESSAGE_CHARS // 2**20} MiB, deflated", lambda: send_message(port)))
    return found


def ask(port: int, extreme: Extreme) -> tuple[str, bool]:
    """Its status; right is an answer, or a refusal where that is due."""
    if extreme.call == "conversations":
        return _judge(open_conversation(port, extreme), extreme)
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
    try:
        connection.request("POST", f"/v1/{extreme.call}", extreme.body, {"content-type": "application/json"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__, False
    finally:
        connection.close()
    return _judge(status, extreme)


def open_conversation(port: int, extreme: Extreme) -> int:
    """The status of a turn said in a conversation so opened, as HTTP has it, or of what ended it; 0 where none came."""
    try:
        with connect(f"ws://{LOOPBACK}:{port}/v1/conversations", close_timeout=5) as opened:
            opened.send(extreme.body.decode())
            opened.recv(30)
            opened.send('{"turn": {"speaker": "system", "text": "ok"}}')
            scored = json.loads(opened.recv(30))
            return 200 if "scored" in scored else 504
    except ConnectionClosed as error:
        return error.rcvd.code - _CLOSE_CODE_BASE if error.rcvd is not None else 0
    except (OSError, TimeoutError):
        return 0


def _judge(status: int, extreme: Extreme) -> tuple[str, bool]:
    return str(status), (status in (200, 504)) if extreme.is_legal else 400 <= status < 500


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
        with connect(f"ws://{LOOPBACK}:{port}/v1/conversations", close_timeout=5) as opened:
            opened.send(message)
            while True:
                opened.recv(30)
    except ConnectionClosed as error:
        code = error.rcvd.code if error.rcvd is not None else 0
        return f"closed with {code}", code in (1009, 4413)
    except (OSError, TimeoutError) as error:
        return type(error).__name__, False


def _memory(processes: Sequence[psutil.Process]) -> int:
    total = 0
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            total += each.memory_info().rss
    return total

"""Handles SIGTERM and SIGHUP, and the end of BentoML's supervisor."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from turnscore_service._patches.bentoml_metrics import VARIABLE

_HANGUP_BIT = 1 << (signal.SIGHUP - 1)


def reload_on_hangup(reload: Callable[[], Awaitable[object]]) -> None:
    """From here on SIGHUP calls `reload`. Where it says that the terminal is gone, the process ends, as others do."""
    loop = asyncio.get_running_loop()
    ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
    tasks: set[asyncio.Future[object]] = set()

    def hang_up() -> None:
        if ends_with_terminal and not _has_terminal():
            os.kill(os.getpid(), signal.SIGTERM)
            return
        task = asyncio.ensure_future(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, hang_up)


def hang_up_children() -> None:
    """Sends SIGHUP to each child that takes it; one that does not yet, or never, would end."""
    for child in psutil.Process().children():
        if _takes_hangup(child.pid):
            with suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGHUP)


def _takes_hangup(pid: int, processes: Path = Path("/proc")) -> bool:
    """Whether the process has a handler for it (proc(5), SigCgt)."""
    try:
        lines = (processes / str(pid) / "status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line.partition(":")[2] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) & _HANGUP_BIT)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


_LOOK_SECONDS = 1.0  # how long a worker may outlive its supervisor before it begins to drain


def is_worker() -> bool:
    """Whether BentoML started this process as a worker: it gives each the folder for its metrics."""
    return VARIABLE in os.environ


def explain_taken_address() -> None:
    """In the supervisor, an address that another process listens on ends the start with a sentence, not a traceback."""
    before = sys.excepthook

    def explain(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            sys.stderr.write(
                "turnscore cannot start: another process is listening on its address; choose another --port\n"
            )
        else:
            before(kind, error, traceback)

    sys.excepthook = explain


async def end_with(supervisor: int) -> None:
    """Sends this process SIGTERM when `supervisor` is no longer its parent.

    A worker without one would hold the port, and nothing would stop or restart it.
    """
    while os.getppid() == supervisor:
        await asyncio.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def drain_before_stopping(
    begin_drain: Callable[[], object],
    end_conversations: Callable[[], Awaitable[object]],
    drain_seconds: float,
    shutdown_seconds: float,
) -> None:
    """On SIGTERM begins to drain at once; `drain_seconds` later conversations end, and the handler before follows."""
    loop = asyncio.get_running_loop()
    server_handler = signal.getsignal(signal.SIGTERM)
    draining: list[asyncio.Task[None]] = []

    def hand_on(number: int) -> None:
        if callable(server_handler):
            server_handler(number, None)

    async def drain() -> None:
        begin_drain()
        await asyncio.sleep(drain_seconds)
        last = loop.time() + shutdown_seconds
        # The server cuts every WebSocket off; by then no answer may be due on one.
        await end_conversations()
        hand_on(signal.SIGTERM)
        await asyncio.sleep(last - loop.time())
        # The server takes SIGINT after SIGTERM as the order not to wait for open connections any longer.
        hand_on(signal.SIGINT)

    def begin() -> None:
        if not draining:
            draining.append(loop.create_task(drain()))

    # The loop drains, not a signal handler: that one interrupts code that may hold a lock which draining needs too,
    # such as a metric's.
    loop.add_signal_handler(signal.SIGTERM, begin)

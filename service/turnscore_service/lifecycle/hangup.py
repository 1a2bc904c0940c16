"""Hang-ups: on SIGHUP a process serves what its settings name at that moment, unless its terminal was closed."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psutil

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


def pass_hangup_on() -> None:
    """In BentoML's supervisor, SIGHUP goes to the workers, instead of replacing them all at once by ones that load."""
    from circus.sighandler import SysHandler

    SysHandler.handle_hup = lambda _: hang_up_children()


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

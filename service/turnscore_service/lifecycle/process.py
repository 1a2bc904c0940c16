"""Runs blocking work in a thread of its own, and asks the system about memory and addresses."""

import ctypes
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import psutil


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def return_free_memory() -> None:
    """Has the C library return to the system what nothing uses any more; elsewhere than on glibc does nothing."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def served_url(host: str, port: int) -> str:
    """Where this process answers HTTP: the socket that `bentoml serve` gave this worker, else that address.

    BentoML tells a worker neither `--host` nor `--port`, but the number of the open socket, and its certificate.
    """
    words = sys.argv
    if "--fd" in words:
        with socket.socket(fileno=os.dup(int(words[words.index("--fd") + 1]))) as listener:
            host, port = listener.getsockname()[:2]
    scheme = "https" if "--ssl-certfile" in words else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def is_last_ready(worker: int, workers: int, folder: Path) -> bool:
    """Whether all workers are ready with this one; true for one of them, once. They share folder and supervisor.

    True for each worker that cannot write there: a line too many tells more than none.
    """
    service = os.getppid()
    try:
        (folder / f"{service}-{worker}.ready").touch()
        if sum(1 for _ in folder.glob(f"{service}-*.ready")) < workers:
            return False
        (folder / f"{service}.announced").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # the folder is full or read-only
        return True
    return True


_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104  # compared with, not bound to


def why_not(host: str, port: int, *, is_shared: bool) -> str | None:
    """Why the address cannot be listened on, as the end of a sentence; None where it can.

    With `is_shared` this service's other workers may listen there too: the processes that have the same parent. The
    system alone would let any other program of the same user share the port, and hand it half of the callers.
    """
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            probe.bind(address)
    except OSError as error:
        return str(error.strerror).lower()
    return "another program listens there" if is_shared and listens_elsewhere(host, port) else None


def listens_elsewhere(host: str, port: int) -> bool:
    """Whether a process that is no worker of this service listens on the address too."""
    ours = {child.pid for child in psutil.Process().parent().children()}
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:  # macOS answers only root
        return False
    hosts = {host, *_EVERY_ADDRESS} if host not in _EVERY_ADDRESS else None
    return any(
        each.status == psutil.CONN_LISTEN
        and each.laddr.port == port
        and (hosts is None or each.laddr.ip in hosts)
        and each.pid not in ours
        for each in connections
    )

"""Address: where load may go, which is this machine and nothing else."""

import random
import socket
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
_FREE_PORTS = range(10_000, 22_000)
"""Below those that systems deal out by themselves: until a server listens, no connection and no other server is given
its port, not even one that the server itself opens. With room above for a Redis Cluster's bus, 10,000 higher."""
_given: set[int] = set()


class Ports(NamedTuple):
    """Where the service's two doors are on this machine."""

    http: int
    grpc: int


class ForeignHostError(Exception):
    """The load was to go to another machine."""


def free_port() -> int:
    """A port of this machine that nobody listens on; another one each time."""
    while True:
        port = random.SystemRandom().choice([each for each in _FREE_PORTS if each not in _given])
        _given.add(port)
        with socket.socket() as free, suppress(OSError):
            free.bind((LOOPBACK, port))
            return port


def port_of(url: str) -> int:
    """The port of `http://127.0.0.1:PORT`. Raises ForeignHostError for any other host, without an exception to it."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname != LOOPBACK or parts.username is not None:
        raise ForeignHostError(f"load goes to http://{LOOPBACK}:PORT only, not to {url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not port:
        raise ForeignHostError(f"the address needs a port: http://{LOOPBACK}:PORT")
    return port

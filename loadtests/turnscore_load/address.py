"""Address: where load may go, which is this machine and nothing else."""

from typing import NamedTuple
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"


class Ports(NamedTuple):
    """Where the service's two doors are on this machine."""

    http: int
    grpc: int


class ForeignHostError(Exception):
    """The load was to go to another machine."""


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

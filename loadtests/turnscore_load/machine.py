"""This machine: addresses that load may go to, free ports, and what the CPU is."""

import os
import random
import re
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
# Below those that systems deal out by themselves: until a server listens, no connection and no other server is given
# its port, not even one that the server itself opens. With room above for a Redis Cluster's bus, 10,000 higher.
_FREE_PORTS = range(10_000, 22_000)
_given: set[int] = set()

_NAMED_FLAGS = {"avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX-VNNI", "amx_int8": "AMX int8"}


class ScenarioError(Exception):
    """A scenario cannot go on; the message says why."""


class ForeignHostError(ScenarioError):
    """The load was to go to another machine."""


def free_port() -> int:
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


def usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


def describe(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """`2 cores of an AMD EPYC (AVX-512 VNNI)`, from what Linux reports; elsewhere only the number of cores."""
    text = cpuinfo.read_text() if cpuinfo.is_file() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    known = set(flags.group(1).split()) if flags else set()
    features = ", ".join(name for flag, name in _NAMED_FLAGS.items() if flag in known)
    named = f"{usable_cpus()} cores of {model.group(1) if model else 'an unknown CPU'}"
    return f"{named} ({features})" if features else named

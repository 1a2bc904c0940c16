"""This machine: addresses that load may go to, free ports, what the CPU is, and whether other work keeps it busy."""

import os
import random
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

LOOPBACK = "127.0.0.1"
# Below those that systems deal out by themselves: until a server listens, no connection and no other server is given
# its port, not even one that the server itself opens. With room above for a Redis Cluster's bus, 10,000 higher.
_FREE_PORTS = range(10_000, 22_000)
_given: set[int] = set()

# Load average before the first request. Chosen: a service that has just started and waits leaves less.
BUSY_LOAD_PER_CPU = 0.5
BUSY_STEAL_SHARE = 0.05  # of the CPUs' time, taken by other machines on the same host; chosen
_NAMED_FLAGS = {"avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX-VNNI", "amx_int8": "AMX int8"}


class Ports(NamedTuple):
    """The service's HTTP and gRPC ports on this machine."""

    http: int
    grpc: int


class ScenarioError(Exception):
    """A scenario cannot go on; the message says why."""


class ForeignHostError(ScenarioError):
    """The load was to go to another machine."""


def free_port() -> int:
    """A free port of this machine; another one each time."""
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
    """CPUs that this process may run on."""
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


class BusynessWatch:
    """Looks at the machine when it is made and when it is asked: what else was computed on it."""

    def __init__(self) -> None:
        self._cpus = psutil.cpu_count() or 1
        self._load_before = os.getloadavg()[0]
        self._started_at = time.monotonic()
        self._steal_before = _steal_seconds()

    def remark(self, broken: Sequence[str]) -> str:
        """`busy_remark` of the time since it was made."""
        seconds = max(time.monotonic() - self._started_at, 1e-9)
        steal = (_steal_seconds() - self._steal_before) / seconds / self._cpus
        return busy_remark(broken, self._load_before, self._cpus, steal)


def busy_remark(broken: Sequence[str], load_before: float, cpus: int, steal_share: float) -> str:
    """A warning that times say little; empty where no budget was broken, or the machine was the run's own."""
    if not broken or (load_before <= BUSY_LOAD_PER_CPU * cpus and steal_share <= BUSY_STEAL_SHARE):
        return ""
    return (
        f"The machine was busy with other work: load average {load_before:.1f} on {cpus} CPUs before the "
        f"run, {100 * steal_share:.0f} % of the CPUs' time taken by other machines during it. "
        "Its times say little; run again when it is quiet.\n"
    )


def _steal_seconds() -> float:
    """Of all CPUs; 0 where the system does not say."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))

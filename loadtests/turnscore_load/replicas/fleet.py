"""Fleet: services by `turnscore serve`, one Redis and one haproxy, each a process on this machine. Sends no load."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnscore_load.address import LOOPBACK, free_port
from turnscore_load.programs import Replica, answers, find_programs, redis_command, running, wait_until

_SETTINGS = {
    "TURNSCORE_MODELS": "engagement",
    "TURNSCORE_RUNTIME__THREADS": "1",
    "TURNSCORE_RUNTIME__CONCURRENT_BATCHES": "1",
}
_CONFIGURATION = """
global
    maxconn 2000
defaults
    mode http
    option redispatch
    option http-buffer-request
    {retries}
    timeout http-request 5s
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    timeout tunnel 1h
frontend all
    bind {address}:{port}
    default_backend replicas
backend replicas
    balance leastconn
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 500ms fall 1 rise 2
"""
RETRIES = "retries 3\n    retry-on conn-failure empty-response response-timeout"


@dataclass(kw_only=True)
class Fleet:
    """What runs: the replicas behind `port`, the proxy and the Redis."""

    port: int
    replicas: Sequence[Replica]
    proxy: "subprocess.Popen[bytes]"
    redis: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def replace(self, replica: Replica) -> None:
        """Starts a replica that has ended, and returns once the proxy has taken it in again."""
        replica.wait()
        replica.start()
        wait_until(replica.is_ready, "a replica")
        time.sleep(1.5)  # two checks of haproxy's, 500 ms apart, and one between


@contextmanager
def fleet(
    serve: Path, folder: Path, *, count: int = 3, cores: Sequence[int] = (), proxy_retries: bool = False
) -> Iterator[Fleet]:
    """Starts all, and stops it again; with `cores`, each replica on one of its own. Raises NoProgramError."""
    found, redis_port, port = find_programs("haproxy", "redis-server"), free_port(), free_port()
    settings = {**_SETTINGS, "TURNSCORE_DRAIN_SECONDS": "2"}
    settings["TURNSCORE_CACHE__URL"] = f"redis://{LOOPBACK}:{redis_port}/0"
    pinned: Sequence[int | None] = cores or [None] * count
    replicas = [
        Replica(serve=serve, folder=folder / f"replica-{each}", settings=settings, core=core)
        for each, core in zip(range(count), pinned, strict=True)
    ]
    with ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        shared = stack.enter_context(running(redis_command(found["redis-server"], redis_port), folder / "redis.log"))
        for replica in replicas:
            replica.start()
            stack.callback(replica.end)
        for replica in replicas:
            wait_until(replica.is_ready, "a replica")
        written = folder / "haproxy.cfg"
        head = _CONFIGURATION.format(address=LOOPBACK, port=port, retries=RETRIES if proxy_retries else "retries 3")
        servers = [f"    server replica{at} {LOOPBACK}:{each.port}" for at, each in enumerate(replicas)]
        written.write_text("\n".join([head.rstrip(), *servers, ""]))
        proxy = stack.enter_context(running([found["haproxy"], "-db", "-f", str(written)], folder / "haproxy.log"))
        wait_until(lambda: answers(port), "haproxy")
        yield Fleet(port=port, replicas=replicas, proxy=proxy, redis=shared)

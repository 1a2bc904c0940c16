"""Faults: latency under load while the Redis is sick, each in its way, with breakers closed and open."""

import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass

from turnscore_bench.cache.redis_process import RedisProcess
from turnscore_bench.cache.rounds import Run, wait_until_in_use
from turnscore_bench.cache.samples import FaultSample, percentiles
from turnscore_bench.cache.ways import Question

CLIENTS = 4
QUESTION = Question("engagement", 1, CLIENTS)
GARBAGE = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@dataclass(frozen=True)
class Fault:
    """A way to be sick, and to recover."""

    name: str
    begin: Callable[[], object]
    end: Callable[[], object]


def faults(redis: RedisProcess) -> list[Fault]:
    """All that are measured; each leaves the Redis as it was, though perhaps empty."""
    impostor = Impostor(redis)
    return [
        Fault("suspended", redis.suspend, redis.resume),
        Fault("killed", redis.kill, redis.start),
        Fault("full", lambda: redis.order("CONFIG SET maxmemory 1"), lambda: redis.order("CONFIG SET maxmemory 0")),
        Fault("read-only", lambda: redis.order("REPLICAOF 127.0.0.1 1"), lambda: redis.order("REPLICAOF NO ONE")),
        Fault("replaced by garbage", impostor.begin, impostor.end),
    ]


class Impostor:
    """A socket in the place of a Redis that gives one answer to everything, which no Redis would."""

    def __init__(self, redis: RedisProcess) -> None:
        self._redis = redis
        self._server: _GarbageServer | None = None

    def begin(self) -> None:
        """Kills the Redis and takes its port."""
        self._redis.kill()
        self._server = _GarbageServer(("127.0.0.1", self._redis.port), _GarbageHandler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        """Gives the port back to the Redis."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self._redis.start()


class _GarbageServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


class _GarbageHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while self.request.recv(65_536):
                self.request.sendall(GARBAGE)
        except OSError:
            return


def run_faults(run: Run, number: int) -> None:
    """Latency with a healthy Redis and with one that is sick, while breakers are closed and once they are open.

    Every turn is fresh, so that the healthy Redis spares no work that the sick one would not.
    """
    for service in ("opens", "stays_closed"):
        wait_until_in_use(run.services, service)
    _measure(run, number, "stays_closed", "healthy")
    for fault in faults(run.redis):
        run.say(f"round {number + 1}: a Redis that is {fault.name}")
        fault.begin()
        try:
            _measure(run, number, "stays_closed", f"{fault.name}, breaker closed")
            run.services.drive("opens", QUESTION.path, run.requests.fresh(QUESTION, 20 * CLIENTS), CLIENTS)
            _measure(run, number, "opens", f"{fault.name}, breaker open")
        finally:
            fault.end()
        wait_until_in_use(run.services, "opens")
        _measure(run, number, "opens", f"healthy again, after {fault.name}")


def _measure(run: Run, number: int, service: str, state: str) -> None:
    answer = run.services.drive(service, QUESTION.path, run.requests.fresh(QUESTION, run.sizes.faults), CLIENTS)
    p50, p99 = percentiles(answer["latencies_ms"])
    breakers = {
        operation: run.services.metric(service, "turnscore_cache_breaker_state", operation=operation)
        for operation in ("read", "write")
    }
    failed = answer["failed_requests"] + answer["failed_items"]
    run.findings.faults.append(
        FaultSample(
            round=number,
            state=state,
            requests=answer["answered"],
            p50_ms=p50,
            p99_ms=p99,
            failed=failed,
            breakers=breakers,
        )
    )

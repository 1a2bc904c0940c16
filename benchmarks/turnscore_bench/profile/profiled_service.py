"""The service in a process that samples its event loop: BentoML's app in uvicorn, as `bentoml serve` runs its workers.

    python -m turnscore_bench.profile.profiled_service PORT [--at-once]

Reads `start` and `stop` from its standard input, a line each, and answers each with a line of JSON.
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil
import uvicorn

from turnscore_bench.profile.at_once import load_at_once
from turnscore_bench.profile.sampler import ThreadSampler
from turnscore_bench.profile.stages import describe

_KEEP_ALIVE_SECONDS = 60
"""Longer than a refused caller waits before it comes back on its connection."""
READY, STARTED = "ready", "started"


@dataclass(kw_only=True)
class Sampled:
    """What one measurement gave."""

    cpu_seconds: float
    """Of the whole process."""
    loop_seconds: float
    """Of the event loop's thread."""
    samples: list[tuple[str, str, int, int]] = field(default_factory=list)
    """Stage, file, line and count."""


class Orders:
    """Starts and stops the sampling as the parent says."""

    def __init__(self) -> None:
        self._sampler = ThreadSampler(describe)
        self._process = psutil.Process()
        self._cpu_before = 0.0

    async def follow(self) -> None:
        """Until the standard input ends."""
        loop = asyncio.get_running_loop()
        while order := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            _tell(self._start() if order == "start" else asdict(self._stop()))

    def _start(self) -> str:
        self._cpu_before = self._cpu_seconds()
        self._sampler.start()
        return STARTED

    def _stop(self) -> Sampled:
        self._sampler.stop()
        return Sampled(
            cpu_seconds=self._cpu_seconds() - self._cpu_before,
            loop_seconds=self._sampler.cpu_seconds,
            samples=[(*place, count) for place, count in self._sampler.counts.items()],  # type: ignore[misc]
        )

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def _tell(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class _Server(uvicorn.Server):
    """uvicorn's, which follows orders once it serves."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        from turnscore_service import bento

        await bento._RUNTIME.wait_until_loaded()
        bento._RUNTIME.pipeline()  # raises what kept it from loading
        orders = Orders()
        _tell(READY)
        await orders.follow()
        self.should_exit = True


def serve(port: int, *, at_once: bool) -> None:
    """Serves until the standard input ends."""
    from turnscore_service import bento  # reads its settings, and starts nothing yet

    if at_once:
        bento._RUNTIME._load_scorers = load_at_once

    app = bento.TurnScore.to_asgi(is_main=True)  # type: ignore[attr-defined]
    config = uvicorn.Config(
        app, port=port, log_config=None, server_header=False, timeout_keep_alive=_KEEP_ALIVE_SECONDS
    )
    _Server(config).run()


if __name__ == "__main__":
    serve(int(sys.argv[1]), at_once="--at-once" in sys.argv)

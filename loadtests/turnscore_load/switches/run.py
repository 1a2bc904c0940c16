"""The run: quiet load, load with switches and load with refusals, in turns, so that a noisy machine meets all alike."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil

from turnscore_load.programs import Replica, wait_until
from turnscore_load.replicas.callers import Crowd
from turnscore_load.replicas.run import capacity
from turnscore_load.switches.bundles import copy_as, damage, falsify

ROUNDS = 5
"""Of each kind of load. Chosen: what the machine does beside is spread over all."""
_ANSWER_SECONDS = 600.0
_CONVERSATIONS = 4


@dataclass(frozen=True, kw_only=True)
class SwitchesSettings:
    """One run."""

    serve: Path
    folder: Path
    count: int = 50
    load: float = 0.4


@dataclass(kw_only=True)
class Period:
    """All load of one kind: what callers saw, and what the service replied to orders meanwhile."""

    took_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    asked: int = 0
    reports: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, crowd: Crowd) -> None:
        """Takes in what its callers got; the times are those of callers that never try again."""
        self.took_ms += crowd.raw.took_ms
        for heard in (crowd.raw, crowd.client, crowd.talk):
            self.failures += heard.failures
            self.asked += len(heard.took_ms) + len(heard.failures)


@dataclass(kw_only=True)
class Found:
    """What a run found."""

    settings: SwitchesSettings
    carries: float
    """Requests per second."""
    per_second: float
    quiet: Period = field(default_factory=Period)
    switched: Period = field(default_factory=Period)
    refused: Period = field(default_factory=Period)
    resident: list[int] = field(default_factory=list)
    """Bytes of the service after each order, the first of them before any."""


async def run_switches(settings: SwitchesSettings) -> Found:
    """Starts a service, does all to it, and stops it."""
    folder = settings.folder
    folder.mkdir(parents=True, exist_ok=True)
    good = [copy_as(f"90.0.{number}", folder / f"good-{number}") for number in range(2)]
    broken = [damage(copy_as("90.1.0", folder / "damaged")), falsify(copy_as("90.1.1", folder / "falsified"))]
    service = Replica(
        serve=settings.serve.absolute(),
        folder=folder,
        settings={
            "TURNSCORE_MODELS": str(good[0]),
            "TURNSCORE_ADMIN__FOLDER": str(folder / "admin"),
            "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0",
        },
    )
    service.start()
    try:
        await asyncio.to_thread(wait_until, service.is_ready, "the service")
        return await _measure(settings, service, cycle([good[1], good[0]]), cycle(broken))
    finally:
        service.signal(signal.SIGTERM)
        await asyncio.to_thread(service.wait)


async def _measure(settings: SwitchesSettings, service: Replica, good: Any, broken: Any) -> Found:
    url = f"http://127.0.0.1:{service.port}"
    carries = await capacity(url)
    found = Found(settings=settings, carries=carries, per_second=settings.load * carries)
    assert service.process is not None
    process = psutil.Process(service.process.pid)
    for _ in range(2):  # the first switches of a process take memory that later ones find
        await _order(settings, next(good))
    found.resident.append(process.memory_info().rss)

    def orders(folders: Any, period: Period, count: int) -> Callable[[], Awaitable[None]]:
        async def give() -> None:
            for _ in range(count):
                period.reports.append(await _order(settings, next(folders)))
                found.resident.append(process.memory_info().rss)

        return give

    for number in range(ROUNDS):
        count = settings.count // ROUNDS + (number < settings.count % ROUNDS)
        switching = await _under_load(found, url, found.switched, orders(good, found.switched, count))
        await _under_load(found, url, found.refused, orders(broken, found.refused, count))
        await _under_load(found, url, found.quiet, lambda: asyncio.sleep(switching))  # noqa: B023
    return found


async def _under_load(found: Found, url: str, period: Period, do: Callable[[], Awaitable[None]]) -> float:
    """Load for as long as that takes, and how long it took."""
    crowd = Crowd(url=url, per_second=found.per_second, conversations=_CONVERSATIONS)
    started_at = time.monotonic()
    await crowd.run(asyncio.create_task(_awaited(do)))
    period.add(crowd)
    seconds = time.monotonic() - started_at
    period.seconds += seconds
    return seconds


async def _awaited(do: Callable[[], Awaitable[None]]) -> None:
    await do()


async def _order(settings: SwitchesSettings, bundle: Path) -> dict[str, Any]:
    """As `turnscore models serve` orders it, without the command's own start, which takes the service's CPUs."""
    return await asyncio.to_thread(_send, settings.folder / "admin", {"action": "serve", "reference": str(bundle)})


def _send(folder: Path, order: dict[str, str]) -> dict[str, Any]:
    [path] = folder.glob("*.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps(order).encode() + b"\n")
        with connection.makefile("rb") as reply:
            return dict(json.loads(reply.readline()))

"""Switches a service's model under load again and again, and has it refuse broken versions as often.

Quiet load, load with switches and load with refusals take turns, so that a noisy machine meets all alike.
"""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import uvloop
from typer import Option

from turnscore_load.fleet import Callers, capacity, copy_as, damage, falsify
from turnscore_load.processes import Process
from turnscore_load.results import Check, percentile, table
from turnscore_load.scenario import Scenario

ROUNDS = 5  # of each kind of load; chosen: what else the machine does is spread over all
_ANSWER_SECONDS = 600.0
_CONVERSATIONS = 4
_QUIET, _SWITCHED, _REFUSED = "alone", "with switches, one after the other", "with refusals, one after the other"
MOST_SLOWER = 2.0  # the p99 during switches over that without; specified
# Of the median memory after the last quarter of all orders over that after the first. Chosen: a version that stayed
# would add as much with each order; the allocator's own sway, a tenth from one order to the next, is not told apart.
MOST_GROWN = 0.15
_MIB = 1024**2


@dataclass(kw_only=True)
class LoadKind:
    """One kind of load: what callers got, the service's replies to orders, and how long it took."""

    callers: Callers = field(default_factory=Callers)
    replies: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def p99_ms(self) -> float:
        return percentile(self.callers.took_ms["raw"], 99)


@dataclass(kw_only=True)
class SwitchesRun:
    """What a run found. `carries` is in requests per second."""

    carries: float
    kinds: dict[str, LoadKind] = field(default_factory=lambda: {k: LoadKind() for k in (_QUIET, _SWITCHED, _REFUSED)})
    resident: list[int] = field(default_factory=list)  # bytes of the service after each order, the first before any


@dataclass(kw_only=True)
class Switches(Scenario[SwitchesRun]):
    """Check that callers notice nothing of switches, that refusals leave nothing, and that memory stays."""

    count: Annotated[int, Option(help="Switches that succeed, and as many that are refused.", min=2)] = 50
    load: Annotated[float, Option(help="Share of what the service carries.", min=0.05, max=1.0)] = 0.4

    keeps_figures = False

    def measure(self) -> SwitchesRun:
        good = [copy_as(f"90.0.{number}", self.folder / f"good-{number}") for number in range(2)]
        damaged, falsified = (copy_as(f"90.1.{at}", self.folder / f"broken-{at}") for at in range(2))
        settings = {
            "TURNSCORE_MODELS": str(good[0]),
            "TURNSCORE_ADMIN__FOLDER": str(self.folder / "admin"),
            "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0",
        }
        broken = cycle([damage(damaged), falsify(falsified)])
        with self.started("", settings, program="turnscore", clean=False) as service:
            return uvloop.run(self._measure(service, cycle([good[1], good[0]]), broken))

    async def _measure(self, service: Process, good: Any, broken: Any) -> SwitchesRun:
        found = SwitchesRun(carries=await capacity(service.url))
        process, admin = psutil.Process(service.process.pid), self.folder / "admin"
        for _ in range(2):  # the first switches of a process take memory that later ones find
            await asyncio.to_thread(_order, admin, next(good))
        found.resident.append(process.memory_info().rss)

        async def give(folders: Any, kind: str, orders: int) -> None:
            for _ in range(orders):
                found.kinds[kind].replies.append(await asyncio.to_thread(_order, admin, next(folders)))
                found.resident.append(process.memory_info().rss)

        async def under_load(kind: str, do: Callable[[], Awaitable[None]]) -> float:
            started_at = time.monotonic()
            await found.kinds[kind].callers.call(service.url, self.load * found.carries, _CONVERSATIONS, do())
            seconds = time.monotonic() - started_at
            found.kinds[kind].seconds += seconds
            return seconds

        for number in range(ROUNDS):
            orders = self.count // ROUNDS + (number < self.count % ROUNDS)
            switching = await under_load(_SWITCHED, lambda: give(good, _SWITCHED, orders))  # noqa: B023
            await under_load(_REFUSED, lambda: give(broken, _REFUSED, orders))  # noqa: B023
            await under_load(_QUIET, lambda: asyncio.sleep(switching))  # noqa: B023
        return found

    def checks(self, found: SwitchesRun) -> Iterator[Check]:
        quiet, switching, refusing = found.kinds.values()
        switched = sum(each["outcome"] == "switched" for each in switching.replies)
        yield Check("every switch is made", f"{switched} of {self.count}", switched == self.count)
        refused = sum(each["outcome"] == "refused" for each in refusing.replies)
        yield Check("every broken version is refused", f"{refused} of {self.count}", refused == self.count)
        broken = sum("90.1." in str(each["models"].values()) for each in refusing.replies)
        yield Check("none of them is served", f"{broken} served", not broken)
        failures = switching.callers.count_failures() + refusing.callers.count_failures()
        yield Check("no request fails", f"{failures} failed", not failures)
        ratio, refused_ratio = (each.p99_ms() / quiet.p99_ms() for each in (switching, refusing))
        yield Check("p99 during switches at most twice the p99 without", f"{ratio:.2f}", ratio <= MOST_SLOWER)
        yield Check("p99 during refusals at most twice it", f"{refused_ratio:.2f}", refused_ratio <= MOST_SLOWER)
        some = max(1, len(found.resident) // 4)
        grown = median(found.resident[-some:]) / median(found.resident[:some]) - 1
        yield Check("memory is back where it was", f"{grown:+.1%}", grown <= MOST_GROWN)

    def report(self, found: SwitchesRun) -> Iterator[str]:
        yield (
            f"engagement; the service carries {found.carries:.0f} requests per second, load {self.load:.0%} of that; "
            f"{self.count} switches and as many refusals."
        )
        rows = []
        for name, kind in found.kinds.items():
            took = kind.callers.took_ms["raw"]
            failed = [failure for each in kind.callers.failures.values() for failure in each]
            times = [percentile(took, 50), percentile(took, 99), max(took, default=0.0)]
            words = ", ".join([str(len(failed)), *sorted(set(failed))])
            counts = [f"{kind.seconds:.0f}", f"{kind.callers.count():,}", words]
            rows.append([name, *counts, *(f"{each:.0f} ms" for each in times)])
        yield table(["load", "seconds", "requests", "failed", "p50", "p99", "longest"], rows)
        replies = found.kinds[_SWITCHED].replies
        seconds = sorted(each["seconds"] for each in replies)
        between = max((each["memory"]["between_bytes"] for each in replies if each["memory"]), default=0) / _MIB
        yield (
            f"A switch took {percentile(seconds, 50):.1f} s (the longest {seconds[-1]:.1f}). Memory of the service: "
            f"{found.resident[0] / _MIB:.0f} MiB before, {between:.0f} at most with both versions loaded, "
            f"{found.resident[-1] / _MIB:.0f} after the last."
        )


def _order(admin: Path, bundle: Path) -> dict[str, Any]:
    """As the command-line tool orders it, without the tool's own start, which takes the service's CPUs."""
    [path] = admin.glob("*.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps({"action": "serve", "reference": str(bundle)}).encode() + b"\n")
        with connection.makefile("rb") as reply:
            return dict(json.loads(reply.readline()))

"""Switches a service's model under load again and again, and has it refuse broken versions as often.

Quiet load, load with switches and load with refusals take turns, so that a noisy machine meets all alike.
"""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import typer
import uvloop

from turnscore_load.answers import percentile
from turnscore_load.fleet import Callers, capacity, copy_as, damage, falsify
from turnscore_load.processes import Process, started
from turnscore_load.results import Check, ScenarioResult, table
from turnscore_load.scenarios.steady import REPORTS, Reports
from turnscore_load.services import SERVE, service_process

ROUNDS = 5
"""Of each kind of load. Chosen: what else the machine does is spread over all."""
_ANSWER_SECONDS = 600.0
_CONVERSATIONS = 4
_QUIET, _SWITCHED, _REFUSED = "alone", "with switches, one after the other", "with refusals, one after the other"
MOST_SLOWER = 2.0
"""The p99 during switches over that without. Specified."""
MOST_GROWN = 0.15
"""Of the median memory after the last quarter of all orders over that after the first. Chosen: a version that stayed
would add as much with each order; the allocator's own sway, a tenth from one order to the next, is not told apart."""
_MIB = 1024**2


@dataclass(kw_only=True)
class SwitchesRun:
    """What a run found, by kind of load: what callers got, what the service replied to orders, and how long it took."""

    count: int
    load: float
    carries: float
    """Requests per second."""
    callers: dict[str, Callers] = field(default_factory=lambda: {k: Callers() for k in (_QUIET, _SWITCHED, _REFUSED)})
    replies: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {_SWITCHED: [], _REFUSED: []})
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((_QUIET, _SWITCHED, _REFUSED), 0.0))
    resident: list[int] = field(default_factory=list)
    """Bytes of the service after each order, the first of them before any."""


def main(
    serve: Annotated[Path, typer.Option(help="The turnscore command that starts the service.")] = SERVE,
    count: Annotated[int, typer.Option(help="Switches that succeed, and as many that are refused.", min=2)] = 50,
    load: Annotated[float, typer.Option(help="Share of what the service carries.", min=0.05, max=1.0)] = 0.4,
    reports: Reports = REPORTS,
) -> ScenarioResult:
    """Check that callers notice nothing of switches, that refusals leave nothing, and that memory stays."""
    folder = reports.absolute() / "switches"
    good = [copy_as(f"90.0.{number}", folder / f"good-{number}") for number in range(2)]
    broken = [damage(copy_as("90.1.0", folder / "damaged")), falsify(copy_as("90.1.1", folder / "falsified"))]
    settings = {
        "TURNSCORE_MODELS": str(good[0]),
        "TURNSCORE_ADMIN__FOLDER": str(folder / "admin"),
        "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0",
    }
    with started(service_process(serve, folder, settings)) as service:
        found = uvloop.run(_measure(service, count, load, cycle([good[1], good[0]]), cycle(broken)))
    return ScenarioResult(scenario="switches", parts=report(found), checks=checks(found))


async def _measure(service: Process, count: int, load: float, good: Any, broken: Any) -> SwitchesRun:
    carries = await capacity(service.url)
    found = SwitchesRun(count=count, load=load, carries=carries)
    process, admin = psutil.Process(service.process.pid), service.folder / "admin"
    for _ in range(2):  # the first switches of a process take memory that later ones find
        await asyncio.to_thread(_order, admin, next(good))
    found.resident.append(process.memory_info().rss)

    async def give(folders: Any, kind: str, orders: int) -> None:
        for _ in range(orders):
            found.replies[kind].append(await asyncio.to_thread(_order, admin, next(folders)))
            found.resident.append(process.memory_info().rss)

    async def under_load(kind: str, do: Callable[[], Awaitable[None]]) -> float:
        started_at = time.monotonic()
        await found.callers[kind].call(service.url, load * carries, _CONVERSATIONS, do())
        seconds = time.monotonic() - started_at
        found.seconds[kind] += seconds
        return seconds

    for number in range(ROUNDS):
        orders = count // ROUNDS + (number < count % ROUNDS)
        switching = await under_load(_SWITCHED, lambda: give(good, _SWITCHED, orders))  # noqa: B023
        await under_load(_REFUSED, lambda: give(broken, _REFUSED, orders))  # noqa: B023
        await under_load(_QUIET, lambda: asyncio.sleep(switching))  # noqa: B023
    return found


def _order(admin: Path, bundle: Path) -> dict[str, Any]:
    """As the command-line tool orders it, without the tool's own start, which takes the service's CPUs."""
    [path] = admin.glob("*.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps({"action": "serve", "reference": str(bundle)}).encode() + b"\n")
        with connection.makefile("rb") as reply:
            return dict(json.loads(reply.readline()))


def checks(found: SwitchesRun) -> list[Check]:
    """What was promised."""
    p99 = {kind: percentile(each.took_ms["raw"], 99) for kind, each in found.callers.items()}
    ratio, refused_ratio = p99[_SWITCHED] / p99[_QUIET], p99[_REFUSED] / p99[_QUIET]
    failures = found.callers[_SWITCHED].count_failures() + found.callers[_REFUSED].count_failures()
    switched = sum(each["outcome"] == "switched" for each in found.replies[_SWITCHED])
    refused = sum(each["outcome"] == "refused" for each in found.replies[_REFUSED])
    served = {tuple(each["models"].values()) for each in found.replies[_REFUSED]}
    broken = sum("90.1." in str(each) for each in served)
    some = max(1, len(found.resident) // 4)
    grown = median(found.resident[-some:]) / median(found.resident[:some]) - 1
    return [
        Check("every switch is made", f"{switched} of {found.count}", switched == found.count),
        Check("every broken version is refused", f"{refused} of {found.count}", refused == found.count),
        Check("none of them is served", f"{broken} served", not broken),
        Check("no request fails", f"{failures} failed", not failures),
        Check("p99 during switches at most twice the p99 without", f"{ratio:.2f}", ratio <= MOST_SLOWER),
        Check("p99 during refusals at most twice it", f"{refused_ratio:.2f}", refused_ratio <= MOST_SLOWER),
        Check("memory is back where it was", f"{grown:+.1%}", grown <= MOST_GROWN),
    ]


def report(found: SwitchesRun) -> list[str]:
    """The parts of the page."""
    seconds = sorted(each["seconds"] for each in found.replies[_SWITCHED])
    memory = [each["memory"] for each in found.replies[_SWITCHED] if each["memory"]]
    between = max(each["between_bytes"] for each in memory) / _MIB if memory else 0.0
    rows = []
    for kind, callers in found.callers.items():
        took = callers.took_ms["raw"]
        failed = [failure for each in callers.failures.values() for failure in each]
        times = [percentile(took, 50), percentile(took, 99), max(took, default=0.0)]
        words = ", ".join([str(len(failed)), *sorted(set(failed))])
        shown = [f"{each:.0f} ms" for each in times]
        rows.append([kind, f"{found.seconds[kind]:.0f}", f"{callers.count():,}", words, *shown])
    return [
        f"engagement; the service carries {found.carries:.0f} requests per second, load {found.load:.0%} of that; "
        f"{found.count} switches and as many refusals.",
        table(["load", "seconds", "requests", "failed", "p50", "p99", "longest"], rows),
        f"A switch took {percentile(seconds, 50):.1f} s (the longest {seconds[-1]:.1f}). Memory of the service: "
        f"{found.resident[0] / _MIB:.0f} MiB before, {between:.0f} at most with both versions loaded, "
        f"{found.resident[-1] / _MIB:.0f} after the last.",
    ]

"""The runs: each event under steady load, what callers saw, and whether every value is that of one service alone."""

import asyncio
import platform
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil
from turnscore_client import AsyncTurnScoreClient

from turnscore_load.calls import percentile
from turnscore_load.check import Check, check_table
from turnscore_load.markdown import table
from turnscore_load.replicas.callers import Crowd, Heard
from turnscore_load.replicas.fleet import Fleet, fleet

_SETTLED_SECONDS = 3.0
"""Of load before an event and after it. Chosen."""
_OUT_SECONDS = 4.0
"""How long a Redis or a replica is away or slow. Chosen."""
_SLICE_SECONDS = 0.1
LOAD = 0.7
"""Share of what the replicas carry, together. Specified."""
BOUND = 1e-6
"""Of engagement's values, whatever else is in their batch (docs/api.md)."""
Event = Callable[[Fleet], Awaitable[None]]


async def nothing(_: Fleet) -> None:
    """What the callers see otherwise."""
    await asyncio.sleep(_OUT_SECONDS)


async def kill_one(running: Fleet) -> None:
    """kill -9 of a replica; another one is started in its place."""
    running.replicas[0].signal(signal.SIGKILL)
    await asyncio.to_thread(running.replace, running.replicas[0])


async def restart_all(running: Fleet) -> None:
    """SIGTERM to one after the other, each once the one before is back."""
    for replica in running.replicas:
        replica.signal(signal.SIGTERM)
        await asyncio.to_thread(running.replace, replica)


async def part_redis(running: Fleet) -> None:
    """The Redis takes connections and answers nothing."""
    running.redis.send_signal(signal.SIGSTOP)
    await asyncio.sleep(_OUT_SECONDS)
    running.redis.send_signal(signal.SIGCONT)


async def slow_one(running: Fleet) -> None:
    """A replica that stands still for nine tenths of each second's slices."""
    end = time.monotonic() + _OUT_SECONDS
    while time.monotonic() < end:
        running.replicas[-1].signal(signal.SIGSTOP)
        await asyncio.sleep(0.9 * _SLICE_SECONDS)
        running.replicas[-1].signal(signal.SIGCONT)
        await asyncio.sleep(0.1 * _SLICE_SECONDS)


EVENTS: dict[str, Event] = {
    "none": nothing,
    "kill -9 of one": kill_one,
    "rolling restart of all": restart_all,
    "Redis answers nothing": part_redis,
    "one is slow": slow_one,
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One event, and what each kind of caller got."""

    event: str
    proxy_retries: bool
    crowd: Crowd
    differing: int
    """Values that are not those of one service alone, within the bound."""


async def measure(running: Fleet, event: str, per_second: float, *, proxy_retries: bool) -> Outcome:
    """Load, the event in it, and the values once more from one replica that has none of them in its cache."""
    crowd = Crowd(url=running.url, per_second=per_second, conversations=8)

    async def happen() -> None:
        await asyncio.sleep(_SETTLED_SECONDS)
        await EVENTS[event](running)
        await asyncio.sleep(_SETTLED_SECONDS)

    await crowd.run(asyncio.create_task(happen()))
    differing = 0
    alone = f"http://127.0.0.1:{running.replicas[0].port}"
    async with AsyncTurnScoreClient(alone, timeout_seconds=60) as client:
        for text, value in {**crowd.raw.values, **crowd.client.values}.items():
            again = await client.score(response=text, cache_namespace="alone")
            differing += abs(again.scores["engagement"].value - value) > BOUND
    return Outcome(event=event, proxy_retries=proxy_retries, crowd=crowd, differing=differing)


async def capacity(url: str, seconds: float = 6.0, clients: int = 24) -> float:
    """Requests per second that callers get answered who ask again at once."""
    answered = 0
    end = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def ask(number: int) -> None:
            nonlocal answered
            while time.monotonic() < end:
                with suppress(httpx.HTTPError):
                    body = {"response": f"what would be number {answered} of {number} at {time.monotonic()}"}
                    answer = await client.post("/v1/score", json=body)
                    answered += answer.status_code == 200  # in one step: others count too

        await asyncio.gather(*(ask(number) for number in range(clients)))
    return answered / seconds


async def run_replicas(serve: Path, folder: Path) -> tuple[list[Outcome], float]:
    """Every event at a proxy that tries nothing again, and the loss of a replica at one that does."""
    found: list[Outcome] = []
    with fleet(serve, folder / "plain") as running:
        most = await capacity(running.url)
        found += [await measure(running, event, LOAD * most, proxy_retries=False) for event in EVENTS]
    with fleet(serve, folder / "retrying", proxy_retries=True) as running:
        found.append(await measure(running, "kill -9 of one", LOAD * most, proxy_retries=True))
    return found, most


def checks(found: list[Outcome]) -> list[Check]:
    """What was promised."""
    by_event = {(each.event, each.proxy_retries): each.crowd for each in found}
    killed, rolled = by_event["kill -9 of one", False], by_event["rolling restart of all", False]
    failed_rolling = len(rolled.raw.failures) + len(rolled.client.failures)
    failed_client = sum(len(each.crowd.client.failures) + len(each.crowd.talk.failures) for each in found)
    in_flight = 2 + round(killed.per_second)  # what may be on one replica, and what comes until a check has failed
    retried = by_event["kill -9 of one", True].raw.failures
    differing = sum(each.differing for each in found)
    return [
        Check("rolling restart: nothing fails", f"{failed_rolling} failed", failed_rolling == 0),
        Check("kill -9: at the raw door at most those in flight", f"{len(killed.raw.failures)}",
              len(killed.raw.failures) <= in_flight),
        Check("a proxy that tries again: none", f"{len(retried)}", not retried),
        Check("through our client and in conversations nothing fails", f"{failed_client} failed", failed_client == 0),
        Check("every value is that of one service alone", f"{differing} differ", differing == 0),
    ]  # fmt: skip


def _row(outcome: Outcome) -> list[str]:
    crowd = outcome.crowd
    name = outcome.event + (", proxy tries again" if outcome.proxy_retries else "")
    return [name, _of(crowd.raw), _of(crowd.client), _of(crowd.talk)]


def _of(heard: Heard) -> str:
    asked = len(heard.took_ms) + len(heard.failures)
    kinds = f" ({', '.join(sorted(set(heard.failures)))})" if heard.failures else ""
    p99 = f"{percentile(heard.took_ms, 99):.0f} ms" if heard.took_ms else "-"
    return f"{len(heard.failures)} of {asked:,}{kinds}; {p99}"


def report(found: list[Outcome], most: float) -> str:
    """The page that `make replicas` prints."""
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {psutil.cpu_count()} CPUs ({platform.machine()}), load average of the last"
        f" 15 minutes {psutil.getloadavg()[2]:.1f}; the three replicas together carry {most:.0f} requests per second;"
        f" load {LOAD:.0%} of that.",
        "",
        table(
            ["event", "raw callers: failed; p99", "our client: failed; p99", "conversations: failed turns; p99"],
            map(_row, found),
        ),
        "",
        check_table(checks(found)),
    ]
    return "\n".join(lines) + "\n"

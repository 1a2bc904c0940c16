"""Three services behind haproxy with one Redis: one is killed, all restart, the Redis is lost, one is slow."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

import uvloop
from turnscore_client import AsyncTurnScoreClient

from turnscore_load.fleet import Callers, Fleet, capacity, fleet
from turnscore_load.results import Check, percentile, table
from turnscore_load.scenario import Scenario

_SETTLED_SECONDS = 3.0  # of load before an event and after it; chosen
_OUT_SECONDS = 4.0  # how long a Redis or a replica is away or slow; chosen
_SLICE_SECONDS = 0.1
_CONVERSATIONS = 8
LOAD = 0.7  # share of what the replicas carry, together; specified
BOUND = 1e-6  # of engagement's values, whatever else is in their batch (docs/api.md)


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
    running.redis.pause()
    await asyncio.sleep(_OUT_SECONDS)
    running.redis.resume()


async def slow_one(running: Fleet) -> None:
    """A replica that stands still for nine tenths of each second's slices."""
    end = time.monotonic() + _OUT_SECONDS
    while time.monotonic() < end:
        running.replicas[-1].pause()
        await asyncio.sleep(0.9 * _SLICE_SECONDS)
        running.replicas[-1].resume()
        await asyncio.sleep(0.1 * _SLICE_SECONDS)


EVENTS: dict[str, Callable[[Fleet], Awaitable[None]]] = {
    "none": nothing,
    "kill -9 of one": kill_one,
    "rolling restart of all": restart_all,
    "Redis answers nothing": part_redis,
    "one is slow": slow_one,
}
RETRIED = "kill -9 of one, proxy tries again"


@dataclass(frozen=True, kw_only=True)
class EventOutcome:
    event: str
    per_second: float
    callers: Callers
    differing: int  # values that are not those of one service alone, within the bound


@dataclass(kw_only=True)
class Replicas(Scenario[tuple[float, list[EventOutcome]]]):
    """Check what callers notice of each event under a load of 70 %, and that every value is right."""

    keeps_figures = False

    def measure(self) -> tuple[float, list[EventOutcome]]:
        return uvloop.run(self._measure())

    async def _measure(self) -> tuple[float, list[EventOutcome]]:
        """Every event at a proxy that tries nothing again, and the loss of a replica at one that does."""
        serve = self.serving / "turnscore"
        with fleet(serve, self.folder / "plain") as running:
            most = await capacity(running.url)
            found = [await _measure(running, event, event, LOAD * most) for event in EVENTS]
        with fleet(serve, self.folder / "retrying", proxy_retries=True) as running:
            found.append(await _measure(running, "kill -9 of one", RETRIED, LOAD * most))
        return most, found

    def report(self, found: tuple[float, list[EventOutcome]]) -> Iterator[str]:
        yield f"The replicas together carry {found[0]:.0f} requests per second; load {LOAD:.0%} of that."
        head = ["event", "raw callers: failed; p99", "our client: failed; p99", "conversations: failed turns; p99"]
        rows = [[each.event, *(_cell(each.callers, kind) for kind in ("raw", "client", "talk"))] for each in found[1]]
        yield table(head, rows)

    def checks(self, found: tuple[float, list[EventOutcome]]) -> list[Check]:
        return check_outcomes(found[1])


async def _measure(running: Fleet, event: str, name: str, per_second: float) -> EventOutcome:
    """Load, the event in it, and the values once more from one replica that has none of them in its cache."""

    async def happen() -> None:
        await asyncio.sleep(_SETTLED_SECONDS)
        await EVENTS[event](running)
        await asyncio.sleep(_SETTLED_SECONDS)

    callers, differing = Callers(), 0
    await callers.call(running.url, per_second, _CONVERSATIONS, happen())
    async with AsyncTurnScoreClient(running.replicas[0].url, timeout_seconds=60) as client:
        for text, value in callers.values.items():
            again = await client.score(response=text, cache_namespace="alone")
            differing += abs(again.scores["engagement"].value - value) > BOUND
    return EventOutcome(event=name, per_second=per_second, callers=callers, differing=differing)


def check_outcomes(found: Sequence[EventOutcome]) -> list[Check]:
    failures = {each.event: each.callers.failures for each in found}
    killed, rolled = failures["kill -9 of one"]["raw"], failures["rolling restart of all"]
    failed_rolling = len(rolled["raw"]) + len(rolled["client"])
    failed_client = sum(len(each["client"]) + len(each["talk"]) for each in failures.values())
    in_flight = 2 + round(found[0].per_second)  # what may be on one replica, and what comes until a check has failed
    retried = failures[RETRIED]["raw"]
    differing = sum(each.differing for each in found)
    return [
        Check("rolling restart: nothing fails", f"{failed_rolling} failed", failed_rolling == 0),
        Check("kill -9: of raw callers' at most those in flight", f"{len(killed)}", len(killed) <= in_flight),
        Check("a proxy that tries again: none", f"{len(retried)}", not retried),
        Check("through our client and in conversations nothing fails", f"{failed_client} failed", failed_client == 0),
        Check("every value is that of one service alone", f"{differing} differ", differing == 0),
    ]


def _cell(callers: Callers, kind: str) -> str:
    took, failed = callers.took_ms[kind], callers.failures[kind]
    kinds = f" ({', '.join(sorted(set(failed)))})" if failed else ""
    p99 = f"{percentile(took, 99):.0f} ms" if took else "-"
    return f"{len(failed)} of {len(took) + len(failed):,}{kinds}; {p99}"

"""A shadow beside callers: two services, one with a shadow, get the same load in alternating rounds; then an overload.

Measures; report.py judges.
"""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnscore_load.address import free_port
from turnscore_load.calls import Stage
from turnscore_load.generator import Generator
from turnscore_load.service_metrics import read_metrics
from turnscore_load.target import Target, target
from turnscore_load.traffic import Traffic, TrafficSettings

_OTHER_VERSION = "999.0.0"
_DEADLINE_MS = 1000
_LOAD = 0.5
"""Share of what two callers in a row get answered that is sent. Chosen: idle moments and busy ones."""
_PEAK_CLIENTS = 2
_WARM_SECONDS = 3.0
_OVERLOAD_CLIENTS = 64
_SETTLE_SECONDS = 2.0
"""From the overload's start until the queue is full, and before its end. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSettings:
    """Rounds of each service, of so many seconds; the share of turns that are shadowed; seconds of the overload."""

    rounds: int = 6
    seconds: float = 10.0
    share: float = 0.1
    overload_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of the shadow's turns by what became of them, and its CPU time."""

    compared: float = 0.0
    failed: float = 0.0
    dropped: float = 0.0
    cpu_seconds: float = 0.0

    def since(self, before: "Counts") -> "Counts":
        """What was added."""
        return Counts(
            compared=self.compared - before.compared,
            failed=self.failed - before.failed,
            dropped=self.dropped - before.dropped,
            cpu_seconds=self.cpu_seconds - before.cpu_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One service's round: its calls, the CPU time of its processes, what its shadow did."""

    stage: Stage
    cpu_seconds: float
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRun:
    """Everything that was measured."""

    settings: ShadowSettings
    per_second: float
    plain: Sequence[Round]
    shadowed: Sequence[Round]
    overload: Stage
    overloaded: Counts
    """What the shadow did in the overload, but for its first and last seconds."""


@contextmanager
def two_services(bundle: Path, bentoml: Path, folder: Path, share: float) -> Iterator[tuple[Target, Target]]:
    """One with the bundle alone, and one that shadows it with a copy under another version."""
    other = folder / "other-version"
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(bundle, other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "version": _OTHER_VERSION}))
    own = {"TURNSCORE_MODELS": f"{bundle.resolve()}/", "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0"}
    shadow = {**own, "TURNSCORE_SHADOW": f"{other.resolve()}/={share}"}
    with ExitStack() as stack:
        yield (
            stack.enter_context(target(free_port(), bentoml, folder / "plain.log", own)),
            stack.enter_context(target(free_port(), bentoml, folder / "shadowed.log", shadow)),
        )


async def run_shadow(
    plain: Target, shadowed: Target, settings: ShadowSettings, say: Callable[[str], None]
) -> ShadowRun:
    """Does all of it."""
    traffic = Traffic(TrafficSettings(deadline_ms=_DEADLINE_MS))
    services = {each.port: Generator(each.port, _DEADLINE_MS) for each in (plain, shadowed)}
    for generator in services.values():
        await generator.run_closed(_PEAK_CLIENTS, _WARM_SECONDS, generator.requests(traffic))
    served = services[plain.port]
    peak = await served.run_closed(_PEAK_CLIENTS, settings.seconds, served.requests(traffic))
    per_second = _LOAD * peak.goodput(_DEADLINE_MS)
    say(f"{per_second:.1f} requests per second, {settings.rounds} rounds of {settings.seconds:g} s each")
    rounds: dict[int, list[Round]] = {plain.port: [], shadowed.port: []}
    for _ in range(settings.rounds):
        for each in (plain, shadowed):
            found = await _round(each, services[each.port], traffic, per_second, settings.seconds)
            rounds[each.port].append(found)
            say(f"{'shadowed' if each is shadowed else 'plain'}: p99 {found.stage.took_ms(99, 'answered'):.1f} ms")
    say(f"overload: {_OVERLOAD_CLIENTS} callers for {settings.overload_seconds:g} s")
    overload, overloaded = await _overload(shadowed, services[shadowed.port], traffic, settings.overload_seconds)
    for generator in services.values():
        generator.close()
    return ShadowRun(
        settings=settings,
        per_second=per_second,
        plain=rounds[plain.port],
        shadowed=rounds[shadowed.port],
        overload=overload,
        overloaded=overloaded,
    )


async def _round(service: Target, generator: Generator, traffic: Traffic, per_second: float, seconds: float) -> Round:
    requests = [generator.request(traffic.next_ask().item) for _ in range(max(1, int(per_second * seconds)))]
    counts, cpu = await asyncio.to_thread(read_counts, service), _cpu_seconds(service)
    stage = await generator.run_open(requests, per_second)
    took = _cpu_seconds(service) - cpu
    return Round(stage=stage, cpu_seconds=took, counts=(await asyncio.to_thread(read_counts, service)).since(counts))


async def _overload(service: Target, generator: Generator, traffic: Traffic, seconds: float) -> tuple[Stage, Counts]:
    async def watch() -> Counts:
        await asyncio.sleep(_SETTLE_SECONDS)
        before = await asyncio.to_thread(read_counts, service)
        await asyncio.sleep(seconds - 2 * _SETTLE_SECONDS)
        return (await asyncio.to_thread(read_counts, service)).since(before)

    watching = asyncio.create_task(watch())
    stage = await generator.run_closed(_OVERLOAD_CLIENTS, seconds, generator.requests(traffic), 0.02)
    return stage, await watching


def read_counts(service: Target) -> Counts:
    """What the service's metrics say of its shadow; nothing where it has none."""
    turns = {"compared": 0.0, "failed": 0.0, "full": 0.0, "late": 0.0}
    cpu = 0.0
    for sample in read_metrics(service.port):
        if sample.name == "turnscore_shadow_turns_total":
            turns[sample.labels["outcome"]] += sample.value
        elif sample.name == "turnscore_shadow_cpu_seconds_total":
            cpu += sample.value
    return Counts(
        compared=turns["compared"], failed=turns["failed"], dropped=turns["full"] + turns["late"], cpu_seconds=cpu
    )


def _cpu_seconds(service: Target) -> float:
    times = [each.cpu_times() for each in service.processes()]
    return sum(float(each.user + each.system) for each in times)

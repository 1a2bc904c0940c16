"""Measures what callers notice of a shadow version: services with one and without, loaded in turns; an overload."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
import uvloop
from typer import Option

from turnscore_load.answers import Stage
from turnscore_load.fleet import STARTER, copy_as
from turnscore_load.generator import Generator, http_generator, score_request, score_requests
from turnscore_load.processes import Process
from turnscore_load.results import Check, table
from turnscore_load.scenario import Scenario
from turnscore_load.services import read_metrics
from turnscore_load.traffic import Traffic, TrafficSettings

_DEADLINE_MS = 1000
_PEAK_CLIENTS = 2
_OVERLOAD_CLIENTS = 64
_SETTLE_SECONDS = 2.0  # from the overload's start until the queue is full, and before its end; chosen

# Turns of a shadow by what became of them (compared, failed, full, late), and its `cpu_seconds`.
Counts = Mapping[str, float]


Round = tuple[Stage, Counts]  # one service's calls, and what its shadow did


def p99_ms(round_: Round) -> float:
    return round_[0].took_ms(99, "answered")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRun:
    """Everything that was measured; `overloaded` without the overload's first and last seconds."""

    per_second: float
    plain: Sequence[Round]
    shadowed: Sequence[Round]
    overload: Stage
    overloaded: Counts

    def sum(self, count: str) -> float:
        """Of the shadowed rounds."""
        return sum(counts[count] for _, counts in self.shadowed)


@dataclass(kw_only=True)
class Shadow(Scenario[ShadowRun]):
    """Check that callers notice nothing of a shadow."""

    rounds: Annotated[int, Option(min=2, max=50, help="Rounds of each service, in turns.")] = 6
    seconds: Annotated[float, Option(min=1, max=120, help="Seconds of a round.")] = 10.0
    share: Annotated[float, Option(min=0.01, max=1, help="Share of turns that are shadowed.")] = 0.1
    overload_seconds: Annotated[float, Option(min=20, max=120, help="Seconds of the overload.")] = 30.0
    bundle: Annotated[Path, Option(exists=True, help="The bundle that is served.")] = STARTER / "engagement"

    keeps_figures = False

    def measure(self) -> ShadowRun:
        other = copy_as("999.0.0", self.folder / "other-version", self.bundle)
        own = {"TURNSCORE_MODELS": f"{self.bundle.resolve()}/", "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0"}
        shadow = {**own, "TURNSCORE_SHADOW": f"{other}/={self.share}"}
        with self.started("plain", own) as plain, self.started("shadowed", shadow) as shadowed:
            return uvloop.run(self._measure(plain, shadowed))

    async def _measure(self, plain: Process, shadowed: Process) -> ShadowRun:
        traffic = Traffic(TrafficSettings(deadline_ms=_DEADLINE_MS))
        generators = {each.port: http_generator(each.port, _DEADLINE_MS) for each in (plain, shadowed)}
        for port, generator in generators.items():
            await generator.run_closed(_PEAK_CLIENTS, 3.0, score_requests(port, traffic))
        requests = score_requests(plain.port, traffic)
        peak = await generators[plain.port].run_closed(_PEAK_CLIENTS, self.seconds, requests)
        # share of what two callers in a row get answered that is sent; chosen: idle moments and busy ones
        per_second = 0.5 * peak.goodput(_DEADLINE_MS)
        typer.echo(f"{per_second:.1f} requests per second, {self.rounds} rounds of {self.seconds:g} s each")
        found: dict[int, list[Round]] = {plain.port: [], shadowed.port: []}
        for _ in range(self.rounds):
            for each in (plain, shadowed):
                measured = await self._round(each, generators[each.port], traffic, per_second)
                found[each.port].append(measured)
                typer.echo(f"{'shadowed' if each is shadowed else 'plain'}: p99 {p99_ms(measured):.1f} ms")
        typer.echo(f"overload: {_OVERLOAD_CLIENTS} callers for {self.overload_seconds:g} s")

        async def watch() -> Counts:
            await asyncio.sleep(_SETTLE_SECONDS)
            before = await asyncio.to_thread(read_counts, shadowed.port)
            await asyncio.sleep(self.overload_seconds - 2 * _SETTLE_SECONDS)
            return _since(await asyncio.to_thread(read_counts, shadowed.port), before)

        watching, requests = asyncio.create_task(watch()), score_requests(shadowed.port, traffic)
        calling = generators[shadowed.port].run_closed(_OVERLOAD_CLIENTS, self.overload_seconds, requests, 0.02)
        overload, overloaded = await calling, await watching
        for generator in generators.values():
            generator.close()
        return ShadowRun(
            per_second=per_second, plain=found[plain.port], shadowed=found[shadowed.port], overload=overload,
            overloaded=overloaded,
        )  # fmt: skip

    async def _round(self, service: Process, generator: Generator, traffic: Traffic, per_second: float) -> Round:
        count = max(1, int(per_second * self.seconds))
        requests = [score_request(service.port, traffic.next_ask().item) for _ in range(count)]
        before = await asyncio.to_thread(read_counts, service.port)
        stage = await generator.run_open(requests, per_second)
        return stage, _since(await asyncio.to_thread(read_counts, service.port), before)

    def report(self, found: ShadowRun) -> Iterator[str]:
        rows = []
        for name, rounds in (("without a shadow", found.plain), (f"shadow, {self.share:.0%}", found.shadowed)):
            together = Stage([call for stage, _ in rounds for call in stage.calls], 0.0, 1.0)
            each_p99 = ", ".join(f"{p99_ms(each):.1f}" for each in rounds)
            times = [f"{together.took_ms(percent, 'answered'):.1f} ms" for percent in (50, 99)]
            rows.append([name, *times, f"{each_p99} ms"])
        compared, cpu = found.sum("compared"), found.sum("cpu_seconds")
        yield f"{found.per_second:.1f} requests per second at an even rate."
        yield table(["service", "p50", "p99", "p99 of each round"], rows)
        yield f"The shadow compared {compared:.0f} turns, {1000 * cpu / max(1.0, compared):.1f} ms of CPU each."
        yield (
            f"Overload: {found.overload.count('answered')} answered, {found.overload.count('refused')} refused, "
            f"p99 of the answers {found.overload.took_ms(99, 'answered'):.0f} ms."
        )

    def checks(self, found: ShadowRun) -> Iterator[Check]:
        plain, shadowed = [p99_ms(each) for each in found.plain], [p99_ms(each) for each in found.shadowed]
        lost = [
            sum(len(stage.calls) - stage.count("answered") for stage, _ in rounds)
            for rounds in (found.plain, found.shadowed)
        ]
        claim = "every caller is answered, with a shadow and without"
        yield Check(claim, f"{lost[0]} and {lost[1]} failed", not any(lost))
        noticed = f"{median(shadowed):.1f} ms; {min(plain):.1f} to {max(plain):.1f} ms"
        claim = "callers' p99 with a shadow, median of the rounds, is within the range of the rounds without"
        yield Check(claim, noticed, median(shadowed) <= max(plain))
        turns, failed = sum(stage.count("answered") for stage, _ in found.shadowed), found.sum("failed")
        share = found.sum("compared") / turns if turns else 0.0
        kept = f"{share:.1%} of {turns} turns, {self.share:.0%} wanted; {failed:.0f} failed"
        claim = "the shadow compares most of the turns that it is to"
        yield Check(claim, kept, share >= 0.5 * self.share and not failed)
        compared, dropped = found.overloaded["compared"], found.overloaded["full"] + found.overloaded["late"]
        claim = "under an overload nothing is shadowed, though turns were offered"
        yield Check(claim, f"{compared:.0f} compared, {dropped:.0f} dropped", not compared and dropped > 0)


def read_counts(port: int) -> Counts:
    """What a service's metrics say of its shadow; zeros where it has none."""
    found = dict.fromkeys(("compared", "failed", "full", "late", "cpu_seconds"), 0.0)
    for sample in read_metrics(port):
        if sample.name == "turnscore_shadow_turns_total":
            found[sample.labels["outcome"]] += sample.value
        elif sample.name == "turnscore_shadow_cpu_seconds_total":
            found["cpu_seconds"] += sample.value
    return found


def _since(now: Counts, before: Counts) -> Counts:
    return {name: now[name] - before[name] for name in now}

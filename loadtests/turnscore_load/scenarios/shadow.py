"""Measures what callers notice of a shadow version: services with one and without, loaded in turns; an overload."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
import uvloop

from turnscore_load.answers import Stage
from turnscore_load.fleet import STARTER, copy_as
from turnscore_load.generator import Generator, http_generator, score_request, score_requests
from turnscore_load.processes import Process, started
from turnscore_load.results import Check, ScenarioResult, table
from turnscore_load.scenarios.steady import REPORTS, Program, Reports
from turnscore_load.services import BENTOML, read_metrics, service_process
from turnscore_load.traffic import Traffic, TrafficSettings

_DEADLINE_MS = 1000
_LOAD = 0.5
"""Share of what two callers in a row get answered that is sent. Chosen: idle moments and busy ones."""
_PEAK_CLIENTS = 2
_WARM_SECONDS = 3.0
_OVERLOAD_CLIENTS = 64
_SETTLE_SECONDS = 2.0
"""From the overload's start until the queue is full, and before its end. Chosen."""

Counts = Mapping[str, float]
"""Turns of a shadow by what became of them (compared, failed, full, late), and its `cpu_seconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One service's round: its calls, the CPU time of its processes, what its shadow did."""

    stage: Stage
    cpu_seconds: float
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRun:
    """Everything that was measured."""

    share: float
    per_second: float
    plain: Sequence[Round]
    shadowed: Sequence[Round]
    overload: Stage
    overloaded: Counts
    """What the shadow did in the overload, but for its first and last seconds."""


def main(
    rounds: Annotated[int, typer.Option(min=2, max=50, help="Rounds of each service, in turns.")] = 6,
    seconds: Annotated[float, typer.Option(min=1, max=120, help="Seconds of a round.")] = 10.0,
    share: Annotated[float, typer.Option(min=0.01, max=1, help="Share of turns that are shadowed.")] = 0.1,
    overload_seconds: Annotated[float, typer.Option(min=20, max=120, help="Seconds of the overload.")] = 30.0,
    bundle: Annotated[Path, typer.Option(exists=True, file_okay=False, help="The bundle that is served.")] = STARTER
    / "engagement",
    bentoml: Program = BENTOML,
    reports: Reports = REPORTS,
) -> ScenarioResult:
    """Check that callers notice nothing of a shadow."""
    folder = reports.absolute() / "shadow"
    other = copy_as("999.0.0", folder / "other-version", bundle)
    own = {"TURNSCORE_MODELS": f"{bundle.resolve()}/", "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0"}
    shadow = {**own, "TURNSCORE_SHADOW": f"{other}/={share}"}
    with (
        started(service_process(bentoml, folder / "plain", own)) as plain,
        started(service_process(bentoml, folder / "shadowed", shadow)) as shadowed,
    ):
        run = uvloop.run(run_shadow(plain, shadowed, rounds, seconds, share, overload_seconds))
    return ScenarioResult(scenario="shadow", parts=report(run), checks=checks(run))


async def run_shadow(
    plain: Process, shadowed: Process, rounds: int, seconds: float, share: float, overload_seconds: float
) -> ShadowRun:
    """Does all of it."""
    traffic = Traffic(TrafficSettings(deadline_ms=_DEADLINE_MS))
    generators = {each.port: http_generator(each.port, _DEADLINE_MS) for each in (plain, shadowed)}
    for port, generator in generators.items():
        await generator.run_closed(_PEAK_CLIENTS, _WARM_SECONDS, score_requests(port, traffic))
    peak = await generators[plain.port].run_closed(_PEAK_CLIENTS, seconds, score_requests(plain.port, traffic))
    per_second = _LOAD * peak.goodput(_DEADLINE_MS)
    typer.echo(f"{per_second:.1f} requests per second, {rounds} rounds of {seconds:g} s each")
    found: dict[int, list[Round]] = {plain.port: [], shadowed.port: []}
    for _ in range(rounds):
        for each in (plain, shadowed):
            measured = await _round(each, generators[each.port], traffic, per_second, seconds)
            found[each.port].append(measured)
            typer.echo(f"{'shadowed' if each is shadowed else 'plain'}: p99 {_p99(measured):.1f} ms")
    typer.echo(f"overload: {_OVERLOAD_CLIENTS} callers for {overload_seconds:g} s")

    async def watch() -> Counts:
        await asyncio.sleep(_SETTLE_SECONDS)
        before = await asyncio.to_thread(read_counts, shadowed.port)
        await asyncio.sleep(overload_seconds - 2 * _SETTLE_SECONDS)
        return _since(await asyncio.to_thread(read_counts, shadowed.port), before)

    watching = asyncio.create_task(watch())
    requests = score_requests(shadowed.port, traffic)
    overload = await generators[shadowed.port].run_closed(_OVERLOAD_CLIENTS, overload_seconds, requests, 0.02)
    overloaded = await watching
    for generator in generators.values():
        generator.close()
    return ShadowRun(
        share=share, per_second=per_second, plain=found[plain.port], shadowed=found[shadowed.port],
        overload=overload, overloaded=overloaded,
    )  # fmt: skip


async def _round(service: Process, generator: Generator, traffic: Traffic, per_second: float, seconds: float) -> Round:
    count = max(1, int(per_second * seconds))
    requests = [score_request(service.port, traffic.next_ask().item) for _ in range(count)]
    before, cpu = await asyncio.to_thread(read_counts, service.port), service.cpu_seconds()
    stage = await generator.run_open(requests, per_second)
    took = service.cpu_seconds() - cpu
    counts = _since(await asyncio.to_thread(read_counts, service.port), before)
    return Round(stage=stage, cpu_seconds=took, counts=counts)


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


def checks(run: ShadowRun) -> list[Check]:
    """What is promised of a shadow."""
    plain, shadowed = [_p99(each) for each in run.plain], [_p99(each) for each in run.shadowed]
    compared, failed = (sum(each.counts[name] for each in run.shadowed) for name in ("compared", "failed"))
    turns = sum(each.stage.count("answered") for each in run.shadowed)
    share = compared / turns if turns else 0.0
    dropped = run.overloaded["full"] + run.overloaded["late"]
    lost = [_failures(each) for each in (run.plain, run.shadowed)]
    noticed = f"{median(shadowed):.1f} ms; {min(plain):.1f} to {max(plain):.1f} ms"
    kept = f"{share:.1%} of {turns} turns, {run.share:.0%} wanted; {failed:.0f} failed"
    idle, is_idle = f"{run.overloaded['compared']:.0f} compared, {dropped:.0f} dropped", not run.overloaded["compared"]
    p99 = "callers' p99 with a shadow, median of the rounds, is within the range of the rounds without"
    return [
        Check("every caller is answered, with a shadow and without", f"{lost[0]} and {lost[1]} failed", not any(lost)),
        Check(p99, noticed, median(shadowed) <= max(plain)),
        Check("the shadow compares most of the turns that it is to", kept, share >= 0.5 * run.share and not failed),
        Check("under an overload nothing is shadowed, though turns were offered", idle, is_idle and dropped > 0),
    ]


def report(run: ShadowRun) -> list[str]:
    """The parts of the page."""
    compared, cpu = (sum(each.counts[name] for each in run.shadowed) for name in ("compared", "cpu_seconds"))
    rows = []
    for name, rounds in (("without a shadow", run.plain), (f"shadow, {run.share:.0%}", run.shadowed)):
        together = Stage([call for each in rounds for call in each.stage.calls], 0.0, 1.0)
        each_p99 = ", ".join(f"{_p99(each):.1f}" for each in rounds)
        spent = 1000 * sum(each.cpu_seconds for each in rounds) / max(1, len(together.calls))
        times = [f"{together.took_ms(percent, 'answered'):.1f} ms" for percent in (50, 99)]
        rows.append([name, *times, f"{each_p99} ms", f"{spent:.2f} ms"])
    return [
        f"{run.per_second:.1f} requests per second at an even rate.",
        table(["service", "p50", "p99", "p99 of each round", "CPU per request"], rows),
        f"The shadow compared {compared:.0f} turns, {1000 * cpu / max(1.0, compared):.1f} ms of CPU each.",
        f"Overload: {run.overload.count('answered')} answered, {run.overload.count('refused')} refused, "
        f"p99 of the answers {run.overload.took_ms(99, 'answered'):.0f} ms.",
    ]


def _p99(measured: Round) -> float:
    return measured.stage.took_ms(99, "answered")


def _failures(rounds: Sequence[Round]) -> int:
    return sum(len(each.stage.calls) - each.stage.count("answered") for each in rounds)

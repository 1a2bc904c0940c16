"""Sends many times more than a service can carry, and checks whether it stays honest.

The order: normal latency of one caller; closed-loop clients, doubled until goodput grows no more, and the best number
of them once more and longer, for the peak; the overload, open-loop at an even rate, with the service's processes
watched; and one caller again from the very moment that the overload ends.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated

import psutil
import typer
import uvloop
from typer import Option

from turnscore_load.answers import OUTCOMES, Stage
from turnscore_load.generator import Generator, http_generator, score_request, score_requests
from turnscore_load.machine import ScenarioError
from turnscore_load.results import Check, percentile, table
from turnscore_load.sampling import ProcessSample, Sampler, growths, write_csv
from turnscore_load.scenario import TargetScenario
from turnscore_load.traffic import Traffic, TrafficSettings

MAX_REQUESTS = 200_000  # prepared in memory, about 2 KB each; chosen
_PEAK_STAGES = 4  # how many times longer than the stages of the search the peak is measured; chosen
_PROBE_SECONDS = 5.0
_RECOVERY_SECONDS = 2.0  # after which latency must be normal again: probes that begin later count
_SAMPLE_SECONDS = 0.5
_PROBE_AGAIN_SECONDS = 0.02  # a refused probe comes again much sooner than advised, to see when it is taken; chosen

# How much slower the probes after the overload may be than those before it, by percentile, for noise. Chosen.
MOST_NORMAL = {50: 1.25, 95: 1.5}
# How late the generator may send (99 of 100 calls) for the run to count. Chosen: a quarter of the default deadline.
MOST_LATE_MS = 250.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadRun:
    """Everything that was measured; stages of the search by their number of clients."""

    normal: Stage
    search: dict[int, Stage]
    peak_clients: int
    peak: Stage
    overload: Stage
    recovery: Stage
    samples: Sequence[ProcessSample]


class TooMuchError(ScenarioError):
    """The overload would need more requests than are prepared at most."""


@dataclass(kw_only=True)
class Overload(TargetScenario[OverloadRun]):
    """Overload a service, and watch how it fares and how soon it is itself again."""

    factor: Annotated[float, Option(min=1, max=50, help="Load, as a multiple of the peak goodput.")] = 10.0
    seconds: Annotated[float, Option(min=6, max=600, help="Duration in seconds.")] = 60.0
    stage_seconds: Annotated[float, Option(min=1, max=60, help="Seconds of each step of the search.")] = 6.0
    deadline_ms: Annotated[int, Option(min=50, max=30_000, help="Deadline of every request.")] = 1000
    scorers: Annotated[str, Option(help="Scorers, separated by commas; empty: all that are loaded.")] = ""

    keeps_figures = False

    def measure(self) -> OverloadRun:
        with self.target() as service:
            run = uvloop.run(self._overload(service.port, service.processes()))
        write_csv(run.samples, self.reports / "overload_samples.csv")
        return run

    def report(self, found: OverloadRun) -> Iterator[str]:
        yield self._stage_table(found)

    def checks(self, found: OverloadRun) -> Iterator[Check]:
        overload, seconds = found.overload, self.seconds
        goodput, peak = overload.goodput(self.deadline_ms), found.peak.goodput(self.deadline_ms)
        share = goodput / peak if peak else 0.0
        told = f"{goodput:.1f} of {peak:.1f} a second, {share:.0%}"
        yield Check("goodput within 10 % of the peak", told, share >= 0.9)
        p99 = overload.took_ms(99, "answered")
        claim = f"p99 of the accepted within the deadline of {self.deadline_ms} ms"
        yield Check(claim, f"{p99:.0f} ms", 0 < p99 <= self.deadline_ms)
        failed = overload.failures()
        why = ", ".join(f"{count} x {why}" for why, count in failed.most_common(5)) or f"all {len(overload.calls)}"
        yield Check("every request answered with 200, 429 or 504", why, not failed)
        for each in growths(found.samples, (seconds / 6, seconds * 5 / 12), (seconds * 3 / 4, seconds)):
            if each.name != "file handles":  # connections are the generator's doing
                yield Check(f"{each.name} flat", str(each), each.is_kept)
        yield _recovery_check(found)
        late = percentile((call.late_ms for call in overload.calls), 99)
        claim = f"the generator kept up (99 of 100 calls sent within {MOST_LATE_MS:.0f} ms)"
        yield Check(claim, f"{late:.0f} ms", late <= MOST_LATE_MS)

    async def _overload(self, port: int, processes: Sequence[psutil.Process]) -> OverloadRun:
        """Does all of it. Raises TooMuchError, and ProcessesChangedError where a process of the service ended."""
        names = tuple(filter(None, self.scorers.split(",")))
        traffic = Traffic(TrafficSettings(scorers=names, deadline_ms=self.deadline_ms))
        generator = http_generator(port, self.deadline_ms)
        # A probe is as long as turns are on average (dialogue_lengths.toml), always, so that times can be compared.
        probes = (score_request(port, traffic.item_of_length((6, 10, 6, 10, 6), 10)) for _ in count())
        typer.echo("one caller, for the normal latency")
        await generator.run_closed(1, 1.0, probes)  # warms up
        normal = await generator.run_closed(1, _PROBE_SECONDS, probes)
        search = await self._search_peak(generator, score_requests(port, traffic))
        # The best of the stages once more: the greatest of several short measurements is greater than it should be.
        clients = max(search, key=lambda each: search[each].goodput(self.deadline_ms))
        peak = await generator.run_closed(clients, _PEAK_STAGES * self.stage_seconds, score_requests(port, traffic))
        rate = self.factor * peak.goodput(self.deadline_ms)
        wanted = int(rate * self.seconds)
        if not 0 < wanted <= MAX_REQUESTS:
            raise TooMuchError(f"{wanted} requests would be needed; from 1 to {MAX_REQUESTS} can be prepared")
        typer.echo(f"{clients} clients are the peak; {rate:.0f} requests per second for {self.seconds:g} s")
        requests = [score_request(port, traffic.next_ask().item) for _ in range(wanted)]

        async def recover() -> Stage:
            await asyncio.sleep(self.seconds)
            return await generator.run_closed(1, _RECOVERY_SECONDS + _PROBE_SECONDS, probes, _PROBE_AGAIN_SECONDS)

        with Sampler(processes, _SAMPLE_SECONDS) as sampler:
            recovering = asyncio.create_task(recover())
            overload = await generator.run_open(requests, rate)
            recovery = await recovering
        sampler.check()
        generator.close()
        return OverloadRun(
            normal=normal, search=search, peak_clients=clients, peak=peak, overload=overload, recovery=recovery,
            samples=sampler.samples,
        )  # fmt: skip

    async def _search_peak(self, generator: Generator, requests: Iterator[bytes]) -> dict[int, Stage]:
        """Closed-loop stages with 1, 2, 4... clients, until two in a row bring no progress."""
        stages: dict[int, Stage] = {}
        best, without_progress, clients = 0.0, 0, 1
        while clients <= 256 and without_progress < 2:
            stage = stages[clients] = await generator.run_closed(clients, self.stage_seconds, requests)
            goodput = stage.goodput(self.deadline_ms)
            typer.echo(f"{clients} clients: {goodput:.1f} good answers per second")
            # a stage that brings less than 2 % more is no progress; two in a row end the search; chosen
            without_progress = 0 if goodput > 1.02 * best else without_progress + 1
            best, clients = max(best, goodput), 2 * clients
        return stages

    def _stage_table(self, run: OverloadRun) -> str:
        stages = [(f"{clients} clients", stage) for clients, stage in run.search.items()]
        stages.append((f"{run.peak_clients} clients, longer: the peak", run.peak))
        stages.append((f"{len(run.overload.calls) / run.overload.seconds:.0f} a second, open loop", run.overload))
        rows = []
        for name, stage in stages:
            counts = [str(stage.count(outcome)) for outcome in OUTCOMES]
            times = [stage.took_ms(50, "answered"), stage.took_ms(99, "answered"), stage.took_ms(99, "refused")]
            rows.append([name, f"{stage.goodput(self.deadline_ms):.1f}", *counts, *(f"{t:.0f}" for t in times)])
        return table(["load", "good/s", *OUTCOMES, "p50 ms", "p99 ms", "p99 ms of refusals"], rows, texts=1)


def _recovery_check(run: OverloadRun) -> Check:
    late = [call for call in run.recovery.calls if call.due_at - run.recovery.began_at >= _RECOVERY_SECONDS]
    normal = {percent: run.normal.took_ms(percent, "answered") for percent in MOST_NORMAL}
    found = {percent: percentile((call.took_ms for call in late), percent) for percent in MOST_NORMAL}
    answered = bool(late) and all(call.answer.outcome == "answered" for call in late)
    times = ", ".join(f"p{each} {found[each]:.0f} ms (before: {normal[each]:.0f})" for each in MOST_NORMAL)
    return Check(
        f"normal latency {_RECOVERY_SECONDS:g} s after",
        times,
        answered and all(found[each] <= most * normal[each] for each, most in MOST_NORMAL.items()),
    )

"""Overload: ten times more load than the service can carry, and whether it stays honest.

Measures; overload_report.py judges.

The order: normal latency of one caller; closed-loop clients, doubled until goodput grows no more, and the best number
of them once more and longer, for the peak; the overload, open-loop at an even rate, with the service's processes
watched; and one caller again from the very moment that the overload ends.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psutil

from turnscore_load.calls import Stage
from turnscore_load.generator import Generator
from turnscore_load.sampling import Sample, Sampler
from turnscore_load.traffic import Traffic, TrafficSettings

MAX_CLIENTS = 256
MAX_REQUESTS = 200_000
"""Prepared in memory, about 2 KB each. Chosen."""
_LEAST_GAIN = 1.02
"""A stage that brings less than 2 % more than the best before is no progress; two in a row end the search. Chosen."""
_PEAK_STAGES = 4
"""How many times longer than the stages of the search the peak is measured. Chosen."""
_PROBE_AGAIN_SECONDS = 0.02
"""A refused probe comes again much sooner than advised, to see when room is there. Chosen."""
_PROBE_CONTEXT_WORDS = (6, 10, 6, 10, 6)
_PROBE_RESPONSE_WORDS = 10
"""A probe is as long as turns are on average (dialogue_lengths.toml), always, so that times can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadSettings:
    """What is done to the service. Seconds of each part; the goodput counts answers within the deadline."""

    factor: float = 10.0
    seconds: float = 60.0
    stage_seconds: float = 6.0
    probe_seconds: float = 5.0
    recovery_seconds: float = 2.0
    """The time after which latency must be normal again; probes that begin later count."""
    sample_seconds: float = 0.5
    deadline_ms: int = 1000
    scorers: tuple[str, ...] = ()
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of the search for the peak."""

    clients: int
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadRun:
    """Everything that was measured."""

    settings: OverloadSettings
    normal: Stage
    steps: Sequence[Step]
    peak: Step
    overload: Stage
    recovery: Stage
    samples: Sequence[Sample]
    generator_cpu_share: float
    """CPU seconds per second that the generator took during the overload; 1 is one whole CPU."""

    @property
    def peak_goodput(self) -> float:
        return self.peak.stage.goodput(self.settings.deadline_ms)


class TooMuchError(Exception):
    """The overload would need more requests than are prepared at most."""


async def run_overload(
    port: int, processes: Sequence[psutil.Process], settings: OverloadSettings, say: Callable[[str], None]
) -> OverloadRun:
    """Does all of it. Raises TooMuchError, and ProcessesChangedError where a process of the service ended."""
    traffic = Traffic(
        TrafficSettings(
            seed=settings.seed, repeat_share=0.0, scorers=settings.scorers, deadline_ms=settings.deadline_ms
        )
    )
    generator = Generator(port, settings.deadline_ms)
    say("one caller, for the normal latency")
    await generator.run_closed(1, 1.0, _probes(generator, traffic))  # warms up
    normal = await generator.run_closed(1, settings.probe_seconds, _probes(generator, traffic))
    steps = await _search_peak(generator, settings, traffic, say)
    peak = await _measure_peak(generator, settings, traffic, say, steps)
    rate = settings.factor * peak.stage.goodput(settings.deadline_ms)
    wanted = int(rate * settings.seconds)
    if not 0 < wanted <= MAX_REQUESTS:
        raise TooMuchError(f"{wanted} requests would be needed; from 1 to {MAX_REQUESTS} can be prepared")
    say(f"{rate:.0f} requests per second for {settings.seconds:g} s")
    requests = [generator.request(traffic.next_ask().item) for _ in range(wanted)]
    probes = _probes(generator, traffic)
    probe_seconds = settings.recovery_seconds + settings.probe_seconds
    with Sampler(processes, settings.sample_seconds) as sampler:
        cpu_before, began_at = time.process_time(), time.monotonic()
        recovering = asyncio.create_task(_after(settings.seconds, generator, probe_seconds, probes))
        overload = await generator.run_open(requests, rate)
        cpu_share = (time.process_time() - cpu_before) / (time.monotonic() - began_at)
        recovery = await recovering
    sampler.check()
    generator.close()
    return OverloadRun(
        settings=settings,
        normal=normal,
        steps=steps,
        peak=peak,
        overload=overload,
        recovery=recovery,
        samples=sampler.samples,
        generator_cpu_share=cpu_share,
    )


async def _search_peak(
    generator: Generator, settings: OverloadSettings, traffic: Traffic, say: Callable[[str], None]
) -> list[Step]:
    """Closed-loop stages with 1, 2, 4... clients, until two in a row bring no progress."""
    requests = generator.requests(traffic)
    steps: list[Step] = []
    best, without_progress, clients = 0.0, 0, 1
    while clients <= MAX_CLIENTS and without_progress < 2:
        stage = await generator.run_closed(clients, settings.stage_seconds, requests)
        goodput = stage.goodput(settings.deadline_ms)
        say(f"{clients} clients: {goodput:.1f} good answers per second")
        steps.append(Step(clients, stage))
        without_progress = 0 if goodput > _LEAST_GAIN * best else without_progress + 1
        best, clients = max(best, goodput), 2 * clients
    return steps


async def _measure_peak(
    generator: Generator,
    settings: OverloadSettings,
    traffic: Traffic,
    say: Callable[[str], None],
    steps: Sequence[Step],
) -> Step:
    """The best of the steps once more: the greatest of several short measurements is greater than it should be."""
    clients = max(steps, key=lambda step: step.stage.goodput(settings.deadline_ms)).clients
    seconds = _PEAK_STAGES * settings.stage_seconds
    stage = await generator.run_closed(clients, seconds, generator.requests(traffic))
    say(f"{clients} clients for {seconds:g} s: {stage.goodput(settings.deadline_ms):.1f} good answers per second")
    return Step(clients, stage)


async def _after(seconds: float, generator: Generator, probe_seconds: float, probes: Iterator[bytes]) -> Stage:
    await asyncio.sleep(seconds)
    return await generator.run_closed(1, probe_seconds, probes, _PROBE_AGAIN_SECONDS)


def _probes(generator: Generator, traffic: Traffic) -> Iterator[bytes]:
    while True:
        yield generator.request(traffic.item_of_length(_PROBE_CONTEXT_WORDS, _PROBE_RESPONSE_WORDS))

"""Concurrency: how many batches run at once and with how many threads each. Measured on the machine, never guessed."""

import time
import timeit
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

# A second session is kept only where it takes less than this share of the narrow one's time. Chosen: it doubles the
# memory of the weights.
_WIDE_GAIN = 0.85
# Fewer threads win where they cost at most this much more. Chosen: measurements of a start-up are that noisy.
_COST_TIE = 1.1
_LATENCY_RUNS = 7
_BURSTS = 4
_BURST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many batches of one scorer run at once, each with `threads`.

    A batch that finds the runtime idle gets `wide_threads` instead, where that was measured to be faster.
    """

    batches: int = 1
    threads: int = 1
    wide_threads: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What one number of threads gave: seconds of one turn alone, CPU seconds of one with every slot busy.

    CPU seconds, and the least of several measurements, because other processes on the machine change those least.
    """

    latency_seconds: float
    cpu_seconds: float


def candidates(cpus: int) -> tuple[int, ...]:
    """Numbers of threads worth measuring on that many CPUs: one, a few, all."""
    return tuple(sorted({1, min(4, cpus), cpus}))


def choose(samples: Mapping[int, Sample], cpus: int) -> Concurrency:
    """The threads that cost least with every slot busy, and for an idle machine those with the least latency."""
    least = min(sample.cpu_seconds for sample in samples.values())
    threads = min(each for each, sample in samples.items() if sample.cpu_seconds <= _COST_TIE * least)
    fastest = min(samples, key=lambda each: samples[each].latency_seconds)
    is_worth_it = samples[fastest].latency_seconds < _WIDE_GAIN * samples[threads].latency_seconds
    return Concurrency(max(1, cpus // threads), threads, fastest if is_worth_it and fastest > threads else None)


def take_sample(score_one: Callable[[], object], concurrent_batches: int) -> Sample:
    """Times one call alone, then that many at once for a fraction of a second. The first call warms up."""
    score_one()
    alone = timeit.repeat(score_one, number=1, repeat=_LATENCY_RUNS)
    with ThreadPoolExecutor(concurrent_batches) as executor:
        busy = [_burst(executor, score_one, concurrent_batches) for _ in range(_BURSTS)]
    return Sample(min(alone), min(busy))


def _burst(executor: ThreadPoolExecutor, call: Callable[[], object], concurrent_batches: int) -> float:
    """CPU seconds of one call while every slot is busy for a moment."""
    end = time.perf_counter() + _BURST_SECONDS
    used_before = time.process_time()
    calls = sum(executor.map(lambda _: _repeat_until(end, call), range(concurrent_batches)))
    return (time.process_time() - used_before) / calls


def _repeat_until(end: float, call: Callable[[], object]) -> int:
    calls = 1
    call()
    while time.perf_counter() < end:
        call()
        calls += 1
    return calls

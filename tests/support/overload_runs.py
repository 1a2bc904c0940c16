"""Overload runs that were never run: what an honest service would have shown."""

from dataclasses import replace
from typing import Any

from turnscore_load.answers import Answer
from turnscore_load.calls import CallRecord, Stage
from turnscore_load.overload.run import OverloadRun, OverloadSettings, Step
from turnscore_load.sampling import Sample

SETTINGS = OverloadSettings()
GOOD = Answer(outcome="answered")


def calls(count: int, seconds: float, took_ms: float, answer: Answer = GOOD, late_ms: float = 0) -> list[CallRecord]:
    """Evenly over that many seconds from 0 on, the last one done when they are over."""
    done = [seconds * (number + 1) / count for number in range(count)]
    return [
        CallRecord(due_at=at - took_ms / 1000, sent_at=at - (took_ms - late_ms) / 1000, done_at=at, answer=answer)
        for at in done
    ]


def honest_run(**change: Any) -> OverloadRun:
    """Peak 20 a second; then 200 a second for 60 s, of which 19 are answered, 1 expires and the rest is refused."""
    overload = [
        *calls(19 * 60, 60, 800),
        *calls(60, 60, 1000, Answer(outcome="expired")),
        *calls(180 * 60, 60, 5, Answer(outcome="refused", retry_after_seconds=1.0)),
    ]
    samples = [
        Sample(
            seconds=second / 2,
            rss_bytes=500 * 1024 * 1024,
            handles=100,
            threads=20,
            cpu_seconds=0.75 * second,
            machine_cpu_seconds=0.8 * second,
        )
        for second in range(134)
    ]
    run = OverloadRun(
        settings=SETTINGS,
        normal=Stage(calls(100, 5, 50), 0, 5),
        steps=[Step(clients, Stage(calls(6 * min(20, 10 * clients), 6, 100), 0, 6)) for clients in (1, 2, 4)],
        peak=Step(2, Stage(calls(480, 24, 100), 0, 24)),
        overload=Stage(overload, 0, 60),
        recovery=Stage([*calls(10, 0.5, 900), *calls(140, 7, 50)[10:]], 0, 7),
        samples=samples,
        generator_cpu_share=0.05,
    )
    return replace(run, **change)

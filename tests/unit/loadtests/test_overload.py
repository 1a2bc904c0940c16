"""The overload test: each of its claims is told when it is broken, and the stages do what they say."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import psutil
import pytest
from support.overload_runs import calls, honest_run
from support.plain_server import REFUSED, SCORED, Reply, plain_server
from turnscore_load.answers import Answer
from turnscore_load.calls import CallRecord, Stage
from turnscore_load.overload import run as overload_module
from turnscore_load.overload.report import checks, report
from turnscore_load.overload.run import OverloadRun, OverloadSettings, TooMuchError, run_overload

MIB = 1024 * 1024


def broken(run: OverloadRun) -> list[str]:
    return [each.claim for each in checks(run) if not each.is_kept]


def test_an_honest_run_keeps_every_claim():
    assert broken(honest_run()) == []


def with_calls(more: Sequence[CallRecord]) -> OverloadRun:
    run = honest_run()
    return replace(run, overload=Stage([*run.overload.calls, *more], 0, 60))


def with_samples(**change: int) -> OverloadRun:
    run = honest_run()
    return replace(run, samples=[replace(each, **change) if each.seconds > 40 else each for each in run.samples])


def after(found: list[CallRecord]) -> OverloadRun:
    return honest_run(recovery=Stage(found, 0, 7))


BROKEN_RUNS = [
    (honest_run(overload=Stage(calls(17 * 60, 60, 800), 0, 60)), "goodput"),
    (honest_run(overload=Stage(calls(30 * 60, 60, 1100), 0, 60)), "goodput"),
    (with_calls(calls(30, 60, 1500)), "p99 of the accepted"),
    (with_calls(calls(1, 60, 5, Answer(outcome="failed", why="status 503"))), "every request answered"),
    (with_calls(calls(1, 60, 5, Answer(outcome="failed", why="no answer"))), "every request answered"),
    (with_samples(rss_bytes=520 * MIB), "memory flat"),
    (with_samples(threads=21), "threads flat"),
    (after(calls(70, 7, 80)), "normal latency"),
    (after([*calls(100, 7, 50), *calls(20, 7, 120)]), "normal latency"),
    (after([*calls(100, 7, 50), *calls(1, 7, 5, Answer(outcome="refused"))]), "normal latency"),
    (after(calls(10, 1, 50)), "normal latency"),
    (with_calls(calls(200, 60, 900, Answer(outcome="refused"), late_ms=400)), "the generator kept up"),
]


@pytest.mark.parametrize(("run", "claim"), BROKEN_RUNS)
def test_each_claim_is_told_when_it_is_broken(run: OverloadRun, claim: str):
    assert any(each.startswith(claim) for each in broken(run))
    assert len(broken(run)) <= 2  # an answer that is late is neither goodput nor in time


def test_the_number_of_connections_is_the_generators_doing():
    assert broken(with_samples(handles=900)) == []


def test_when_latency_was_normal_again_is_told():
    [found] = [each.found for each in checks(honest_run()) if each.claim.startswith("normal")]
    assert "from 0." in found
    [never] = [each.found for each in checks(after(calls(70, 7, 80))) if each.claim.startswith("normal")]
    assert "never again" in never


def test_the_report_shows_each_stage_and_each_claim():
    run = honest_run()
    text = report(run, checks(run))
    assert "| 2 clients | 20.0 | 120 | 0 | 0 | 0 | 100 | 100 | 0 |" in text
    assert "| 200 a second, open loop | 19.0 | 1140 | 10800 | 60 | 0 | 800 | 800 | 5 |" in text
    assert "| memory flat | 500.0 -> 500.0 MiB, allowed 10.0 MiB more | yes |" in text
    assert "CPUs used: 1.50 by the service, 0.05 by the generator, 0.05 by others." in text
    assert "not to be trusted" not in text


def test_a_machine_that_others_used_is_told():
    run = honest_run()
    busy = replace(run, samples=[replace(each, machine_cpu_seconds=2 * each.seconds) for each in run.samples])
    assert "0.45 by others. The machine was not idle: the figures are not to be trusted." in report(busy, checks(busy))


QUICK = OverloadSettings(
    factor=4, seconds=1.0, stage_seconds=0.2, probe_seconds=0.2, recovery_seconds=0.1, sample_seconds=0.05
)


async def test_a_whole_run_against_a_server_of_known_capacity():
    room = asyncio.Semaphore(4)
    waiting = 0

    async def honest(path: str, body: bytes) -> Reply:
        nonlocal waiting
        if waiting >= 8:
            return REFUSED
        waiting += 1
        async with room:
            await asyncio.sleep(0.05)
        waiting -= 1
        return SCORED

    async with plain_server(honest) as port:
        for _ in range(3):  # a machine that stands still for a stage has less capacity in it
            answer: list[str] = []
            run = await run_overload(port, [psutil.Process()], replace(QUICK, stage_seconds=0.4), answer.append)
            if run.peak.clients >= 4 and run.peak_goodput > 20:
                break
    assert [step.clients for step in run.steps][:3] == [1, 2, 4]
    assert run.peak.clients >= 4
    assert 20 < run.peak_goodput <= 80  # four at a time, each 50 ms
    assert len(run.overload.calls) == pytest.approx(4 * run.peak_goodput, abs=2)
    assert run.overload.count("refused") > run.overload.count("answered") > 0
    assert run.overload.count("failed") == 0
    assert run.recovery.began_at >= run.overload.began_at + 1.0
    assert run.recovery.count("answered") > 0
    assert 0 < run.generator_cpu_share < 1.5
    assert len(answer) == len(run.steps) + 3


async def test_a_server_that_drops_calls_is_found_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(overload_module, "MAX_CLIENTS", 2)
    numbers = iter(range(1_000_000))

    async def rude(path: str, body: bytes) -> Reply:
        await asyncio.sleep(0.005)
        return None if next(numbers) % 50 == 0 else SCORED

    async with plain_server(rude) as port:
        run = await run_overload(port, [psutil.Process()], QUICK, lambda _: None)
    whys = {call.answer.why for call in run.overload.calls if call.answer.outcome == "failed"}
    assert whys == {"the connection was lost: closed"}


async def test_a_service_without_goodput_ends_the_test_with_a_sentence():
    async def expire(path: str, body: bytes) -> Reply:
        return 504, {}, b"{}"

    async with plain_server(expire) as port:
        with pytest.raises(TooMuchError, match="0 requests"):
            await run_overload(port, [psutil.Process()], replace(QUICK, stage_seconds=0.05), lambda _: None)


async def test_more_requests_than_can_be_prepared_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(overload_module, "MAX_REQUESTS", 3)

    async def score(path: str, body: bytes) -> Reply:
        return SCORED

    async with plain_server(score) as port:
        with pytest.raises(TooMuchError, match="from 1 to 3"):
            await run_overload(port, [psutil.Process()], replace(QUICK, stage_seconds=0.05), lambda _: None)

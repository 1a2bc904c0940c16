"""Each claim of a scenario holds of an honest run, and is refused by what breaks it; runs are made up."""

from dataclasses import replace

import pytest
from turnscore_load.answers import CallAnswer, CallRecord, Stage
from turnscore_load.sampling import ProcessSample
from turnscore_load.scenarios import overload

MIB = 2**20


def failed(checks):
    return [each.claim for each in checks if each.holds is False]


def calls(count, seconds, took_ms, outcome="answered", why="", late_ms=0):
    """Evenly over that many seconds from 0 on, the last one done when they are over."""
    answer = CallAnswer(outcome=outcome, why=why)
    done = [seconds * (number + 1) / count for number in range(count)]
    return [
        CallRecord(due_at=at - took_ms / 1000, sent_at=at - (took_ms - late_ms) / 1000, done_at=at, answer=answer)
        for at in done
    ]


OVERLOADED = [*calls(19 * 60, 60, 800), *calls(60, 60, 1000, "expired"), *calls(180 * 60, 60, 5, "refused")]


def samples(**late):
    """Of a run of 67 seconds; `late` is what differs after 40."""
    usual = {"rss_bytes": 500 * MIB, "handles": 100, "threads": 20}
    return [ProcessSample(seconds=second / 2, **{**usual, **(late if second > 80 else {})}) for second in range(134)]


def overload_run(more=(), **change):
    """Peak 20 a second; then 200 a second for 60 s, of which 19 are answered, 1 expires and the rest is refused."""
    run = overload.OverloadRun(
        normal=Stage(calls(100, 5, 50), 0, 5),
        search={clients: Stage(calls(6 * min(20, 10 * clients), 6, 100), 0, 6) for clients in (1, 2, 4)},
        peak_clients=2,
        peak=Stage(calls(480, 24, 100), 0, 24),
        overload=Stage([*OVERLOADED, *more], 0, 60),
        recovery=Stage([*calls(10, 0.5, 900), *calls(140, 7, 50)[10:]], 0, 7),
        samples=samples(),
    )
    return replace(run, **change)


OVERLOAD = overload.Overload()


def test_an_honest_overload_keeps_every_claim():
    run = overload_run(samples=samples(handles=900))  # connections are the generator's
    assert failed(OVERLOAD.checks(run)) == []
    [text] = OVERLOAD.report(run)
    assert "| 200 a second, open loop | 19.0 | 1140 | 10800 | 60 | 0 | 800 | 800 | 5 |" in text


@pytest.mark.parametrize(
    ("run", "claim"),
    [
        (overload_run(overload=Stage(calls(17 * 60, 60, 800), 0, 60)), "goodput"),
        (overload_run(calls(30, 60, 1500)), "p99 of the accepted"),
        (overload_run(calls(1, 60, 5, "failed", "status 503")), "every request answered"),
        (overload_run(samples=samples(rss_bytes=520 * MIB)), "memory flat"),
        (overload_run(recovery=Stage([*calls(100, 7, 50), *calls(1, 7, 5, "refused")], 0, 7)), "normal latency"),
        (overload_run(calls(200, 60, 900, "refused", late_ms=400)), "the generator kept up"),
    ],
)
def test_each_claim_of_an_overload_can_break(run, claim):
    broken = failed(OVERLOAD.checks(run))
    assert any(each.startswith(claim) for each in broken)
    assert len(broken) <= 2  # an answer that is late is neither goodput nor in time

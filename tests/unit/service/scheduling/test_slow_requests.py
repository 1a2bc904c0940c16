"""A slow request leaves one line with its stages and no text; a flood of them leaves ten a second."""

import logging

import pytest
from support.fakes import FakeScorer, ManualClock
from turnscore_service.scheduling.slow_requests import SlowLog
from turnscore_service.settings.service import Settings
from turnscore_wire import BatchReply, ScoreReply, Timing


def reply(**stages):
    return ScoreReply(request_id="r", scores={}, timing_ms=Timing(total=sum(stages.values()), **stages))


def lines(caplog):
    return [vars(each) for each in caplog.records if each.name == "turnscore.slow"]


def test_the_line_has_the_largest_time_of_each_stage(caplog):
    one = reply(tokenize=100, queue=200, inference=300, cache=0)
    two = reply(tokenize=0, queue=700, inference=200, cache=50)
    log = SlowLog(1.0)
    log.note("http score_batch", "ok", 0.99, BatchReply(request_id="r", results=[one, two]))
    assert lines(caplog) == []
    log.note("http score_batch", "ok", 1.5, BatchReply(request_id="r", results=[one, two]))
    [line] = lines(caplog)
    found = [line[name] for name in ("seconds", "cache", "tokenize", "queue", "inference", "elsewhere")]
    assert found == pytest.approx([1.5, 0.05, 0.1, 0.7, 0.3, 0.35])


def test_a_flood_leaves_ten_lines_a_second_and_their_number(caplog):
    clock = ManualClock()
    log = SlowLog(0.1, clock)
    for _ in range(500):
        log.note("http score", "deadline_exceeded", 3.0, None)
    assert len(lines(caplog)) == 10
    clock.seconds += 0.1
    log.note("http score", "deadline_exceeded", 3.0, None)
    assert lines(caplog)[-1]["omitted"] == 490


@pytest.mark.parametrize(("seconds", "wanted"), [(1e-9, 1), (0, 0)])
async def test_the_setting_decides_and_no_text_is_logged(serve, caplog, seconds, wanted):
    caplog.set_level(logging.WARNING)
    async with serve(Settings(log_slow_seconds=seconds), fake=FakeScorer()) as (client, _):
        await client.post("/v1/score", json={"context": [], "response": "unspeakable"})
    found = lines(caplog)
    assert [each["call"] for each in found] == ["http score"] * wanted
    assert "unspeakable" not in str(found)

"""Many streams: what is no right answer, which claim each fault breaks, and a small run against the real door."""

import asyncio
from collections import Counter
from dataclasses import replace

import psutil
import pytest
from support.fakes import FakeScorer
from support.grpc_serving import grpc_server, settings_with
from support.listening import listening
from turnscore_load.address import Ports
from turnscore_load.sampling import Sample
from turnscore_load.streams import run as streams_module
from turnscore_load.streams.report import checks, report, stream_kib
from turnscore_load.streams.run import Moment, StreamsRun, StreamsSettings, StreamsTest, Talk
from turnscore_load.streams.stream import Tally, WrongReplyError, check_reply
from turnscore_service.api.http.app import HttpApi
from turnscore_wire.v1 import turnscore_pb2

MIB = 2**20
OPENED = turnscore_pb2.ConversationReply(opened={"request_id": "a"})
SCORED = {"index": 3, "scores": {"fake": {"value": 0.5}}}


def scored(**fields: object) -> turnscore_pb2.ConversationReply:
    return turnscore_pb2.ConversationReply(scored={**SCORED, **fields})


def test_the_right_answers_are_taken():
    check_reply(OPENED, "opened", 0, ["fake"])
    check_reply(turnscore_pb2.ConversationReply(ack={"index": 2}), "ack", 2, ["fake"])
    check_reply(scored(), "scored", 3, ["fake"])


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (OPENED, "opened instead of scored"),
        (turnscore_pb2.ConversationReply(), "a message of no known kind instead of scored"),
        (turnscore_pb2.ConversationReply(error={"message": "no"}), "error instead of scored"),
        (scored(index=5), "an answer out of order"),
        (scored(errors={"fake": {"code": "ERROR_CODE_INTERNAL"}}), "not scored: ERROR_CODE_INTERNAL"),
        (scored(scores={}), "not every scorer answered"),
    ],
)
def test_any_other_answer_is_a_problem(reply: turnscore_pb2.ConversationReply, sentence: str):
    with pytest.raises(WrongReplyError, match=sentence):
        check_reply(reply, "scored", 3, ["fake"])


def honest_run() -> StreamsRun:
    settings = StreamsSettings(streams=100, connections=10)
    samples = [
        Sample(
            seconds=float(each), rss_bytes=500 * MIB, handles=50, threads=20, cpu_seconds=0.0, machine_cpu_seconds=0.0
        )
        for each in range(100)
    ]
    talk = Talk(
        full=Moment(510 * MIB, 100, 3),
        cut=Moment(509 * MIB, 70, 2),
        cut_streams=30,
        finished=70,
        generator_cpus=0.3,
        service_cpus=1.2,
    )
    rest, silent = Moment(500 * MIB, 0, 0), Moment(504 * MIB, 100, 0)
    closed = Moment(506 * MIB, 0, 0)
    tally = Tally(said=500, heard=500, took_ms=[10.0] * 500)
    return StreamsRun(
        settings=settings,
        processes=3,
        rest=rest,
        silent=silent,
        talk=talk,
        closed=closed,
        rounds=[closed] * 3,
        tally=tally,
        samples=samples,
    )


def broken(run: StreamsRun) -> list[str]:
    return [each.claim for each in checks(run) if not each.is_kept]


def with_talk(**change: object) -> StreamsRun:
    run = honest_run()
    return replace(run, talk=replace(run.talk, **change))


def with_tally(**change: object) -> StreamsRun:
    return replace(honest_run(), tally=Tally(**{**vars(honest_run().tally), **change}))


BROKEN_RUNS = [
    (replace(honest_run(), silent=Moment(504 * MIB, 99, 0)), "100 streams open at once"),
    (with_talk(full=Moment(510 * MIB, 99, 0)), "100 streams open at once"),
    (with_tally(took_ms=[10.0] * 499), "every system turn scored"),
    (with_tally(problems=Counter({"an answer out of order": 1})), "every system turn scored"),
    (with_tally(said=99, took_ms=[10.0] * 99), "every system turn scored"),
    (with_tally(took_ms=[1500.0] * 500), "p99 of the scores"),
    (replace(honest_run(), silent=Moment(530 * MIB, 100, 0)), "an open stream takes at most"),
    (with_talk(cut=Moment(509 * MIB, 71, 0)), "of 30 streams cut"),
    (with_talk(finished=69), "the others went on"),
    (replace(honest_run(), closed=Moment(506 * MIB, 1, 0)), "nothing is open"),
    (replace(honest_run(), rounds=[Moment(506 * MIB, 0, 1)] * 3), "nothing is open"),
    (replace(honest_run(), rounds=[Moment(506 * MIB, 0, 0), Moment(520 * MIB, 0, 0)]), "1 more rounds"),
]


def test_an_honest_run_keeps_every_claim():
    assert broken(honest_run()) == []


@pytest.mark.parametrize(("run", "claim"), BROKEN_RUNS)
def test_each_fault_breaks_its_claim_alone(run: StreamsRun, claim: str):
    [found] = broken(run)
    assert found.startswith(claim)


def test_the_report_states_the_memory_of_a_stream():
    run = honest_run()
    assert stream_kib(run) == pytest.approx(4 * 1024 / 100)
    text = report(run, checks(run))
    assert "| all streams open and silent | 100 | 504.0 | +4.0 |" in text
    assert "| 41.0 KiB silent | yes |" in text
    assert "1.20 by the service, 0.30 by the generator" in text


@pytest.mark.parametrize(
    "change",
    [{"streams": 0}, {"streams": 2001}, {"connections": 1}, {"connections": 6}, {"cut_share": 0}, {"cut_share": 1},
     {"pace": 0}, {"seconds": 0}, {"scorers": ()}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(change: dict[str, object]):
    with pytest.raises(ValueError, match=r"streams|share"):
        replace(StreamsSettings(streams=5, connections=5), **change)


QUICK = StreamsSettings(
    streams=6, connections=4, seconds=1.0, pace=60, cut_share=0.5, scorers=("fake",), settle_seconds=0.1
)


async def test_a_small_run_against_the_real_door_is_answered_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams_module, "_SAMPLE_SECONDS", 0.02)
    answer: list[str] = []
    async with (
        grpc_server(settings_with(), fake=FakeScorer()) as (server, runtime),
        listening(HttpApi(runtime)) as address,
    ):
        ports = Ports(int(address.partition(":")[2]), server.port or 0)
        run = await StreamsTest(ports, [psutil.Process()], QUICK, answer.append).run()
        await asyncio.wait_for(runtime.conversations.wait_until_empty(), 30)
    # Memory and CPU are the whole test process's, and how soon a score comes is the machine's: they say nothing here.
    assert [each for each in broken(run) if not each.startswith(("an open stream", "2 more rounds", "p99"))] == []
    assert run.talk.cut_streams == 4  # connections 0 and 1 of four, with streams 0, 1, 4 and 5
    assert run.talk.finished == 2
    assert run.tally.scored >= 6
    assert "round 3, all open: 6 streams open" in answer[-2]


async def test_a_service_that_refuses_a_scorer_is_found_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams_module, "_SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr(streams_module, "_GONE_SECONDS", 0.1)
    async with (
        grpc_server(settings_with(), fake=FakeScorer()) as (server, runtime),
        listening(HttpApi(runtime)) as address,
    ):
        ports = Ports(int(address.partition(":")[2]), server.port or 0)
        settings = replace(QUICK, scorers=("mood",), seconds=0.1)
        run = await StreamsTest(ports, [psutil.Process()], settings, lambda _: None).run()
    assert run.tally.scored == 0
    assert {"6 streams open at once", "every system turn scored, every answer in order"} <= set(broken(run))

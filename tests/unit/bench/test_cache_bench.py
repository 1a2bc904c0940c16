"""The benchmark of the score cache: what it sends, what it makes of the numbers, and the Redis it starts."""

import asyncio
import json
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from turnscore_bench.cache.faults import faults as every_fault
from turnscore_bench.cache.redis_process import RedisProcess, measure_locks
from turnscore_bench.cache.rounds import Sizes
from turnscore_bench.cache.samples import Duplicates, FaultSample, Findings, Sample, percentiles, read_findings
from turnscore_bench.cache.tables import write_tables
from turnscore_bench.cache.verdicts import Verdict, judge
from turnscore_bench.cache.ways import WAYS, Question, Requests, Way, pack, read_scores
from turnscore_bench.harness.traffic import BenchTurn, Traffic
from turnscore_models import read_bundle, starter_bundles

BY_KEY = {way.key: way for way in WAYS}
SINGLE, BATCH = Question("engagement", 1, 1), Question("engagement", 16, 8)


@pytest.fixture(scope="module")
def requests() -> Requests:
    bundle = read_bundle(next(folder for folder in starter_bundles() if folder.name == "engagement"))
    return Requests(Traffic(bundle.path_of(bundle.manifest.tokenizer), bundle.manifest.token_limit), known=8)


def sample(way: str, cpu_ms: float, wall_ms: float = 1.0, number: int = 0, question: Question = SINGLE) -> Sample:
    return Sample(
        round=number,
        way=way,
        question=question,
        turns=1000,
        wall_seconds=wall_ms,
        cpu_seconds=cpu_ms,
        redis_cpu_seconds=0.0,
        p50_ms=1.0,
        p99_ms=2.0,
    )


def verdict(findings: Findings, claim: str) -> list[bool | None]:
    return [each.is_met for each in judge(findings) if each.claim.startswith(claim)]


def test_fresh_turns_never_come_twice(requests: Requests):
    bodies = [body for _ in range(3) for body in requests.of(BY_KEY["miss_both"], SINGLE, 40)]
    assert len(set(bodies)) == 120


def test_known_turns_are_the_same_every_time(requests: Requests):
    known = requests.known(SINGLE)
    assert requests.of(BY_KEY["hit_redis"], SINGLE, 20) == (known * 3)[:20]


def test_half_of_the_turns_are_repeats_of_the_other_half(requests: Requests):
    bodies = requests.of(BY_KEY["half_both"], SINGLE, 40)
    assert sorted(bodies)[::2] == sorted(bodies)[1::2]
    assert len(set(bodies)) == 20


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.key)
def test_only_the_service_without_a_cache_is_asked_to_bypass_it(requests: Requests, way: Way):
    body = json.loads(requests.of(way, SINGLE, 2)[0])
    assert body.get("cache") == ("bypass" if way.key in ("off", "half_off") else None)
    assert body["scorers"] == ["engagement"]


def test_turns_of_a_batch_are_its_items():
    turns = [BenchTurn("hi", str(number)) for number in range(32)]
    bodies = [json.loads(body) for body in pack(turns, BATCH)]
    assert [item["response"] for body in bodies for item in body["items"]] == [turn.reply for turn in turns]
    assert [len(body["items"]) for body in bodies] == [16, 16]


@pytest.mark.parametrize("question", [SINGLE, BATCH, Question("fed", 1, 32)], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.key)
def test_a_measurement_has_whole_requests_and_some_for_each_client(way: Way, question: Question):
    count = Sizes(engagement=90, fed=30, hits=720, faults=180).of(way, question)
    assert count % (2 * question.turns_per_request) == 0
    assert count // question.turns_per_request >= 2 * question.clients


def test_scores_are_read_from_replies_of_either_call():
    one = {"scores": {"fed": {"value": 1}}}
    assert read_scores([json.dumps(one)], "fed") == [{"value": 1}]
    assert read_scores([json.dumps({"results": [one, one]})], "fed") == [{"value": 1}] * 2


def test_a_machine_that_becomes_slower_between_rounds_changes_no_ratio():
    slower = [1.0, 3.0, 2.0]
    findings = Findings(
        samples=[sample(way, cpu * factor, number=number) for number, factor in enumerate(slower)
                 for way, cpu in (("off", 10.0), ("miss_both", 10.2))]
    )  # fmt: skip
    assert findings.ratio("miss_both", "off", SINGLE, lambda each: each.cpu_ms) == pytest.approx(1.02)


@pytest.mark.parametrize(("scorer", "most"), [("engagement", 1 / 3), ("fed", 1 / 20)])
def test_a_hit_is_measured_by_its_share_of_a_miss(scorer: str, most: float):
    question = Question(scorer, 1, 32)
    for share, is_met in ((most - 0.01, True), (most + 0.01, False)):
        samples = [sample("miss_redis", 100, question=question), sample("hit_redis", 100 * share, question=question)]
        assert verdict(Findings(samples=samples), "CPU of a Redis hit") == [is_met]


@pytest.mark.parametrize("way", ["miss_local", "miss_both"])
def test_a_miss_may_cost_a_twentieth_more_than_no_cache(way: str):
    for cost, is_met in ((1.04, True), (1.06, False)):
        assert verdict(Findings(samples=[sample("off", 1.0), sample(way, cost)]), "CPU of a miss") == [is_met]


def test_throughput_at_half_repeats_is_compared_with_none_where_several_ask():
    for wall_ms, is_met in ((0.55, True), (0.6, False)):
        for question, expected in ((Question("fed", 1, 32), is_met), (SINGLE, None)):
            walls = {"off": 1.0, "half_off": 0.7, "half_both": wall_ms}
            samples = [sample(way, 1, wall, question=question) for way, wall in walls.items()]
            assert verdict(Findings(samples=samples), "Throughput") == [expected]


def faults(**p99s: tuple[float, ...]) -> Findings:
    named = {
        "healthy": "healthy",
        "again": "healthy again, after killed",
        "closed": "killed, breaker closed",
        "open": "killed, breaker open",
    }
    return Findings(
        faults=[
            FaultSample(round=number, state=named[state], requests=100, p50_ms=1.0, p99_ms=p99)
            for state, several in p99s.items()
            for number, p99 in enumerate(several)
        ]
    )


def test_latency_may_rise_while_the_breaker_is_closed_and_not_once_it_is_open():
    healthy = (10.0, 12.0, 11.0)
    assert verdict(faults(healthy=healthy, closed=(70, 71, 70), open=(12, 13, 13)), "Rise") == [True, True]
    assert verdict(faults(healthy=healthy, closed=(72, 71, 72), open=(12, 14, 14)), "Rise") == [False, False]


def test_latency_is_compared_with_that_of_every_healthy_round():
    healthy = {"healthy": (10.0, 10.0), "again": (14.0, 14.0)}
    assert verdict(faults(**healthy, open=(15.9,)), "Rise") == [True]
    assert verdict(faults(**healthy, open=(16.1,)), "Rise") == [False]


def test_one_request_without_scores_is_told():
    assert verdict(Findings(samples=[sample("off", 1)]), "Requests") == [True]
    failed = Findings(faults=[FaultSample(round=0, state="healthy", requests=100, p50_ms=1.0, p99_ms=2.0, failed=1)])
    assert verdict(failed, "Requests") == [False]


def test_the_tables_hold_everything_that_was_measured():
    findings = faults(healthy=(10.0,), closed=(99.0,))
    findings.captions = {"costs": "Measured nowhere.", "faults": "Measured nowhere."}
    findings.samples = [sample("miss_redis", 10.0), sample("hit_redis", 5.0)]
    findings.duplicates = [Duplicates(traffic="repeats at once", turns=128, distinct=64, computed=80, cpu_seconds=1.28)]
    findings.lock_us = {1: 87.4}
    text = write_tables(findings)
    assert text.startswith("Measured nowhere.")
    assert "| engagement, one turn per request, 1 client | 1/2.0 | at most 1/3 | **missed** |" in text
    assert "| hit, Redis | 5.00 | 0.00 | 1,000 | 1.00 | 2.00 |" in text
    assert "| killed, breaker closed | 1.0 | 99.0 | 99.0 to 99.0 | 1 |" in text
    assert "| repeats at once | 128 | 64 | 80 | 25.0% | 10.00 |" in text
    assert "87 µs with 1 at once" in text


def test_what_a_run_wrote_can_be_read_again(tmp_path: Path):
    findings = faults(healthy=(10.0,), closed=(99.0,))
    findings.captions, findings.lock_us = {"costs": "Measured nowhere."}, {32: 56.0}
    findings.samples, findings.duplicates = (
        [sample("off", 10.0)],
        [Duplicates(traffic="at once", turns=128, distinct=64, computed=80, cpu_seconds=1.28)],
    )
    file = tmp_path / "results.json"
    file.write_text(json.dumps(findings.to_json()))
    assert read_findings(file) == findings
    assert read_findings(tmp_path / "none.json") == Findings()


def test_a_verdict_says_in_a_word_whether_it_was_met():
    words = [Verdict(claim="", where="", measured="", target="", is_met=is_met).word for is_met in (True, False, None)]
    assert words == ["met", "**missed**", "-"]


def test_percentiles_are_of_the_sorted_latencies():
    assert percentiles([float(number) for number in range(100, 0, -1)]) == (50.5, 100.0)


@pytest.mark.parametrize("place", range(5))
def test_a_redis_recovers_from_every_fault(tmp_path: Path, place: int):
    redis = RedisProcess(tmp_path / "redis")
    redis.start()
    fault = every_fault(redis)[place]
    try:
        fault.begin()
        with redis.client() as client, pytest.raises(RedisError):
            client.set("key", "value")
        fault.end()
        with redis.client() as client:
            assert client.set("key", "value")
    finally:
        redis.kill()


def test_a_redis_is_killed_and_started_again_on_its_port(tmp_path: Path):
    redis = RedisProcess(tmp_path / "redis")
    redis.start()
    try:
        assert redis.version()
        assert redis.cpu_seconds() >= 0
        assert asyncio.run(measure_locks(redis.url, 4)) > 0
        redis.kill()
        with redis.client() as client, pytest.raises(RedisConnectionError):
            client.ping()
        redis.start()
        with redis.client() as client:
            assert client.ping()
            assert client.dbsize() == 0
    finally:
        redis.kill()

"""API keys at every transport: who is let in, what stays open, what a key may spend, and what is written of it."""

import asyncio
import hashlib
import io
import itertools
import json
import logging

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from support.conditions import until
from support.fakes import FakeReaction, FakeScorer, candidate_version, sample
from support.transports import METHODS, both_transports, error_of, message_of, refusal, serve_transports, settings_with
from turnscore_service.log_setup import set_up_logging
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_wire import ErrorReply
from turnscore_wire.v1 import to_fields, turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

KEY, SLOW_KEY = "ts_a-key-for-tests", "ts_a-slow-key-for-tests"
USER, SYSTEM = {"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "a b"}
CREDENTIALS = [("authorization", f"Bearer {KEY}"), ("x-api-key", KEY)]
STRANGERS = [None, ("authorization", "Bearer ts_another"), ("x-api-key", "ts_another")]
CALLS = [
    ("score", {"response": "a"}),
    ("score_batch", {"items": [{"response": "a"}, {"response": "b"}, {"response": ""}]}),
    ("score_dialogue", {"turns": [USER, SYSTEM, USER, SYSTEM, SYSTEM]}),
    ("rank", {"candidates": ["a", "b", "c", "d"]}),
]


def sha256(key):
    return hashlib.sha256(key.encode()).hexdigest()


KEYS = {
    "chatbot": {"sha256": sha256(KEY)},
    "slow": {"sha256": sha256(SLOW_KEY), "turns_per_second": 0.001, "burst": 10},
}


@pytest.fixture
async def transports():
    async with serve_transports({"keys": KEYS}) as opened:
        yield opened


async def test_a_changed_file_of_keys_is_in_force_though_nobody_has_called_since(tmp_path, caplog):
    caplog.set_level(logging.INFO, "turnscore.access")
    file = tmp_path / "keys.toml"
    file.write_text(f'[old]\nsha256 = "{sha256("old")}"\n')
    async with serve_transports({"keys_file": file}) as transports:
        file.write_text(f'[new]\nsha256 = "{sha256("new")}"\n')
        await until(lambda: "API keys read" in caplog.text)
        codes = {
            key: (await transports.http.get("/v1/models", headers={"x-api-key": key})).status_code
            for key in ("new", "old")
        }
    assert codes == {"new": 200, "old": 401}


@pytest.mark.parametrize("credentials", CREDENTIALS)
async def test_a_known_key_opens_every_transport(transports, credentials):
    scored = await transports.http.post("/v1/score", json={"response": "a b"}, headers=[credentials])
    assert scored.json()["scores"]["fake"]["value"] == 0.02
    assert (await transports.http.get("/v1/models", headers=[credentials])).status_code == 200
    stub = TurnScorerStub(transports.grpc)
    reply = await stub.Score(turnscore_pb2.ScoreRequest(response="a b"), metadata=[credentials])
    assert reply.scores["fake"].value == 0.02
    stream = stub.ScoreStream(metadata=[credentials])
    await stream.write(turnscore_pb2.ConversationMessage(turn={"speaker": "SPEAKER_USER", "text": "hi"}))
    assert (await stream.read()).ack.index == 0
    stream.cancel()
    async with connect(transports.websocket, additional_headers=[credentials]) as socket:
        await socket.send(json.dumps({"turn": USER}))
        assert "ack" in json.loads(await socket.recv())


@pytest.mark.parametrize("credentials", STRANGERS)
async def test_without_a_known_key_every_transport_is_shut(transports, credentials):
    headers = [credentials] if credentials else []
    for response in [
        *[await transports.http.post(f"/v1/{call}", json=fields, headers=headers) for call, fields in CALLS],
        await transports.http.get("/v1/models", headers=headers),
    ]:
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == 'Bearer realm="turnscore"'
        assert ErrorReply.model_validate_json(response.content).error.code == "unauthenticated"
    stub = TurnScorerStub(transports.grpc)
    for method in ("Score", "ScoreBatch", "ScoreDialogue", "Rank", "Models"):
        empty = transports.grpc.unary_unary(f"/turnscore.v1.TurnScorer/{method}")(b"", metadata=headers)
        error = await refusal(empty)
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED
        assert error_of(error).error.code == "unauthenticated"
    assert (await refusal(stub.ScoreStream(metadata=headers).read())).code() == grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(InvalidStatus) as refused:
        await connect(transports.websocket, additional_headers=headers)
    assert refused.value.response.status_code == 401
    assert refused.value.response.headers["www-authenticate"] == 'Bearer realm="turnscore"'


async def test_a_page_offers_its_key_as_a_subprotocol(transports):
    async with connect(transports.websocket, subprotocols=["turnscore.v1", f"turnscore.key.{KEY}"]) as socket:
        assert socket.subprotocol == "turnscore.v1"
        await socket.send(json.dumps({"turn": USER}))
        assert "ack" in json.loads(await socket.recv())
    with pytest.raises(InvalidStatus) as refused:
        await connect(transports.websocket, subprotocols=["turnscore.v1", "turnscore.key.ts_another"])
    assert refused.value.response.status_code == 401


async def test_health_and_what_describes_the_service_stay_open(transports):
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json", "/docs"):
        assert (await transports.http.get(path)).status_code == 200, path
    health = health_pb2_grpc.HealthStub(transports.grpc)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING

    def describe():
        with grpc.insecure_channel(transports.target) as channel:
            return len(list(ProtoReflectionDescriptorDatabase(channel).get_services()))

    assert await asyncio.to_thread(describe) == 3


async def test_metrics_need_a_key_where_that_is_wanted():
    async with serve_transports({"keys": KEYS, "metrics_need_key": True}) as transports:
        assert (await transports.http.get("/metrics")).status_code == 401
        assert (await transports.http.get("/metrics", headers=[CREDENTIALS[0]])).status_code == 200


async def test_a_body_is_not_read_before_the_key(transports):
    reader, writer = await asyncio.open_connection(transports.http.base_url.host, transports.http.base_url.port)
    writer.write(b"POST /v1/score HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{")  # the rest never comes
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 401 ")
    writer.close()


async def test_a_key_that_asks_for_too_much_is_told_when_to_come_back(transports):
    slow = [("authorization", f"Bearer {SLOW_KEY}")]
    refused = sample("key_turns_total", key="slow", outcome="refused")
    items = {"items": [{"response": str(number)} for number in range(10)]}
    assert (await transports.http.post("/v1/score_batch", json=items, headers=slow)).status_code == 200
    response = await transports.http.post("/v1/score", json={"response": "a"}, headers=slow)
    told = ErrorReply.model_validate_json(response.content).error
    assert (response.status_code, told.code) == (429, "overloaded")
    assert int(response.headers["retry-after"]) > 900
    over_grpc = TurnScorerStub(transports.grpc).Score(turnscore_pb2.ScoreRequest(response="a"), metadata=slow)
    assert error_of(await refusal(over_grpc)).error.code == "overloaded"
    assert sample("key_turns_total", key="slow", outcome="refused") == refused + 2
    assert (await transports.http.get("/v1/models", headers=slow)).status_code == 200
    other = await transports.http.post("/v1/score", json={"response": "a"}, headers=[CREDENTIALS[0]])
    assert other.status_code == 200


async def test_the_log_names_the_key_and_never_holds_it(capsys):
    loggers = [logging.getLogger(name) for name in ("", "turnscore", "bentoml", "uvicorn", "uvicorn.access")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    set_up_logging("DEBUG")
    output = io.StringIO()
    for handler in logging.getLogger("turnscore").handlers:
        handler.setStream(output)
    try:
        async with serve_transports({"keys": KEYS}, log_requests=True) as transports:
            await transports.http.post("/v1/score", json={"response": "a"}, headers=[CREDENTIALS[0]])
            await transports.http.post("/v1/score", json={"response": "a"}, headers=[("x-api-key", "ts_another")])
            stub = TurnScorerStub(transports.grpc)
            await stub.Score(turnscore_pb2.ScoreRequest(response="a"), metadata=[CREDENTIALS[1]])
            offered = ["turnscore.v1", f"turnscore.key.{KEY}"]
            async with connect(transports.websocket, additional_headers=CREDENTIALS, subprotocols=offered) as socket:
                await socket.send(json.dumps({"turn": {"speaker": "system", "text": "said in private"}}))
                await socket.recv()
            with pytest.raises(InvalidStatus):
                await connect(transports.websocket, additional_headers={"x-api-key": "ts_another"})
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    requests = [(line["code"], line.get("key")) for line in lines if line["message"] == "request"]
    assert requests[:3] == [("ok", "chatbot"), ("unauthenticated", None), ("ok", "chatbot")]
    assert sorted(requests[3:], key=str) == [("departed", "chatbot"), ("unauthenticated", None)]
    assert {line["level"] for line in lines} == {"INFO"}
    for secret in (KEY, "ts_another", "said in private"):
        assert secret not in output.getvalue()


TEAMS = {
    "plain": {},
    "strict": {"thresholds": {"fake": 0.05, "sum": 9.0}, "default_scorers": ["fake", "sum"]},
    "lenient": {"thresholds": {"fake": None}, "default_scorers": ["fake"]},
    "early": {"models": ["fake:1.1.0"], "default_scorers": ["fake", "other"]},
    "late": {"models": ["fake:1.0.0"], "default_scorers": ["fake"]},
}
SUM = {"sum": {"weights": {"fake": 1.0, "other": 1.0}, "threshold": 0.0}}


def facts_of(scores):
    return {name: (score["model"].split("+")[0], score.get("label")) for name, score in scores.items()}


async def test_each_team_has_its_own_thresholds_default_scorers_and_model_in_every_call():
    fake, other = FakeScorer(), FakeScorer()
    fake.threshold = 0.02
    keys = {name: {"sha256": sha256(name), **given} for name, given in TEAMS.items()}
    settings = settings_with(auth={"keys": keys}, default_scorers=["other"], combinations=SUM)
    version = candidate_version(FakeScorer(), 0.5)
    candidates = CandidateVersions(splits=[version])
    expected = {
        "plain": [{"other": ("other:1.0.0", None)}],
        "strict": [
            {"fake": (model, label), "sum": (model, "low")}
            for model, label in (("fake:1.0.0", "low"), ("fake:1.1.0", "low"))
        ],
        "lenient": [{"fake": (model, None)} for model in ("fake:1.0.0", "fake:1.1.0")],
        "early": [{"fake": ("fake:1.1.0", None), "other": ("other:1.0.0", None)}],
        "late": [{"fake": ("fake:1.0.0", "fair")}],
    }
    async with both_transports(settings, candidates, fake=fake, other=other) as (http, stub):
        for team, allowed in expected.items():
            headers, seen = [("x-api-key", team)], []
            for number in range(12):
                asked = {"response": "a b", "conversation": f"c-{number}"}
                over_http = (await http.post("/v1/score", json=asked, headers=headers)).json()
                over_grpc = to_fields(await stub.Score(message_of("score", asked), metadata=headers))
                turns = {"turns": [USER, SYSTEM], "conversation": f"c-{number}"}
                dialogue = (await http.post("/v1/score_dialogue", json=turns, headers=headers)).json()
                stream = stub.ScoreStream(metadata=headers)
                for message in ({"open": {"conversation": f"c-{number}"}}, {"turn": {"speaker": 2, "text": "a b"}}):
                    await stream.write(turnscore_pb2.ConversationMessage(**message))
                    heard = to_fields(await stream.read())
                stream.cancel()
                replies = (over_http, over_grpc, dialogue["turns"][0], heard["scored"])
                facts = [facts_of(each["scores"]) for each in replies]
                assert facts == [facts[0]] * 4
                seen += facts[:1]
            assert all(each in allowed for each in seen)
            assert all(each in seen for each in allowed)
            ranked = (await http.post("/v1/rank", json={"candidates": ["a b"]}, headers=headers)).json()
            assert ranked["weights"].keys() == allowed[0].keys()
        models = (await http.get("/v1/models", headers=[("x-api-key", "strict")])).json()["models"]
        assert {each["scorer"]: (each.get("threshold"), each["is_default"]) for each in models} == {
            "fake": (0.05, True), "other": (None, False), "sum": (9.0, True),
        }  # fmt: skip


HEADERS = [("x-api-key", SLOW_KEY)]
AUTH = {"keys": {"slow": KEYS["slow"]}}
SMALL = {"max_items": 4, "max_candidates": 4, "max_turns": 8, "max_text_chars": 100}
NUMBERS = itertools.count()


async def ask_over_http(transports, call, fields):
    reply = await transports.http.post(f"/v1/{call}", json=fields, headers=HEADERS)
    return "ok" if reply.status_code == 200 else str(reply.json()["error"]["code"])


async def ask_over_grpc(transports, call, fields):
    method = getattr(TurnScorerStub(transports.grpc), METHODS[call])
    try:
        await method(message_of(call, fields), metadata=HEADERS, timeout=60)
    except grpc.aio.AioRpcError as error:
        return str(error_of(error).error.code)
    return "ok"


def charged(outcome="allowed"):
    return sample("key_turns_total", key="slow", outcome=outcome)


def fresh(turns):
    """A batch in which no two turns are equal: equal ones would be computed once."""
    return {"items": [{"response": f"a {next(NUMBERS)}"} for _ in range(turns)]}


REFUSED = [
    ("score_batch", {"items": [{"response": "a"}] * 40_000}, "too_large"),
    ("score_batch", {"items": [{"response": "a"}] * 5}, "too_large"),
    ("score", {"response": "a" * 101}, "too_large"),
    ("score_dialogue", {"turns": [SYSTEM] * 9}, "too_large"),
    ("rank", {"candidates": ["a"] * 5}, "too_large"),
    ("score", {"response": " "}, "invalid_request"),
    ("score", {"response": "a", "scorers": ["mood"]}, "invalid_request"),
    ("score_dialogue", {"turns": [SYSTEM, {"speaker": "system", "text": " "}]}, "invalid_request"),
    ("rank", {"candidates": ["a", "b"], "weights": {"mood": 1.0}}, "invalid_request"),
]


@pytest.mark.parametrize("ask", [ask_over_http, ask_over_grpc])
async def test_what_is_too_large_or_invalid_costs_its_key_nothing(ask):
    async with serve_transports(AUTH, limits=SMALL) as transports:
        before = charged(), charged("refused")
        for call, fields, code in REFUSED:
            assert await ask(transports, call, fields) == code
        assert (charged(), charged("refused")) == before
        items = [{"response": "a"}, {"response": ""}, {"response": "a" * 101}, {"response": "a", "scorers": ["mood"]}]
        assert await ask(transports, "score_batch", {"items": items}) == "ok"
        assert charged() == before[0] + 1


@pytest.mark.parametrize("ask", [ask_over_http, ask_over_grpc])
async def test_an_overload_costs_its_key_nothing_however_often_it_is_tried(ask):
    scorer = FakeScorer()
    async with serve_transports(AUTH, scorer, admission={"max_items": 1}) as transports:
        scorer.gate.clear()
        held = asyncio.create_task(ask(transports, "score_batch", fresh(2)))
        try:
            await until(lambda: len(scorer.batches) > 0)
            before = charged()
            assert [await ask(transports, "score_batch", fresh(100)) for _ in range(5)] == ["overloaded"] * 5
            assert charged() == before
        finally:
            scorer.gate.set()
        assert await held == "ok"
        assert await ask(transports, "score_batch", fresh(3)) == "ok"
        assert charged() == before + 3


async def test_what_the_cache_knows_is_paid_for_too():
    async with serve_transports(AUTH) as transports:
        before = charged()
        for _ in range(10):
            assert await ask_over_http(transports, "score", {"response": "known"}) == "ok"
        assert charged() == before + 10
        assert await ask_over_http(transports, "score", {"response": "known"}) == "overloaded"


async def test_turns_that_ask_at_once_do_not_share_what_is_left_for_one():
    async with serve_transports(AUTH) as transports:
        before = charged()
        assert await ask_over_http(transports, "score_batch", fresh(9)) == "ok"
        codes = await asyncio.gather(*(ask_over_http(transports, "score_batch", fresh(5)) for _ in range(6)))
        assert sorted(codes) == ["ok", *["overloaded"] * 5]
        assert charged() == before + 14


async def test_user_turns_are_paid_for_as_system_turns_are():
    async with serve_transports(AUTH, FakeReaction()) as transports:
        before = charged()
        turns = [{"speaker": "user", "text": f"a {number}"} for number in range(6)]
        assert await ask_over_http(transports, "score_dialogue", {"turns": turns, "scorers": ["fake"]}) == "ok"
        assert charged() == before + 6
        async with connect(transports.websocket, additional_headers=HEADERS) as socket:
            answers = []
            for message in ({"open": {"scorers": ["fake"]}}, *({"turn": each} for each in turns[:5])):
                await socket.send(json.dumps(message))
                answers.append(json.loads(await socket.recv()))
        told = [answer["user_turn"]["errors"].get("fake", {}).get("code") for answer in answers[1:]]
        assert told == [None, None, None, None, "overloaded"]
        assert charged() == before + 10

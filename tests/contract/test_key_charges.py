"""A key pays for turns that were admitted, and for nothing that was refused, whatever the reason and the transport."""

import asyncio
import hashlib
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from support.conditions import until
from support.fakes import FakeReaction, FakeScorer, sample
from support.transports import METHODS, Transports, error_of, message_of, serve_transports
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub
from websockets.asyncio.client import connect

KEY = "ts_a-slow-key-for-tests"
HEADERS = [("x-api-key", KEY)]
AUTH = {"keys": {"slow": {"sha256": hashlib.sha256(KEY.encode()).hexdigest(), "turns_per_second": 0.001, "burst": 10}}}
SMALL = {"max_items": 4, "max_candidates": 4, "max_turns": 8, "max_text_chars": 100}
SYSTEM = {"speaker": "system", "text": "a b"}
NUMBERS = itertools.count()

Ask = Callable[[Transports, str, dict[str, Any]], Awaitable[str]]


async def ask_over_http(transports: Transports, call: str, fields: dict[str, Any]) -> str:
    reply = await transports.http.post(f"/v1/{call}", json=fields, headers=HEADERS)
    return "ok" if reply.status_code == 200 else str(reply.json()["error"]["code"])


async def ask_over_grpc(transports: Transports, call: str, fields: dict[str, Any]) -> str:
    method = getattr(TurnScorerStub(transports.grpc), METHODS[call])
    try:
        await method(message_of(call, fields), metadata=HEADERS, timeout=60)
    except grpc.aio.AioRpcError as error:
        return str(error_of(error).error.code)
    return "ok"


def charged(outcome: str = "allowed") -> float:
    return sample("key_turns_total", key="slow", outcome=outcome)


def fresh(turns: int) -> dict[str, Any]:
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
async def test_what_is_too_large_or_invalid_costs_its_key_nothing(ask: Ask):
    async with serve_transports(AUTH, limits=SMALL) as transports:
        before = charged(), charged("refused")
        for call, fields, code in REFUSED:
            assert await ask(transports, call, fields) == code
        assert (charged(), charged("refused")) == before
        assert await ask(transports, "score", {"response": "a"}) == "ok"
        assert charged() == before[0] + 1


@pytest.mark.parametrize("ask", [ask_over_http, ask_over_grpc])
async def test_an_overload_costs_its_key_nothing_however_often_it_is_tried(ask: Ask):
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


async def test_wrong_items_of_a_batch_cost_nothing_among_the_right_ones():
    async with serve_transports(AUTH, limits=SMALL) as transports:
        before = charged()
        items = [{"response": "a"}, {"response": ""}, {"response": "a" * 101}, {"response": "a", "scorers": ["mood"]}]
        assert await ask_over_http(transports, "score_batch", {"items": items}) == "ok"
        assert charged() == before + 1


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


async def test_a_conversation_pays_for_the_turns_that_were_admitted():
    scorer = FakeScorer()
    async with serve_transports(AUTH, scorer, admission={"max_items": 1}, limits=SMALL) as transports:
        scorer.gate.clear()
        held = asyncio.create_task(ask_over_http(transports, "score", {"response": "held"}))
        try:
            await until(lambda: len(scorer.batches) > 0)
            before = charged()
            async with connect(transports.websocket, additional_headers=HEADERS) as socket:
                for text, code in (("full", "overloaded"), ("long " * 40, "too_large"), (" ", "invalid_request")):
                    await socket.send(json.dumps({"turn": {"speaker": "system", "text": text}}))
                    reply = json.loads(await socket.recv())
                    error = reply.get("error") or reply["scored"]["errors"]["fake"]
                    assert error["code"] == code
                assert charged() == before
                scorer.gate.set()
                assert await held == "ok"
                await socket.send(json.dumps({"turn": {"speaker": "system", "text": "room"}}))
                assert json.loads(await socket.recv())["scored"]["scores"]
                assert charged() == before + 1
        finally:
            scorer.gate.set()

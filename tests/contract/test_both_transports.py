"""What HTTP and gRPC say of the same request: the same scores, the same codes, fields and sentences.

Turns are asked about in every_way_in: here are messages, user turns, similarity, and failures of a model.
"""

import pytest
import turnscore_wire as wire
from support.fakes import NOT_A_NUMBER, POISON, FakeEncoder, FakeReaction, FakeScorer
from support.transports import METHODS, both_transports, error_of, message_of, refusal, settings_with
from turnscore_wire.v1 import to_fields, turnscore_pb2

SMALL = {"limits": wire.Limits(max_text_chars=20, max_turns=2, max_items=2, max_candidates=2, max_body_bytes=300)}
USER, SYSTEM = {"speaker": "user", "text": "a"}, {"speaker": "system", "text": "b c"}
FILE = {"type": "file"}
ASKED, SAID = {"role": "user", "content": [{"type": "text", "text": "a"}, FILE]}, {"role": "assistant", "content": "b"}

GOOD = [
    ("score", {"response": "grüß dich 🙂", "context": [USER, SYSTEM], "scorers": ["fake"], "deadline_ms": 9000}),
    ("score", {"response": "a", "conversation": "c-1"}),
    ("score_batch", {"items": [{"response": "a b"}, {"response": POISON}]}),
    ("rank", {"candidates": ["a", "b c"], "context": [USER], "weights": {"fake": 2.0}}),
    ("score", {"messages": [ASKED, SAID]}),
    ("score_batch", {"items": [{"messages": [SAID]}, {"messages": [ASKED, ASKED, SAID]}]}),
    ("score_dialogue", {"messages": [ASKED, SAID]}),
    ("rank", {"candidates": ["a"], "messages": [ASKED]}),
    ("similarity", {"texts": ["a"], "references": ["a b"]}),
    ("score", {"response": "a b c", "speaker": "user", "scorers": ["reaction"]}),
    ("score", {"messages": [SAID, ASKED], "scorers": ["reaction"]}),
    ("score_batch", {"items": [{"messages": [ASKED], "speaker": "user", "scorers": ["reaction"]}]}),
    ("score_dialogue", {"turns": [USER, SYSTEM], "scorers": ["fake", "reaction"]}),
]

REPLIES = {
    "score": wire.ScoreReply, "score_batch": wire.BatchReply, "score_dialogue": wire.DialogueReply,
    "rank": wire.RankReply, "similarity": wire.SimilarityReply,
}  # fmt: skip
WRONG = [
    ("score", {"response": "a", "conversation": "two words"}),
    ("rank", {"candidates": ["a"], "conversation": ""}),
    ("score_dialogue", {"turns": [SYSTEM], "conversation": "a" * 129}),
    ("score", {"response": POISON}),
    ("score_dialogue", {"turns": [{"speaker": "system", "text": POISON}]}),
    ("score", {"messages": [ASKED]}),
    ("score", {"messages": [SAID, ASKED, SAID]}),
    ("score", {"messages": [{**ASKED, "content": [FILE] * 9}, SAID]}),
    ("score", {"messages": [ASKED, {**SAID, "content": "a" * 21}]}),
    ("score", {"messages": [SAID], "response": "a" * 21}),
    ("score_dialogue", {"messages": [ASKED]}),
    ("rank", {"candidates": ["a"], "messages": [SAID], "context": [USER]}),
    ("similarity", {"texts": []}),
    ("similarity", {"texts": ["a"], "references": ["a" * 21]}),
    ("similarity", {"texts": ["a", "b"]}),
    ("similarity", {"texts": ["a"], "references": ["a", "b"]}),
    ("similarity", {"texts": ["a"], "cache_namespace": "two words"}),
    ("similarity", {"texts": ["a"], "references": [POISON]}),
    ("similarity", {"texts": [NOT_A_NUMBER]}),
    ("score", {"response": "a", "scorers": ["fake", "reaction"]}),
    ("score", {"messages": [ASKED, SAID], "speaker": "user"}),
    ("score_dialogue", {"turns": [USER], "scorers": ["fake", "reaction"]}),
    ("rank", {"candidates": ["a"], "weights": {"reaction": 1.0}}),
]


@pytest.fixture
async def transports():
    scorers = {"fake": FakeScorer(), "reaction": FakeReaction(), "encoder": FakeEncoder()}
    async with both_transports(settings_with(**SMALL, cache={"ttl_seconds": 0}), **scorers) as each:
        yield each


async def over_http(transports, call, fields):
    return await transports[0].post(f"/v1/{call}", json=fields, headers={"x-request-id": "r-1"})


async def over_grpc(transports, call, fields):
    return to_fields(
        await getattr(transports[1], METHODS[call])(message_of(call, fields), metadata=[("x-request-id", "r-1")])
    )


def without_times(reply):
    if isinstance(reply, list):
        return [without_times(each) for each in reply]
    if not isinstance(reply, dict):
        return reply
    return {name: without_times(value) if name != "timing_ms" else {} for name, value in reply.items()}


@pytest.mark.parametrize(("call", "fields"), GOOD)
async def test_both_transports_give_the_same_reply(transports, call, fields):
    response = await over_http(transports, call, fields)
    told = REPLIES[call].model_validate(await over_grpc(transports, call, fields))
    assert response.status_code == 200
    assert without_times(told.model_dump(mode="json")) == without_times(response.json())


@pytest.mark.parametrize(("call", "fields"), WRONG)
async def test_both_transports_refuse_with_the_same_error(transports, call, fields):
    response = await over_http(transports, call, fields)
    refused = await refusal(over_grpc(transports, call, fields))
    told = error_of(refused)
    assert told == wire.ErrorReply.model_validate_json(response.content)
    assert told.request_id == "r-1"
    assert refused.code().name == wire.ERROR_TABLE[told.error.code].grpc_code


async def test_both_transports_tell_the_same_models(transports):
    http, stub = transports
    told = await stub.Models(turnscore_pb2.ModelsRequest(), metadata=[("x-request-id", "r")])
    expected = (await http.get("/v1/models", headers={"x-request-id": "r"})).json()
    assert wire.ModelsReply.model_validate(to_fields(told)).model_dump(mode="json") == expected


@pytest.mark.parametrize("call", REPLIES)
async def test_an_empty_request_is_refused_by_the_field_it_lacks(transports, call):
    field = wire.ErrorReply.model_validate_json((await over_http(transports, call, {})).content).error.field
    assert field is not None
    assert error_of(await refusal(over_grpc(transports, call, {}))).error.field == field

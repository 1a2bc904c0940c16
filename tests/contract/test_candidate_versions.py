"""A split as callers see it: who answers stands in every reply, whatever the call and the transport."""

import asyncio

import pytest
from support.conditions import until
from support.fakes import FakeReaction, FakeScorer, candidate_version
from support.transports import METHODS, both_transports, grpc_stub, message_of, talking
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import Settings
from turnscore_wire import ModelsReply
from turnscore_wire.v1 import to_fields, turnscore_pb2

SERVED, OTHER = "fake:1.0.0", "fake:1.1.0"
HELLO, HI = {"speaker": "user", "text": "hello"}, {"speaker": "system", "text": "hi there"}
CALLS = [
    ("score", {"context": [HELLO], "response": "hi there"}),
    ("score", {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}),
    ("score_batch", {"items": [{"context": [HELLO], "response": "hi"}]}),
    ("score_dialogue", {"turns": [HELLO, HI, HELLO, HI]}),
    ("rank", {"context": [HELLO], "candidates": ["a", "b c"]}),
]


def all_drawn():
    """Every conversation whose user has spoken, or that has a name, is answered by the other version."""
    return CandidateVersions(splits=[candidate_version(FakeScorer())])


def half_drawn():
    return CandidateVersions(splits=[candidate_version(FakeScorer(), 0.5)])


def models_in(reply):
    """Every score's model, wherever it stands in the reply."""
    if isinstance(reply, dict):
        own = {reply["model"]} if "model" in reply else set()
        return own.union(*map(models_in, reply.values()))
    return set().union(*map(models_in, reply)) if isinstance(reply, list) else set()


async def test_a_user_s_first_turn_is_answered_by_the_version_of_its_conversation():
    candidates = CandidateVersions(splits=[candidate_version(FakeReaction(), name="reaction")])
    said, asked = {"role": "user", "content": "hello"}, {"scorers": ["reaction"]}
    calls = [
        ("score", {"response": "hello", "speaker": "user", **asked}),
        ("score_batch", {"items": [{"messages": [said], **asked}]}),
        ("score_dialogue", {"turns": [HELLO], **asked}),
    ]
    async with grpc_stub(candidates=candidates, reaction=FakeReaction()) as (stub, _):
        replies = [to_fields(await getattr(stub, METHODS[call])(message_of(call, fields))) for call, fields in calls]
        stream = stub.ScoreStream()
        for message in ({"open": asked}, {"turn": {"speaker": "SPEAKER_USER", "text": "hello"}}):
            await stream.write(turnscore_pb2.ConversationMessage(**message))
            replies.append(to_fields(await stream.read()))
    assert [models_in(reply) for reply in replies] == [{"reaction:1.1.0"}] * 3 + [set(), {"reaction:1.1.0"}]


async def test_both_transports_list_candidate_versions_with_their_shares():
    candidates = CandidateVersions(
        splits=[candidate_version(FakeScorer(), 0.25)], shadows=[candidate_version(FakeScorer(), 0.1, version="1.2.0")]
    )
    async with both_transports(candidates=candidates, fake=FakeScorer()) as (http, stub):
        over_http = (await http.get("/v1/models")).json()
        over_grpc = to_fields(await stub.Models(turnscore_pb2.ModelsRequest()))
    found = ModelsReply.model_validate(over_http)
    assert found.candidates == ModelsReply.model_validate(over_grpc).candidates
    assert [each.model for each in found.models] == [SERVED]
    listed = [(each.scorer, each.model, each.role, each.share) for each in found.candidates]
    assert listed == [("fake", OTHER, "split", 0.25), ("fake", "fake:1.2.0", "shadow", 0.1)]


async def test_a_named_conversation_is_answered_by_one_version_through_all_calls_and_both_transports():
    async with both_transports(candidates=half_drawn(), fake=FakeScorer()) as (http, stub):
        seen = set()
        for name in ("c-1", "c-2", "c-3", "c-4", "c-5", "c-6"):
            models = set()
            for call, given in CALLS:
                fields = {**given, "conversation": name}
                if call == "score_batch":
                    fields = {"items": [{**each, "conversation": name} for each in given["items"]]}
                models |= models_in((await http.post(f"/v1/{call}", json=fields)).json())
                models |= models_in(to_fields(await getattr(stub, METHODS[call])(message_of(call, fields))))
            assert len(models) == 1
            seen |= models
    assert seen == {SERVED, OTHER}


async def test_versions_do_not_answer_from_each_others_scores(serve):
    served, other = FakeScorer(), FakeScorer()
    async with serve(candidates=CandidateVersions(splits=[candidate_version(other)]), fake=served) as (client, _):
        asked = {"response": "a b"}
        for fields in (asked, {**asked, "conversation": "c"}) * 2:
            score = (await client.post("/v1/score", json=fields)).json()["scores"]["fake"]
        assert (score["model"], score["cached"]) == (OTHER, True)
    assert (served.encoded, other.encoded) == ([1], [1])


async def test_a_live_conversation_keeps_its_version_from_the_users_first_turn_on():
    async with talking(candidates=all_drawn(), fake=FakeScorer()) as (channel, _, _):
        for speaker, text in [("system", "welcome"), ("user", "q"), ("system", "a b"), ("user", ""), ("system", "c")]:
            channel.say(speaker, text)
        heard = [await channel.hear() for _ in range(5)]
    assert [each.scored.scores["fake"].model for each in heard if each.scored] == [SERVED, OTHER, OTHER]
    assert heard[-1].scored.dialogue["fake"].turns == 2


@pytest.mark.parametrize("opening", [{"conversation": "c"}, {"context": [HELLO]}])
async def test_an_opening_that_tells_the_conversation_apart_decides_at_once(opening):
    async with talking(candidates=all_drawn(), fake=FakeScorer()) as (channel, _, _):
        channel.tell({"open": opening})
        channel.say("system", "welcome")
        heard = [await channel.hear() for _ in range(2)]
    assert heard[1].scored.scores["fake"].model == OTHER


async def test_a_full_version_refuses_its_own_conversations_alone(serve):
    other = FakeScorer()
    other.gate.clear()
    settings = Settings.model_validate({"admission": {"max_items": 1}})
    async with serve(settings, CandidateVersions(splits=[candidate_version(other)]), fake=FakeScorer()) as (client, _):
        waiting = asyncio.create_task(client.post("/v1/score", json={"response": "a", "conversation": "c"}))
        await until(other.started.is_set)
        assert (await client.post("/v1/score", json={"response": "b", "conversation": "c"})).status_code == 429
        assert (await client.post("/v1/score", json={"response": "b"})).status_code == 200
        other.gate.set()
        assert (await waiting).status_code == 200

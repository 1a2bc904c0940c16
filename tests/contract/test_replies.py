"""What successful replies promise: order, partial failure, aggregates, request ids, timings, counts."""

import asyncio

import pytest
from support.fakes import POISON, FakeReaction, FakeScorer
from turnscore_service.settings.service import Settings
from turnscore_wire import BatchReply, DialogueReply, ErrorReply, ScoreReply


def dialogue(*texts):
    """Turns that alternate, the user first."""
    return [{"speaker": ("user", "system")[index % 2], "text": text} for index, text in enumerate(texts)]


async def test_a_score_says_which_model_gave_it_and_where_it_lies(client):
    response = await client.post("/v1/score", json={"response": "one two three"}, headers={"x-request-id": "mine-1"})
    reply = ScoreReply.model_validate_json(response.content)
    score = reply.scores["fake"]
    assert (score.value, score.model, score.cached) == (0.03, "fake:1.0.0", False)
    assert score.percentile == pytest.approx(3)
    assert (score.tokens.used, score.tokens.dropped) == (3, 0)
    assert reply.request_id == response.headers["x-request-id"] == "mine-1"
    assert reply.timing_ms.total >= reply.timing_ms.inference >= 0


@pytest.mark.parametrize("sent", ["", "two words", "x" * 129, "né"])
async def test_a_request_id_that_is_no_plain_word_is_replaced(client, sent):
    response = await client.get("/v1/models", headers={"x-request-id": sent.encode()})
    assert response.headers["x-request-id"] not in ("", sent)


async def test_one_scorer_failing_leaves_the_others_score(serve):
    class Failing(FakeScorer):
        def score(self, batch):
            raise RuntimeError("broken")

    async with serve(good=FakeScorer(), bad=Failing()) as (client, _):
        both = await client.post("/v1/score", json={"response": "a b"})
        only_bad = await client.post("/v1/score", json={"response": "a b", "scorers": ["bad"]})
    reply = ScoreReply.model_validate_json(both.content)
    assert list(reply.scores) == ["good"]
    assert {name: error.code for name, error in reply.errors.items()} == {"bad": "internal"}
    assert only_bad.status_code == 500


async def test_scorers_run_side_by_side(serve):
    first, second = FakeScorer(), FakeScorer()
    first.gate.clear()
    second.gate.clear()
    async with serve(first=first, second=second) as (client, _):
        asked = asyncio.create_task(client.post("/v1/score", json={"response": "a", "scorers": ["second", "first"]}))
        assert await asyncio.to_thread(first.started.wait, 30)
        assert await asyncio.to_thread(second.started.wait, 30)
        first.gate.set()
        second.gate.set()
        assert list((await asked).json()["scores"]) == ["second", "first"]


async def test_a_dialogue_is_the_mean_over_the_turns_that_count(client):
    turns = [{"speaker": "system", "text": "a b c d e"}, *dialogue("q", "a", "q", "a b c")]
    response = await client.post("/v1/score_dialogue", json={"turns": turns})
    reply = DialogueReply.model_validate_json(response.content)
    assert [(turn.index, turn.scores["fake"].value) for turn in reply.turns] == [(0, 0.05), (2, 0.01), (4, 0.03)]
    aggregate = reply.dialogue["fake"]
    assert (aggregate.mean, aggregate.min, aggregate.max, aggregate.turns) == (pytest.approx(0.02), 0.01, 0.03, 2)


USER, SYSTEM = {"speaker": "user", "text": "a b c"}, {"speaker": "system", "text": "a b"}
ASKED, SAID = {"role": "user", "content": "a b c"}, {"role": "assistant", "content": "a"}


async def test_a_dialogue_has_the_user_s_turns_where_their_scorer_is_asked(serve):
    silent = {"speaker": "user", "text": " "}
    turns, reaction = [USER, SYSTEM, silent, SYSTEM, {**USER, "text": "d"}], FakeReaction()
    async with serve(Settings(cache={"ttl_seconds": 0}), fake=FakeScorer(), reaction=reaction) as (client, _):
        both, plain = [
            DialogueReply.model_validate_json((await client.post("/v1/score_dialogue", json=fields)).content)
            for fields in ({"turns": turns, "scorers": ["reaction", "fake"]}, {"turns": turns})
        ]
        alone = {"context": turns[:4], "response": "d", "speaker": "user", "scorers": ["reaction"]}
        scored = ScoreReply.model_validate_json((await client.post("/v1/score", json=alone)).content)
    assert [(turn.index, list(turn.scores)) for turn in both.turns] == [
        (0, ["reaction"]), (1, ["fake"]), (3, ["fake"]), (4, ["reaction"]),
    ]  # fmt: skip
    frustrated, calm = both.turns[0].scores["reaction"], both.turns[3].scores["reaction"]
    assert (frustrated.value, frustrated.signals, calm.signals) == (0.97, ["pleased", "frustrated"], ["pleased"])
    assert scored.scores["reaction"] == calm
    assert {name: whole.turns for name, whole in both.dialogue.items()} == {"reaction": 1, "fake": 2}
    assert [(turn.index, list(turn.scores)) for turn in plain.turns] == [(1, ["fake"]), (3, ["fake"])]


@pytest.mark.parametrize(
    ("call", "fields", "field", "message"),
    [
        ("score", {"response": "a", "scorers": ["reaction"]}, "scorers.0", "reaction scores turns of the user"),
        ("score", {"response": "a", "options": {"reaction": {}}}, "options.reaction", "reaction scores turns of"),
        ("score", {"response": "a", "speaker": "user"}, "scorers", "fake scores turns of the system"),
        (
            "score",
            {"response": "a", "speaker": "user", "scorers": ["reaction", "fake"]},
            "scorers.1",
            "fake scores turns",
        ),
        ("score", {"messages": [ASKED], "scorers": ["reaction", "fake"]}, "messages", "if all `scorers` are"),
        ("score", {"messages": [ASKED], "scorers": ["sum"]}, "messages", "if all `scorers` are scorers of user turns"),
        ("score", {"messages": [ASKED]}, "messages", "must end with the assistant's text"),
        ("score", {"messages": [SAID], "speaker": "user", "scorers": ["reaction"]}, "messages", "end with the user's"),
        ("score", {"messages": [SAID], "scorers": ["reaction"]}, "scorers.0", "reaction scores turns of the user"),
        ("score_dialogue", {"turns": [USER], "scorers": ["fake", "reaction"]}, "turns", "no system turn"),
        ("score_dialogue", {"messages": [SAID], "scorers": ["reaction"]}, "messages", "no user turn"),
        ("rank", {"candidates": ["a"], "scorers": ["reaction"]}, "scorers.0", "reaction scores turns of the user"),
        ("rank", {"candidates": ["a"], "weights": {"reaction": 1}}, "weights.reaction", "reaction scores turns of the"),
    ],
)
async def test_a_scorer_is_not_asked_about_the_other_speaker(serve, call, fields, field, message):
    settings = Settings(combinations={"sum": {"weights": {"fake": 1}}})
    async with serve(settings, fake=FakeScorer(), reaction=FakeReaction()) as (client, _):
        response = await client.post(f"/v1/{call}", json=fields)
    told = ErrorReply.model_validate_json(response.content).error
    assert (response.status_code, told.field) == (400, field)
    assert message in told.message


async def test_a_service_of_user_turns_alone_asks_nobody_by_default(serve):
    async with serve(reaction=FakeReaction()) as (client, _):
        refused = (await client.post("/v1/score", json={"response": "a"})).json()["error"]
        reply = await client.post("/v1/score", json={"messages": [ASKED], "scorers": ["reaction"]})
        [model] = (await client.get("/v1/models")).json()["models"]
    assert (refused["field"], refused["message"]) == ("scorers", "no scorer is asked by default; loaded: reaction")
    assert reply.json()["index"] == 0
    assert (model["speaker"], model["is_default"]) == ("user", False)


async def test_the_openapi_page_needs_nothing_from_elsewhere(client):
    page = (await client.get("/docs")).text
    assert "https://" not in page
    assert (await client.get("/static-offline-docs/swagger-ui-bundle.js")).status_code == 200


async def test_an_items_own_deadline_stands_instead_of_the_default(serve):
    scorer = FakeScorer()
    scorer.gate.clear()
    settings = Settings(default_deadline_ms=200)
    items = [{"response": "a", "deadline_ms": 60_000}, {"response": "a " * 90}]
    async with serve(settings, fake=scorer) as (client, _):
        asked = asyncio.create_task(client.post("/v1/score_batch", json={"items": items}))
        await asyncio.to_thread(scorer.started.wait, 30)
        await asyncio.sleep(0.3)  # longer than the default deadline: what must not end the first item
        scorer.gate.set()
        results = BatchReply.model_validate_json((await asked).content).results
    assert isinstance(results[0], ScoreReply)


async def test_a_failing_turns_log_line_carries_its_own_request_id(client, caplog):
    await asyncio.gather(
        client.post("/v1/score", json={"response": "a"}, headers={"x-request-id": "good"}),
        client.post("/v1/score", json={"response": POISON}, headers={"x-request-id": "bad"}),
    )
    [line] = [record for record in caplog.records if record.message.startswith("scoring failed")]
    assert vars(line)["request_id"] == "bad"

"""What successful replies promise: order, partial failure, aggregates, labels, defaults, request ids and timings."""

import asyncio

import pytest
from support.bundles import make_quality_bundle
from support.fakes import POISON, FakeReaction, FakeScorer, loaded_fake
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import load_scorers
from turnscore_core.model_set import choose_defaults
from turnscore_core.scorers.scorer import RawScore
from turnscore_models.bundle import write_bundle
from turnscore_models.manifest import BundleError, Threshold
from turnscore_service.lifecycle.loading import load_combinations
from turnscore_service.settings.service import CombinationSettings, Settings
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


OTHER_SPEAKERS = [
    ("score", {"response": "a", "scorers": ["reaction"]}, "scorers.0", "reaction scores turns of the user"),
    ("score", {"response": "a", "options": {"reaction": {}}}, "options.reaction", "reaction scores turns of"),
    ("score", {"response": "a", "speaker": "user"}, "scorers", "fake scores turns of the system"),
    ("score", {"response": "a", "speaker": "user", "scorers": ["reaction", "fake"]}, "scorers.1", "fake scores turns"),
    ("score", {"messages": [ASKED], "scorers": ["reaction", "fake"]}, "messages", "if all `scorers` are"),
    ("score", {"messages": [ASKED], "scorers": ["sum"]}, "messages", "if all `scorers` are scorers of user turns"),
    ("score", {"messages": [ASKED]}, "messages", "must end with the assistant's text"),
    ("score", {"messages": [SAID], "speaker": "user", "scorers": ["reaction"]}, "messages", "end with the user's"),
    ("score", {"messages": [SAID], "scorers": ["reaction"]}, "scorers.0", "reaction scores turns of the user"),
    ("score_dialogue", {"turns": [USER], "scorers": ["fake", "reaction"]}, "turns", "no system turn"),
    ("score_dialogue", {"messages": [SAID], "scorers": ["reaction"]}, "messages", "no user turn"),
    ("rank", {"candidates": ["a"], "scorers": ["reaction"]}, "scorers.0", "reaction scores turns of the user"),
    ("rank", {"candidates": ["a"], "weights": {"reaction": 1}}, "weights.reaction", "reaction scores turns of the"),
]


@pytest.mark.parametrize(("call", "fields", "field", "message"), OTHER_SPEAKERS)
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


TURNS = [
    {"speaker": "user", "text": "hi"},
    {"speaker": "system", "text": "a"},
    {"speaker": "user", "text": "so?"},
    {"speaker": "system", "text": "a b c"},
]


def fake(*, threshold=None, stand_in=False):
    scorer = FakeScorer()
    scorer.threshold, scorer.stand_in = threshold, stand_in
    return scorer


def labels_in(reply):
    """The labels of every score in a reply, in order."""
    if isinstance(reply, list):
        return [label for each in reply for label in labels_in(each)]
    if not isinstance(reply, dict):
        return []
    own = [reply["label"]] if "cached" in reply else []
    return own + [label for each in reply.values() for label in labels_in(each)]


CALLS = [
    ("score", {"response": "a b"}, ["fair"]),
    ("score", {"response": "a"}, ["low"]),
    ("score_batch", {"items": [{"response": "a"}, {"response": "a b"}]}, ["low", "fair"]),
    ("score_dialogue", {"turns": TURNS}, ["low", "fair"]),
    ("rank", {"candidates": ["a", "a b", "c"]}, ["fair", "low", "low"]),
]


@pytest.mark.parametrize(("call", "fields", "labels"), CALLS)
async def test_every_score_over_http_has_its_label(serve, call, fields, labels):
    async with serve(fake=fake(threshold=0.02)) as (client, _):
        assert labels_in((await client.post(f"/v1/{call}", json=fields)).json()) == labels
        again = (await client.post(f"/v1/{call}", json=fields)).json()
        assert labels_in(again) == labels
    async with serve(fake=fake()) as (client, _):
        assert set(labels_in((await client.post(f"/v1/{call}", json=fields)).json())) == {None}


def test_a_value_that_no_reference_turn_was_scored_as_has_no_label():
    loaded = loaded_fake(fake(threshold=0.5))
    assert (loaded.label(RawScore(0.4)), loaded.label(RawScore(0.5))) == ("low", "fair")
    assert loaded.label(RawScore(0.4, is_comparable=False)) is None


async def test_a_threshold_has_the_percentile_that_a_score_of_its_value_has(serve):
    async with serve(fake=fake(threshold=0.02), other=fake()) as (client, _):
        score = (await client.post("/v1/score", json={"response": "a b", "scorers": ["fake"]})).json()["scores"]["fake"]
        models = (await client.get("/v1/models")).json()["models"]
    assert score["value"] == models[0]["threshold"]
    assert [each["threshold_percentile"] for each in models] == [score["percentile"], None]


@pytest.fixture
def bundle(tmp_path):
    made = make_quality_bundle(tmp_path / "quality")
    threshold = Threshold(value=0.3, source="made up", false_alarm_rate=0.05, confidence=0.95)
    return write_bundle(made.folder, made.manifest.model_copy(update={"threshold": threshold}))


@pytest.mark.parametrize(("given", "expected"), [({}, 0.3), ({"quality": 0.7}, 0.7), ({"quality": None}, None)])
def test_a_deployments_threshold_stands_before_the_bundles(bundle, given, expected):
    models = (f"{bundle.folder}/",)
    settings = LoadSettings(models=models, thresholds=given, threads=1)
    assert load_scorers(settings)["quality"].threshold == expected


def test_who_is_asked_by_default_is_who_is_no_stand_in():
    loaded = {name: loaded_fake(fake(stand_in=name == "fed"), name) for name in ("engagement", "fed")}
    assert choose_defaults(loaded).defaults == ("engagement",)
    assert choose_defaults({"fed": loaded["fed"]}).defaults == ("fed",)
    assert choose_defaults(loaded, ("fed",)).defaults == ("fed",)
    with pytest.raises(BundleError, match="TURNSCORE_DEFAULT_SCORERS names humour, which is not loaded"):
        choose_defaults(loaded, ("humour",))


def test_scorers_of_user_turns_are_asked_by_name_only():
    loaded = {"fed": loaded_fake(fake(stand_in=True), "fed"), "reaction": loaded_fake(FakeReaction(), "reaction")}
    assert choose_defaults(loaded).defaults == ("fed",)
    with pytest.raises(BundleError, match="TURNSCORE_DEFAULT_SCORERS names reaction, which scores user turns"):
        choose_defaults(loaded, ("fed", "reaction"))
    described = {"sum": CombinationSettings(weights={"fed": 1, "reaction": 1})}
    with pytest.raises(BundleError, match="TURNSCORE_COMBINATIONS: sum weighs reaction, which scores user turns"):
        load_combinations(described, loaded)


async def test_a_request_that_names_no_scorers_asks_the_defaults_and_may_name_the_others(serve):
    settings = Settings(default_scorers=("first", "quality"))
    fakes = {"first": fake(), "second": fake(stand_in=True), "quality": fake()}
    async with serve(settings, **fakes) as (client, _):
        reply = (await client.post("/v1/score", json={"response": "a"})).json()
        assert list(reply["scores"]) == ["first", "quality"]
        named = (await client.post("/v1/score", json={"response": "a", "scorers": ["second"]})).json()
        assert named["scores"]["second"]["stand_in"] is True
        optional = {"response": "a", "options": {"second": {"known": 1}}}
        assert list((await client.post("/v1/score", json=optional)).json()["scores"]) == ["first", "quality", "second"]
        ranked = (await client.post("/v1/rank", json={"candidates": ["a", "b c"]})).json()
        assert ranked["weights"] == {"quality": 1.0}
        weighed = {"candidates": ["a", "b c"], "weights": {"first": 2.0, "second": 0.0}}
        assert (await client.post("/v1/rank", json=weighed)).json()["weights"] == {"first": 2.0, "second": 0.0}
        models = {each["scorer"]: each for each in (await client.get("/v1/models")).json()["models"]}
    assert {name: each["is_default"] for name, each in models.items()} == {
        "first": True,
        "second": False,
        "quality": True,
    }
    assert [name for name, each in models.items() if each["stand_in"]] == ["second"]

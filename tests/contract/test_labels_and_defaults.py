"""Labels wherever a score appears, and who is asked where a request names nobody."""

import pytest
from support.bundles import make_quality_bundle
from support.fakes import FakeReaction, FakeScorer, loaded_fake
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import load_scorers
from turnscore_core.model_set import choose_defaults
from turnscore_core.scorers.scorer import RawScore
from turnscore_models.bundle import write_bundle
from turnscore_models.manifest import BundleError, Threshold
from turnscore_service.lifecycle.loading import load_combinations
from turnscore_service.settings.service import CombinationSettings, Settings

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

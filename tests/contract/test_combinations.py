"""Combinations of several scorers' parts: asked by name like a scorer, in every call, refused where impossible."""

import json

import pytest
from support.fakes import FakeScorer, loaded_fake
from turnscore_core.scorers.scorer import RawScore
from turnscore_models.manifest import BundleError
from turnscore_service.api.http.app import asks
from turnscore_service.lifecycle.loading import load_combinations
from turnscore_service.settings.service import CombinationSettings, Settings, read_settings

TURN = {"context": [{"speaker": "user", "text": "hi"}], "response": "one two three"}
RAMP = [each / 100 for each in range(101)]


class PartScorer(FakeScorer):
    """Its details are twice and a tenth of its value."""

    def score(self, batch):
        return [RawScore(raw.value, {"twice": 2 * raw.value, "tenth": raw.value / 10}) for raw in super().score(batch)]


def settings(tmp_path, **combinations):
    curve = tmp_path / "curve.json"
    curve.write_text(json.dumps({"percentiles": RAMP, "turns": 100, "source": "a ramp"}))
    mean = {"weights": {"engagement": 0.5, "relevance": 0.5}, "threshold": 0.025, "percentiles": str(curve)}
    return Settings.model_validate({"combinations": {"engagement+relevance": mean, **combinations}})


def scorers():
    return {"engagement": FakeScorer(), "relevance": PartScorer()}


async def test_a_combination_is_the_weighted_sum_with_its_own_percentile_and_label(serve, tmp_path):
    parts = {"weights": {"relevance.twice": 1.0, "engagement": -2.0}}
    async with serve(settings(tmp_path, parts=parts), **scorers()) as (client, _):
        asked = {**TURN, "scorers": ["engagement+relevance", "parts"]}
        found = (await client.post("/v1/score", json=asked)).json()["scores"]
        assert list(found) == ["engagement+relevance", "parts"], "what was not asked for itself is not in the reply"
        mean = found["engagement+relevance"]
        assert (mean["value"], mean["percentile"], mean["label"]) == (pytest.approx(0.03), pytest.approx(3), "fair")
        assert mean["details"] == {"engagement": pytest.approx(0.03), "relevance": pytest.approx(0.03)}
        assert mean["model"] == "engagement:1.0.0+relevance:1.0.0"
        assert found["parts"]["value"] == pytest.approx(0.0)
        assert (found["parts"]["percentile"], found["parts"]["label"]) == (None, None)
        low = await client.post("/v1/score", json={**asked, "response": "one"})
        assert low.json()["scores"]["engagement+relevance"]["label"] == "low"


async def test_scorers_asked_with_it_stay_and_nothing_is_computed_twice(serve, tmp_path):
    fakes = scorers()
    async with serve(settings(tmp_path), **fakes) as (client, _):
        asked = {**TURN, "scorers": ["relevance", "engagement+relevance"]}
        reply = (await client.post("/v1/score", json=asked)).json()
        assert list(reply["scores"]) == ["relevance", "engagement+relevance"]
        assert [len(fake.batches) for fake in fakes.values()] == [1, 1]
        again = (await client.post("/v1/score", json=asked)).json()["scores"]
        assert again["engagement+relevance"]["cached"]
        assert [len(fake.batches) for fake in fakes.values()] == [1, 1]


async def test_without_being_named_it_is_not_asked_and_a_default_it_may_be(serve, tmp_path):
    async with serve(settings(tmp_path), **scorers()) as (client, _):
        assert set((await client.post("/v1/score", json=TURN)).json()["scores"]) == {"engagement", "relevance"}
    by_default = settings(tmp_path).model_copy(update={"default_scorers": ("engagement+relevance",)})
    async with serve(by_default, **scorers()) as (client, runtime):
        assert list((await client.post("/v1/score", json=TURN)).json()["scores"]) == ["engagement+relevance"]
        assert asks(runtime.pipeline().model_set, "score", b"{}", "relevance")
        models = {each["scorer"]: each for each in (await client.get("/v1/models")).json()["models"]}
        assert models["engagement+relevance"]["is_default"]
        assert not models["relevance"]["is_default"]
        assert models["engagement+relevance"]["threshold"] == 0.025


async def test_dialogues_rankings_and_batches_take_it(serve, tmp_path):
    name = "engagement+relevance"
    turns = [*TURN["context"], {"speaker": "system", "text": "one two"}, {"speaker": "system", "text": "one"}]
    async with serve(settings(tmp_path), **scorers()) as (client, _):
        dialogue = (await client.post("/v1/score_dialogue", json={"turns": turns, "scorers": [name]})).json()
        assert dialogue["dialogue"][name]["mean"] == pytest.approx(0.015)
        ranked = {"context": TURN["context"], "candidates": ["a", "a b c", "a b"], "weights": {name: 1}}
        reply = (await client.post("/v1/rank", json=ranked)).json()
        assert [each["index"] for each in reply["candidates"]] == [1, 2, 0]
        batch = (await client.post("/v1/score_batch", json={"items": [{**TURN, "scorers": [name]}] * 2})).json()
        assert [each["scores"][name]["value"] for each in batch["results"]] == [pytest.approx(0.03)] * 2


async def test_it_fails_with_the_scorer_that_failed_and_the_others_answer(serve, tmp_path):
    class Failing(FakeScorer):
        def score(self, batch):
            raise RuntimeError("the runtime choked")

    fakes = {"engagement": FakeScorer(), "relevance": Failing()}
    async with serve(settings(tmp_path), **fakes) as (client, _):
        asked = {**TURN, "scorers": ["engagement", "engagement+relevance"]}
        reply = (await client.post("/v1/score", json=asked)).json()
        assert list(reply["scores"]) == ["engagement"]
        assert reply["errors"]["engagement+relevance"]["code"] == "internal"
        assert "relevance" not in reply["errors"]


async def test_a_sum_beyond_every_number_is_an_error_and_no_score(serve, tmp_path):
    huge = {"weights": {"engagement": 1e308, "relevance": 1e308}}
    async with serve(settings(tmp_path, huge=huge), **scorers()) as (client, _):
        asked = {"response": "word " * 300, "scorers": ["engagement", "huge"]}
        reply = (await client.post("/v1/score", json=asked)).json()
    assert list(reply["scores"]) == ["engagement"]
    assert reply["errors"]["huge"]["code"] == "internal"


async def test_options_go_to_the_scorers_behind_it_under_their_own_names(serve, tmp_path):
    async with serve(settings(tmp_path), **scorers()) as (client, _):
        asked = {**TURN, "scorers": ["engagement+relevance"], "options": {"relevance": {"known": 1}}}
        assert (await client.post("/v1/score", json=asked)).status_code == 200
        for options, field in (
            ({"relevance": {"other": 1}}, "options.relevance.other"),
            ({"engagement+relevance": {}}, "options.engagement+relevance"),
        ):
            refused = await client.post("/v1/score", json={**asked, "options": options})
            assert (refused.status_code, refused.json()["error"]["field"]) == (400, field)


NEVER_SCORING = [
    ("relevance", {"engagement": 1}, "is the name of a loaded scorer"),
    ("mix", {"fed": 1}, "weighs fed, which is not loaded"),
    ("mix", {"relevance.thrice": 1}, "the parts of relevance are twice, tenth"),
    ("mix", {"engagement.twice": 1}, "the parts of engagement are none"),
]


@pytest.mark.parametrize(("name", "weights", "said"), NEVER_SCORING)
def test_what_could_never_score_is_refused_at_the_start(name, weights, said):
    loaded = {each: loaded_fake(scorer, each) for each, scorer in scorers().items()}
    with pytest.raises(BundleError, match=said):
        load_combinations({name: CombinationSettings(weights=weights)}, loaded)


CURVES = [
    ({}, None),
    ({"models": {"engagement": "engagement:0.9.0", "relevance": "relevance:1.0.0"}}, "belong to engagement:0.9.0, rel"),
    ({"weights": {"engagement": 0.4, "relevance": 0.6}}, "belong to other weights"),
    ({"models": {}, "weights": {}}, "do not name the versions"),
]


@pytest.mark.parametrize(("changed", "said"), CURVES)
def test_percentiles_of_other_versions_or_weights_are_warned_of_by_the_combinations_name(
    changed, said, tmp_path, caplog
):
    loaded = {each: loaded_fake(scorer, each) for each, scorer in scorers().items()}
    described = settings(tmp_path).combinations
    file = tmp_path / "curve.json"
    of = {"models": {name: f"{name}:1.0.0" for name in loaded}, "weights": dict.fromkeys(loaded, 0.5)}
    file.write_text(json.dumps(json.loads(file.read_text()) | of | changed))
    assert list(load_combinations(described, loaded)) == ["engagement+relevance"]
    assert len(caplog.messages) == (said is not None)
    assert said is None or (said in caplog.text and "percentiles of engagement+relevance in" in caplog.text)


@pytest.mark.parametrize(
    "given", [{"Mix!": {"weights": {"a": 1}}}, {"mix": {"weights": {}}}, {"mix": {"weights": {"a..b": 1}}}]
)
def test_a_setting_that_is_no_combination_ends_the_start(given, monkeypatch):
    monkeypatch.setenv("TURNSCORE_COMBINATIONS", json.dumps(given))
    with pytest.raises(SystemExit, match="TURNSCORE_COMBINATIONS"):
        read_settings()

"""FED through the HTTP door: its details, its percentiles, its options, and every turn of a dialogue in one pass."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from support.fed_bundles import make_fed_scorer
from support.fed_paths import PathBackend
from turnscore_service.settings import Settings

OWN = {"funny": {"positive": ["haha"], "negative": ["I don't get it."]}}


@pytest.fixture
async def served(serve, tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, PathBackend]]:
    scorer, backend = make_fed_scorer(tmp_path / "fed")
    async with serve(Settings(), fed=scorer) as (client, _):
        yield client, backend


async def test_details_hold_each_qualitys_value_and_percentile(served) -> None:
    client, _ = served
    reply = (await client.post("/v1/score", json={"response": "hello"})).json()
    score = reply["scores"]["fed"]
    assert score["details"].keys() == {"kind", "kind_percentile", "clear", "clear_percentile"}
    assert score["value"] == pytest.approx((score["details"]["kind"] + score["details"]["clear"]) / 2)
    assert 0 <= score["percentile"] <= 100


async def test_a_quality_of_the_callers_own_is_scored_without_percentile(served) -> None:
    client, _ = served
    asked = {"response": "hello", "options": {"fed": {"own_qualities": OWN}}}
    score = (await client.post("/v1/score", json=asked)).json()["scores"]["fed"]
    assert score["percentile"] is None
    assert score["details"] == {"funny": score["value"]}


async def test_an_unknown_quality_is_refused_by_its_place(served) -> None:
    client, _ = served
    asked = {"response": "hello", "options": {"fed": {"qualities": ["kind", "tasty"]}}}
    reply = await client.post("/v1/score", json=asked)
    assert reply.status_code == 400
    assert reply.json()["error"]["field"] == "options.fed.qualities.1"


async def test_a_dialogues_turns_get_in_one_row_what_they_get_alone(served) -> None:
    client, backend = served
    texts = ["hi", "hello", "how are you?", "fine, thanks!", "good", "what next?"]
    turns = [{"speaker": ("user", "system")[place % 2], "text": text} for place, text in enumerate(texts)]
    reply = (await client.post("/v1/score_dialogue", json={"turns": turns})).json()
    in_one_row, backend.tokens_fed = backend.tokens_fed, 0
    for turn in reply["turns"]:
        place = turn["index"]
        asked = {"context": turns[:place], "response": texts[place], "cache": "bypass"}
        alone = (await client.post("/v1/score", json=asked)).json()["scores"]["fed"]
        assert turn["scores"]["fed"] == alone
    assert in_one_row < backend.tokens_fed
    assert reply["dialogue"]["fed"]["turns"] == 3

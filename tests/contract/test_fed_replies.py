"""FED through HTTP: its details, its percentiles, its options, and every turn of a dialogue in one pass."""

import itertools
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from support.fed import PathBackend, make_fed_scorer
from turnscore_core.scorers.fed.plans import FedPlan, FedPlans
from turnscore_core.scorers.fed.questions import FedQuestion
from turnscore_service.settings.service import Settings


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


def many_own(chars: int) -> dict[str, dict[str, list[str]]]:
    """Follow-ups of so many characters, no two alike, in eight qualities."""
    texts = (f"{number}".ljust(chars, "x") for number in itertools.count(100))
    return {
        f"q{each}": {side: list(itertools.islice(texts, 16)) for side in ("positive", "negative")} for each in range(8)
    }


async def test_a_callers_largest_question_is_answered_and_planned_off_the_event_loop(
    served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = served
    threads: set[int] = set()
    build = FedPlans._build

    def note_thread(plans: FedPlans, question: FedQuestion) -> FedPlan:
        threads.add(threading.get_ident())
        return build(plans, question)

    monkeypatch.setattr(FedPlans, "_build", note_thread)
    own = many_own(16)
    asked = {"response": "hello", "options": {"fed": {"own_qualities": own}}}
    score = (await client.post("/v1/score", json=asked)).json()["scores"]["fed"]
    assert list(score["details"]) == list(own)
    assert score["value"] == pytest.approx(sum(score["details"].values()) / len(own))
    again = (await client.post("/v1/score", json=asked)).json()["scores"]["fed"]
    assert again == {**score, "cached": True}
    assert threads
    assert threading.get_ident() not in threads


async def test_follow_ups_of_too_many_tokens_are_refused_by_their_field(served) -> None:
    client, _ = served
    options = {"fed": {"own_qualities": {"long": {"positive": ["\N{GRINNING FACE}" * 100]}}}}
    reply = await client.post("/v1/score", json={"response": "hello", "options": options})
    assert reply.status_code == 400
    assert reply.json()["error"]["field"] == "options.fed.own_qualities"
    assert "400 tokens; at most 256" in reply.json()["error"]["message"]
    batch = {"items": [{"response": "hello"}, {"response": "hello", "options": options}]}
    good, bad = (await client.post("/v1/score_batch", json=batch)).json()["results"]
    assert good["scores"]["fed"]["details"]
    assert bad["error"]["field"] == "items.1.options.fed.own_qualities"

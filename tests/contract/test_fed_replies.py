"""FED through HTTP: its details, its percentiles, its options, and every turn of a dialogue in one pass."""

import itertools
import threading

import pytest
from support.fed import make_fed_scorer
from turnscore_core.scorers.fed.plans import FedPlans
from turnscore_service.settings.service import Settings


@pytest.fixture
async def served(serve, tmp_path):
    scorer, backend = make_fed_scorer(tmp_path / "fed")
    async with serve(Settings(), fed=scorer) as (client, _):
        yield client, backend


def many_own(chars):
    """Follow-ups of so many characters, no two alike, in eight qualities."""
    texts = (f"{number}".ljust(chars, "x") for number in itertools.count(100))
    return {
        f"q{each}": {side: list(itertools.islice(texts, 16)) for side in ("positive", "negative")} for each in range(8)
    }


async def test_a_callers_largest_question_is_answered_and_planned_off_the_event_loop(served, monkeypatch):
    client, _ = served
    threads = set()
    build = FedPlans._build

    def note_thread(plans, question):
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


async def test_follow_ups_of_too_many_tokens_are_refused_by_their_field(served):
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

"""Messages and ratings over ASGI: each is done once, in its order, and what fails can be tried again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.conditions import until
from support.studies import ORIGIN, ScriptedBot, begin, code_of, served_study
from turnscore_assessment.study.chatbots import Chatbots

RATINGS = {"fun": 70, "repetitive": 20.5}


async def test_a_message_that_is_sent_twice_is_stored_and_asked_once(tmp_path: Path) -> None:
    bot = ScriptedBot()
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        first = await served.post(link, "message", dialogue=dialogue, number=0, text=" hello ")
        again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert first.json() == again.json() == {"reply": "reply 1"}
        assert len(bot.asked) == 1
        assert bot.asked[0] == {
            "model": bot.asked[0]["model"], "messages": [{"role": "user", "content": "hello"}], "stream": False,
        }  # fmt: skip
        for number, text in ((0, "another text"), (2, "too early"), (1000, "far too early")):
            refused = await served.post(link, "message", dialogue=dialogue, number=number, text=text)
            assert code_of(refused) == (409, "out_of_turn")
        assert len((await served.get(link)).json()["dialogue"]["turns"]) == 2


async def test_while_a_reply_is_under_way_the_message_waits_and_nothing_else_is_taken(tmp_path: Path) -> None:
    bot = ScriptedBot()
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        bot.gate.clear()
        asking = asyncio.create_task(served.post(link, "message", dialogue=dialogue, number=0, text="hello"))
        await until(lambda: bot.asked)
        again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert code_of(again) == (409, "busy")
        assert len((await served.get(link)).json()["dialogue"]["turns"]) == 1  # as a second tab sees it
        bot.gate.set()
        assert (await asking).json() == {"reply": "reply 1"}
        assert len(bot.asked) == 1


async def test_who_asked_and_died_holds_a_message_up_only_for_a_while(tmp_path: Path) -> None:
    bot = ScriptedBot()
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        bot.gate.clear()
        dying = asyncio.create_task(served.post(link, "message", dialogue=dialogue, number=0, text="hello"))
        await until(lambda: bot.asked)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        bot.gate.set()
        served.clock.now += 14
        assert code_of(await served.post(link, "message", dialogue=dialogue, number=0, text="hello")) == (409, "busy")
        served.clock.now += 2  # reply_seconds and ten more are over
        again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert again.json() == {"reply": "reply 2"}


async def test_a_system_that_fails_is_asked_again_and_given_up_after_three_times(tmp_path: Path) -> None:
    bot = ScriptedBot()
    bot.status = 500
    async with served_study(tmp_path, bot.transport) as served:
        link, dialogue = await begin(served)
        for _ in range(2):
            failed = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
            assert code_of(failed) == (502, "no_reply")
            assert code_of(await served.post(link, "giving-up", dialogue=dialogue)) == (409, "still_answers")
        assert "500" not in failed.text
        bot.status = 200
        assert (await served.post(link, "message", dialogue=dialogue, number=0, text="hello")).status_code == 200
        bot.status = 500
        for _ in range(3):
            await served.post(link, "message", dialogue=dialogue, number=1, text="hello")
        assert (await served.get(link)).json()["dialogue"]["may_give_up"]
        standing = (await served.post(link, "giving-up", dialogue=dialogue)).json()
        assert (standing["done"], standing["dialogue"]) == (1, None)
        assert code_of(await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)) == (409, "not_open")


async def test_a_fault_of_our_own_while_asking_leaves_the_message_to_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        with monkeypatch.context() as broken:
            broken.setattr(Chatbots, "reply", lambda *_: 1 / 0)
            failed = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
            assert code_of(failed) == (500, "broken")
        again = await served.post(link, "message", dialogue=dialogue, number=0, text="hello")
        assert again.status_code == 200


async def test_a_rating_needs_all_inputs_and_is_taken_once(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        await served.talk(link, dialogue, inputs=2)
        early = await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
        assert code_of(early) == (409, "too_few_inputs")
        await served.talk(link, dialogue, inputs=4)
        fifth = await served.post(link, "message", dialogue=dialogue, number=4, text="more")
        assert code_of(fifth) == (409, "no_more_inputs")
        first = await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
        again = await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
        assert first.json() == again.json()
        other = await served.post(link, "rating", dialogue=dialogue, ratings={**RATINGS, "fun": 71})
        assert code_of(other) == (409, "already_rated")
        late = await served.post(link, "message", dialogue=dialogue, number=4, text="more")
        assert code_of(late) == (409, "not_open")


@pytest.mark.parametrize(
    ("ratings", "reason"),
    [
        ({"fun": 70}, "ratings.repetitive: is missing"),
        ({**RATINGS, "kind": 3}, "ratings.kind: is no criterion of this study"),
        ({**RATINGS, "fun": float("nan")}, "ratings.fun: must be from 0 to 100"),
        ({**RATINGS, "fun": 10**400}, "ratings.fun: must be from 0 to 100"),
    ],
)
async def test_a_wrong_rating_is_named(tmp_path: Path, ratings: dict[str, Any], reason: str) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        await served.talk(link, dialogue)
        headers = {"Authorization": f"Bearer {link}", "Origin": ORIGIN, "Content-Type": "application/json"}
        body = json.dumps({"dialogue": dialogue, "ratings": ratings})
        answer = await served.http.post("/api/rating", content=body, headers=headers)
        assert code_of(answer) == (422, "invalid")
        assert answer.json()["error"]["message"].startswith(reason)


@pytest.mark.parametrize(("text", "reason"), [("", "must not be empty"), ("é" * 51, "may have at most 50 characters")])
async def test_a_wrong_message_is_refused_and_leaves_nothing(tmp_path: Path, text: str, reason: str) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        answer = await served.post(link, "message", dialogue=dialogue, number=0, text=text)
        assert answer.json()["error"] == {"code": "invalid", "message": f"text: {reason}"}
        assert (await served.get(link)).json()["dialogue"]["turns"] == []
        most = await served.post(link, "message", dialogue=dialogue, number=0, text="\U0001f600" * 50)
        assert most.status_code == 200


async def test_halves_of_characters_and_nul_are_stored_as_what_every_database_keeps(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        link, dialogue = await begin(served)
        headers = {"Authorization": f"Bearer {link}", "Origin": ORIGIN, "Content-Type": "application/json"}
        body = json.dumps({"dialogue": dialogue, "number": 0, "text": "a\ud800b\0c"})
        assert (await served.http.post("/api/message", content=body, headers=headers)).status_code == 200
        assert (await served.get(link)).json()["dialogue"]["turns"][0]["text"] == "a\ufffdb\ufffdc"


async def test_the_number_of_open_dialogues_is_bounded(tmp_path: Path) -> None:
    async with served_study(tmp_path, limits={"open_dialogues": 2, "idle_minutes": 30}) as served:
        first, dialogue = await begin(served)
        await begin(served)
        [third] = served.invite()
        full = await served.agree(third)
        assert full["error"]["code"] == "full"
        assert (await served.get(first)).json()["dialogue"]["id"] == dialogue
        served.clock.now += 29 * 60
        await served.talk(first, dialogue, inputs=1)
        served.clock.now += 2 * 60  # the second one is idle
        assert (await served.post(third, "begin")).json()["dialogue"] is not None
        assert (await served.post(first, "begin")).json()["dialogue"]["id"] == dialogue

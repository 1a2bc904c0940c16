"""Systems under test: what they are asked, and that a bad answer costs no more than its bounds."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.files import write_lines
from support.studies import plan_fields
from turnscore_assessment.study.chatbots import ChatbotError, Chatbots, MissingKeyError
from turnscore_assessment.study.plan import StudyPlan

LIMITS = {"reply_seconds": 0.2, "reply_bytes": 1000, "reply_characters": 100, "replies_at_once": 2}

Answer = Callable[[httpx.Request], httpx.Response]


def make_plan(**system: Any) -> StudyPlan:
    systems = [{"name": "A", "url": "http://bots.test/v1", **system}]
    return StudyPlan.model_validate(plan_fields(systems=systems, limits=LIMITS))


def saying(content: object) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


def respond(status: int, content: bytes, **headers: str) -> httpx.Response:
    """As it comes from a server: not read yet."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))


async def ask(answer: Answer, plan: StudyPlan | None = None) -> str:
    plan = plan or make_plan()
    chatbots = Chatbots(plan, httpx.MockTransport(answer))
    try:
        return await chatbots.reply(plan.systems[0], ["hi", "hello", "how are you"], "d1")
    finally:
        await chatbots.close()


async def test_a_system_is_asked_in_openai_s_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_KEY", "k-1")
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return respond(200, saying("  fine\n"))

    plan = make_plan(model="m", prompt="Be kind.", key_variable="BOT_KEY", parameters={"temperature": 0.5})
    assert await ask(answer, plan) == "fine"
    assert json.loads(seen[0].content) == {
        "model": "m",
        "temperature": 0.5,
        "stream": False,
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "how are you"},
        ],
    }
    assert seen[0].headers["authorization"] == "Bearer k-1"
    assert seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (respond(500, saying("x")), "status 500"),
        (respond(302, b"", location="http://elsewhere.test"), "status 302"),
        (respond(200, b"<html>"), "not JSON"),
        (respond(200, b'{"choices": []}'), "has no choices"),
        (respond(200, saying(" \n")), "empty"),
        (respond(200, saying("x" * 101)), "longer than 100 characters"),
        (respond(200, gzip.compress(saying("x" * 50)), **{"content-encoding": "gzip"}), "compressed"),
    ],
)
async def test_an_answer_that_cannot_be_shown_is_no_reply(answer: httpx.Response, reason: str) -> None:
    with pytest.raises(ChatbotError, match=reason):
        await ask(lambda _: answer)


async def test_an_endless_answer_is_read_only_to_its_bound() -> None:
    sent = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 1
                yield b"x" * 400

    with pytest.raises(ChatbotError, match="longer than 1000 bytes"):
        await ask(lambda _: httpx.Response(200, stream=Endless()))
    assert sent == 3


async def test_a_slow_system_and_one_that_cannot_be_reached_give_no_reply() -> None:
    async def wait(_request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ChatbotError, match=r"within 0\.2 seconds"):
        await ask(wait)  # type: ignore[arg-type]
    with pytest.raises(ChatbotError, match="ConnectError: refused"):
        await ask(refuse)


async def test_no_more_requests_are_under_way_than_allowed_and_the_wait_counts() -> None:
    under_way = most = 0

    async def wait(_request: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.sleep(60)
        finally:
            under_way -= 1
        raise AssertionError

    plan = make_plan()
    chatbots = Chatbots(plan, httpx.MockTransport(wait))
    asked = [chatbots.reply(plan.systems[0], ["hi"], f"d{number}") for number in range(5)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    await chatbots.close()
    assert [type(each) for each in found] == [ChatbotError] * 5
    assert most == 2


def test_a_key_that_cannot_be_sent_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingKeyError, match="the environment has no BOT_KEY"):
        Chatbots(make_plan(key_variable="BOT_KEY"))
    monkeypatch.setenv("BOT_KEY", "k\u00e9y\n")
    with pytest.raises(MissingKeyError, match="BOT_KEY must be of printable ASCII characters"):
        Chatbots(make_plan(key_variable="BOT_KEY"))


async def test_a_degraded_system_says_the_same_when_asked_again_whatever_was_said(tmp_path: Path) -> None:
    words = ("red", "green", "blue", "white")
    lines = [{"turns": ["question", f"{word} one two three four five"]} for word in words]
    systems = [
        {"name": "A", "url": "http://bots.test/v1"},
        {"name": "bad", "corpus": str(write_lines(tmp_path / "corpus.jsonl", *lines)), "degraded": True},
    ]
    chatbots = Chatbots(plan := StudyPlan.model_validate(plan_fields(systems=systems)))
    said = [
        [await chatbots.reply(plan.systems[1], texts, f"d{number}") for number in range(20)]
        for texts in (["hi"], ["bye"], ["hi", "a", "b"])
    ]
    await chatbots.close()
    assert said[0] == said[1] != said[2]
    assert len(set(said[0])) > 5
    assert all(len(reply.split()) == 6 for reply in said[0])

"""What a study begins with, and whom workers talk with: its plan, their assignment, and the systems under test."""

import asyncio
import gzip
import json
import random
from collections import Counter

import httpx
import pytest
from pydantic import ValidationError
from support.files import write_lines
from support.studies import plan_fields
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import describe_problem
from turnscore_assessment.study.chatbots import ChatbotError, Chatbots, MissingKeyError
from turnscore_assessment.study.plan import PLAN_BYTES, BadPlanError, StudyPlan, read_plan
from turnscore_assessment.study.recordings import read_recordings
from turnscore_assessment.study.workers import assign_dialogues

ENDPOINT = {"name": "A", "url": "http://bots.test/v1"}
CRITERION = {"name": "fun", "statement": "Fun.", "low_end": "no", "high_end": "yes"}


WRONG_FIELDS = [
    ({"systems": [{**ENDPOINT, "corpus": "c.jsonl"}]}, "systems.0: must have one of url, dialogues and corpus"),
    ({"systems": [ENDPOINT, ENDPOINT]}, "two systems are called 'A'"),
    ({"systems": [{**ENDPOINT, "degraded": True}]}, "every system is degraded"),
    ({"systems": [ENDPOINT, {"name": "B", "dialogues": "d.jsonl"}]}, "all systems must talk, or all be recorded"),
    ({"systems": [{"name": "A", "url": "http://me:secret@bots.test/"}]}, "systems.0.url: must be an http"),
    ({"systems": [{**ENDPOINT, "parameters": {"stream": True}}]}, "systems.0.parameters: may not set 'stream'"),
    ({"systems": [{**ENDPOINT, "parameters": {"top_p": float("nan")}}]}, "systems.0.parameters: must be what JSON"),
    ({"criteria": [{**CRITERION, "high_end": ""}]}, "criterion 'fun' must name both ends"),
    ({"chat": {"inputs_at_least": 10, "inputs_at_most": 9}}, "chat: inputs_at_most must not be below"),
    ({"turnscore": {"url": "localhost:3000"}}, "turnscore.url: must be an http"),
    ({"colour": "blue"}, "colour: extra inputs are not permitted"),
]


@pytest.mark.parametrize(("changed", "reason"), WRONG_FIELDS)
def test_a_wrong_field_is_named(changed, reason):
    with pytest.raises(ValidationError) as caught:
        StudyPlan.model_validate(plan_fields(**changed))
    assert describe_problem(caught.value).startswith(reason)


NO_PLANS = [
    (b"name = ", "cannot be read"),
    (b"#" * (PLAN_BYTES + 1), "is larger than"),
    (b'name = "x"', "title: field required$"),
    (b'name = "x"\ntitel = "y"', "title: field required; there is no 'titel', did you mean 'title'?"),
]


@pytest.mark.parametrize(("content", "reason"), NO_PLANS)
def test_a_file_that_is_no_plan_is_refused_by_name(tmp_path, content, reason):
    path = tmp_path / "STUDY.toml"
    path.write_bytes(content)
    with pytest.raises(BadPlanError, match=reason) as caught:
        read_plan(path)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(BadPlanError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")


SYSTEMS = [
    *({"name": name, "url": "http://bots.test/v1"} for name in "ABCDE"),
    {"name": "bad", "url": "http://bots.test/v1", "degraded": True},
]


def deal(plan, workers, recordings=()):
    generator = random.Random(3)
    met = Counter()
    dealt = []
    for _ in range(workers):
        dealt.append(assign_dialogues(plan, dict(recordings), met, generator))
        met.update((each.system, each.recorded) for each in dealt[-1])
    return dealt


def test_every_worker_meets_every_system_once_in_an_order_of_chance():
    dealt = deal(StudyPlan.model_validate(plan_fields(systems=SYSTEMS)), 600)
    assert all(sorted(each.system for each in own) == ["A", "B", "C", "D", "E", "bad"] for own in dealt)
    places = Counter(place for own in dealt for place, each in enumerate(own) if each.degraded)
    assert set(places) == set(range(6))
    assert all(70 <= count <= 130 for count in places.values())  # 100 expected, deviation 9


def test_of_many_systems_each_worker_meets_a_part_and_all_are_met_equally_often():
    plan = StudyPlan.model_validate(
        plan_fields(systems=SYSTEMS, systems_per_worker=2, chat={"topics": ["cats", "tea"]})
    )
    dealt = deal(plan, 25)
    assert all(len(own) == 3 for own in dealt)
    assert all(sum(each.degraded for each in own) == 1 for own in dealt)
    counts = Counter(each.system for own in dealt for each in own)
    assert counts == {"bad": 25, "A": 10, "B": 10, "C": 10, "D": 10, "E": 10}
    pairs = {frozenset(each.system for each in own if not each.degraded) for own in dealt}
    assert len(pairs) > 5
    assert {each.topic for own in dealt for each in own} == {"cats", "tea"}


def make_recorded(folder, lines):
    file = folder / "recorded.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    systems = [{"name": "A", "dialogues": file}]
    return StudyPlan.model_validate(plan_fields(systems=systems, dialogues_per_system=2))


def spoken(name, text="hello"):
    return {"id": name, "turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": text}]}


def test_recorded_dialogues_are_read_equally_often_and_none_twice_by_one_worker(tmp_path):
    plan = make_recorded(tmp_path, [spoken(name) for name in ("d1", "d2", "d3")])
    dealt = deal(plan, 6, read_recordings(plan).names)
    assert all(len({each.recorded for each in own}) == 2 for own in dealt)
    assert Counter(each.recorded for own in dealt for each in own) == {"d1": 4, "d2": 4, "d3": 4}


WRONG_RECORDINGS = [
    ([spoken("d1"), spoken("d1")], r"recorded.jsonl, line 2: id: 'd1' was already used"),
    ([spoken("d1"), spoken("d2", " ")], r"line 2: turns: the system says nothing"),
    ([spoken("d1")], r"has 1 dialogues, fewer than dialogues_per_system"),
]


@pytest.mark.parametrize(("lines", "reason"), WRONG_RECORDINGS)
def test_a_wrong_line_of_recorded_dialogues_is_named(tmp_path, lines, reason):
    with pytest.raises(BadFileError, match=reason):
        read_recordings(make_recorded(tmp_path, lines))


LIMITS = {"reply_seconds": 0.2, "reply_bytes": 1000, "reply_characters": 100, "replies_at_once": 2}


def make_plan(**system):
    systems = [{"name": "A", "url": "http://bots.test/v1", **system}]
    return StudyPlan.model_validate(plan_fields(systems=systems, limits=LIMITS))


def saying(content):
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


def respond(status, content, **headers):
    """As it comes from a server: not read yet."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))


async def ask(answer, plan=None):
    plan = plan or make_plan()
    chatbots = Chatbots(plan, httpx.MockTransport(answer))
    try:
        return await chatbots.reply(plan.systems[0], ["hi", "hello", "how are you"], "d1")
    finally:
        await chatbots.close()


async def test_a_system_is_asked_in_openai_s_form(monkeypatch):
    monkeypatch.setenv("BOT_KEY", "k-1")
    seen = []

    def answer(request):
        seen.append(request)
        return respond(200, saying("  fine\n"))

    plan = make_plan(model="m", prompt="Be kind.", key_variable="BOT_KEY", parameters={"temperature": 0.5})
    assert await ask(answer, plan) == "fine"
    said = [("system", "Be kind."), ("user", "hi"), ("assistant", "hello"), ("user", "how are you")]
    messages = [{"role": role, "content": text} for role, text in said]
    expected = {"model": "m", "temperature": 0.5, "stream": False, "messages": messages}
    assert json.loads(seen[0].content) == expected
    assert seen[0].headers["authorization"] == "Bearer k-1"
    assert seen[0].headers["accept-encoding"] == "identity"


WRONG_ANSWERS = [
    (respond(500, saying("x")), "status 500"),
    (respond(302, b"", location="http://elsewhere.test"), "status 302"),
    (respond(200, b"<html>"), "not JSON"),
    (respond(200, b'{"choices": []}'), "has no choices"),
    (respond(200, saying(" \n")), "empty"),
    (respond(200, saying("x" * 101)), "longer than 100 characters"),
    (respond(200, gzip.compress(saying("x" * 50)), **{"content-encoding": "gzip"}), "compressed"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_ANSWERS)
async def test_an_answer_that_cannot_be_shown_is_no_reply(answer, reason):
    with pytest.raises(ChatbotError, match=reason):
        await ask(lambda _: answer)


async def test_an_endless_answer_is_read_only_to_its_bound():
    sent = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self):
            nonlocal sent
            while True:
                sent += 1
                yield b"x" * 400

    with pytest.raises(ChatbotError, match="longer than 1000 bytes"):
        await ask(lambda _: httpx.Response(200, stream=Endless()))
    assert sent == 3


async def test_a_system_that_cannot_be_reached_gives_no_reply():
    def refuse(request):
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ChatbotError, match="ConnectError: refused"):
        await ask(refuse)


async def test_slow_systems_give_no_reply_and_no_more_of_them_are_asked_at_once_than_allowed():
    under_way = most = 0

    async def wait(_request):
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
    assert all(isinstance(each, ChatbotError) and "within 0.2 seconds" in str(each) for each in found)
    assert most == 2


def test_a_key_that_cannot_be_sent_stops_the_start(monkeypatch):
    with pytest.raises(MissingKeyError, match="the environment has no BOT_KEY"):
        Chatbots(make_plan(key_variable="BOT_KEY"))
    monkeypatch.setenv("BOT_KEY", "k\u00e9y\n")
    with pytest.raises(MissingKeyError, match="BOT_KEY must be of printable ASCII characters"):
        Chatbots(make_plan(key_variable="BOT_KEY"))


async def test_a_degraded_system_says_the_same_when_asked_again_whatever_was_said(tmp_path):
    words = ("red", "green", "blue", "white")
    lines = [{"turns": ["question", f"{word} one two three four five"]} for word in words]
    systems = [
        {"name": "A", "url": "http://bots.test/v1"},
        {"name": "bad", "corpus": str(write_lines(tmp_path / "corpus.jsonl", *lines)), "degraded": True},
    ]
    plan = StudyPlan.model_validate(plan_fields(systems=systems))
    chatbots = Chatbots(plan)
    said = [
        [await chatbots.reply(plan.systems[1], texts, f"d{number}") for number in range(20)]
        for texts in (["hi"], ["bye"], ["hi", "a", "b"])
    ]
    await chatbots.close()
    assert said[0] == said[1] != said[2]
    assert len(set(said[0])) > 5
    assert all(len(reply.split()) == 6 for reply in said[0])

"""What a live conversation answers: order, aggregates, errors, counts."""

from typing import Any

import pytest
from prometheus_client import REGISTRY
from support.conditions import until
from support.conversations import talking
from support.fakes import POISON, FakeScorer
from turnscore_core.deadline import Deadline
from turnscore_core.errors import (
    InvalidRequestError,
)
from turnscore_service.settings.service import Settings
from turnscore_wire import DialogueRequest, Limits

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def test_every_message_is_answered_once_and_in_order():
    async with talking() as (channel, _, _):
        channel.tell({"open": {"context": [{"speaker": "user", "text": "before"}]}})
        channel.say("user", "q")
        channel.say("system", "one two three")
        channel.say("system", "one")
        replies = [await channel.hear() for _ in range(4)]
    opened, heard, first, second = replies
    assert (opened.opened.request_id, opened.opened.scorers, opened.opened.turns) == ("r-1", ["fake"], 1)
    assert heard.ack.index == 1
    assert (first.scored.index, first.scored.scores["fake"].value) == (2, 0.03)
    assert (second.scored.index, second.scored.scores["fake"].value) == (3, 0.01)
    assert first.scored.dialogue["fake"].turns == 1
    assert second.scored.dialogue["fake"].model_dump() == {
        "mean": 0.02,
        "min": 0.01,
        "max": 0.03,
        "turns": 2,
        "percentile_mean": 2.0,
        "percentile_min": 1.0,
        "percentile_max": 3.0,
    }
    assert channel.replies.empty()


async def test_a_slow_turn_is_answered_before_a_quick_one_said_after_it():
    slow, quick = FakeScorer(), FakeScorer()
    slow.gate.clear()

    class Choosing(FakeScorer):
        """Takes the slow road for the text `wait`."""

        def encode(self, turns):
            return (slow if turns[0].response == "wait" else quick).encode(turns)

        def score(self, batch):
            return slow.score(batch) if batch[0].width == 1 else quick.score(batch)

    async with talking(fake=Choosing()) as (channel, _, _):
        channel.say("system", "wait")
        channel.say("system", "two words")
        channel.say("user", "q")
        await until(slow.started.is_set)
        slow.gate.set()
        kinds = [(await channel.hear()).model_dump(exclude_none=True) for _ in range(3)]
    assert [list(kind) for kind in kinds] == [["scored"], ["scored"], ["ack"]]
    assert [next(iter(kind.values()))["index"] for kind in kinds] == [0, 1, 2]


async def test_at_its_end_a_conversation_says_what_score_dialogue_says():
    turns = [("system", "a b c"), ("user", "q"), ("system", "a b c d e f g"), ("user", ""), ("system", POISON)]
    turns += [("user", "q"), ("system", "one two"), ("system", "one two three four")]
    async with talking(fake=FakeScorer(), other=FakeScorer()) as (channel, _, runtime):
        scored = []
        for speaker, text in turns:
            channel.say(speaker, text)
            reply = await channel.hear()
            scored += [reply.scored] if reply.scored else []
        asked = DialogueRequest.model_validate(
            {"turns": [{"speaker": who, "text": text} for who, text in turns], "cache": "bypass"}
        )
        whole = await runtime.pipeline().score_dialogue(asked, "r-2", Deadline.after_ms(30_000))
    assert [each.index for each in scored] == [each.index for each in whole.turns]
    assert [each.scores for each in scored] == [each.scores for each in whole.turns]
    assert [each.errors for each in scored] == [each.errors for each in whole.turns]
    assert scored[-1].dialogue == whole.dialogue
    assert list(scored[-1].dialogue) == list(whole.dialogue)


async def test_the_context_that_a_conversation_opens_with_is_seen_and_not_scored():
    seen = []

    class Looking(FakeScorer):
        def encode(self, turns):
            seen.extend([each.text for each in turn.context] for turn in turns)
            return super().encode(turns)

    async with talking(fake=Looking()) as (channel, _, _):
        channel.tell({"open": {"context": [{"speaker": "user", "text": "a"}, {"speaker": "system", "text": "b c"}]}})
        channel.say("user", "d")
        channel.say("system", "e")
        replies = [await channel.hear() for _ in range(3)]
    assert seen == [["a", "b c", "d"]]
    assert replies[2].scored.index == 3
    assert replies[2].scored.dialogue["fake"].turns == 1


async def test_a_turn_that_is_not_taken_is_told_by_its_field_and_leaves_the_conversation_as_it_was():
    small = Settings(limits=Limits(max_text_chars=9, max_turns=3))
    async with talking(small) as (channel, _, _):
        channel.say("user", "q")
        channel.say("system", " ")
        channel.say("user", "x" * 10)
        channel.tell({"open": {}})
        channel.babble()
        channel.say("system", "a b")
        channel.say("user", "q")
        channel.say("user", "one more")
        replies = [await channel.hear() for _ in range(8)]
    told = [(reply.error.code, reply.error.field) if reply.error else None for reply in replies]
    assert told == [
        None,
        ("invalid_request", "turn.text"),
        ("too_large", "turn.text"),
        ("invalid_request", "open"),
        ("invalid_request", "body"),
        None,
        None,
        ("too_large", "turn"),
    ]
    assert replies[5].scored.index == 1


async def test_a_turn_whose_scoring_fails_stays_in_the_dialogue_and_the_conversation_goes_on():
    async with talking() as (channel, _, _):
        channel.say("system", POISON)
        channel.say("system", "a b")
        failed, scored = [await channel.hear() for _ in range(2)]
    assert (failed.scored.index, failed.scored.scores) == (0, {})
    assert failed.scored.errors["fake"].code == "internal"
    assert (scored.scored.index, scored.scored.scores["fake"].value) == (1, 0.02)


async def test_an_unforeseen_error_while_scoring_is_that_turns_alone(monkeypatch: pytest.MonkeyPatch):
    async with talking() as (channel, _, runtime):
        with monkeypatch.context() as broken:
            broken.setattr(runtime.pipeline()._scheduler, "answer", lambda _: 1 / 0)
            channel.say("system", "a")
            assert (await channel.hear()).scored.errors["fake"].code == "internal"
        channel.say("system", "a")
        assert (await channel.hear()).scored.scores["fake"].value == 0.01


@pytest.mark.parametrize(
    ("opening", "turn"), [({"deadline_ms": 20}, {}), ({"deadline_ms": 30_000}, {"deadline_ms": 20})]
)
async def test_a_turns_deadline_is_its_own_or_the_openings(opening: dict, turn: dict):
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(Settings(default_deadline_ms=60_000), fake=scorer) as (channel, _, _):
        channel.tell({"open": opening})
        channel.say("system", "a", **turn)
        await channel.hear()
        assert (await channel.hear()).scored.errors["fake"].code == "deadline_exceeded"
        scorer.gate.set()


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"open": {"scorers": ["mood"]}}, "open.scorers.0"),
        ({"open": {"options": {"fake": {"x": 1}}}}, "open.options.fake.x"),
    ],
)
async def test_a_refused_opening_ends_the_conversation(message: dict, field: str):
    async with talking() as (channel, holding, _):
        channel.tell(message)
        channel.say("system", "a")
        with pytest.raises(InvalidRequestError) as refused:
            await holding
    assert refused.value.field == field
    assert channel.replies.empty()


async def test_a_first_message_that_cannot_be_read_ends_the_conversation():
    async with talking() as (channel, holding, _):
        channel.babble()
        with pytest.raises(InvalidRequestError):
            await holding


async def test_messages_are_counted_by_what_became_of_them():
    def counted() -> list[float]:
        outcomes = ("acknowledged", "scored", "failed", "refused")
        name = "turnscore_conversation_turns_total"
        return [REGISTRY.get_sample_value(name, {"outcome": each}) or 0.0 for each in outcomes]

    before = counted()
    async with talking() as (channel, _, _):
        for speaker, text in [("user", "q"), ("system", "a"), ("system", POISON), ("system", ""), ("system", "b")]:
            channel.say(speaker, text)
            await channel.hear()
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 2, 1, 1]


ASKED = {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url"}]}
CALLS = {"role": "assistant", "content": "one", "tool_calls": [{}]}
RESULT = {"role": "tool", "content": "secret"}


def told(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def test_what_messages_end_with_is_scored_once_the_tools_are_done():
    seen: list[list[str]] = []

    class Looking(FakeScorer):
        def encode(self, turns: Any) -> Any:
            seen.extend([each.text for each in turn.context] for turn in turns)
            return super().encode(turns)

    async with talking(fake=Looking()) as (channel, _, _):
        channel.tell({"open": {"messages": [{"role": "system", "content": "p"}, told("hi")]}})
        channel.tell({"messages": {"messages": [ASKED, CALLS]}})
        channel.tell({"messages": {"messages": [RESULT, told("two three")]}})
        channel.say("user", "and?")
        channel.tell({"messages": {"messages": [told("so.")]}})
        opened, waits, first, heard, second = [await channel.hear() for _ in range(5)]
    assert opened.opened.turns == 2
    assert (waits.ack.index, waits.ack.skipped) == (3, 1)
    assert (first.scored.index, first.scored.skipped, first.scored.scores["fake"].value) == (5, 0, 0.03)
    assert (heard.ack.index, second.scored.index) == (6, 7)
    assert second.scored.dialogue["fake"].turns == 2
    assert seen == [["hi", "look"], ["hi", "look", "one two three", "and?"]]


async def test_messages_that_are_not_taken_leave_the_conversation_as_it_was():
    small = Settings(limits=Limits(max_text_chars=9, max_turns=3))
    async with talking(small) as (channel, _, _):
        channel.tell({"messages": {"messages": [CALLS]}})
        channel.tell({"messages": {"messages": [RESULT, told("x" * 10)]}})
        channel.tell({"messages": {"messages": [told(" ")]}})
        channel.tell({"messages": {"messages": [RESULT] * 3}})
        channel.tell({"messages": {"messages": [told("two")]}})
        channel.tell({"messages": {"messages": [told("a"), told("b"), ASKED]}})
        replies = [await channel.hear() for _ in range(6)]
    assert [(each.error.code, each.error.field) if each.error else None for each in replies] == [
        None,
        ("too_large", "messages.messages.1.content"),
        ("invalid_request", "messages.messages"),
        ("too_large", "messages.messages"),
        None,
        ("too_large", "messages"),
    ]
    assert (replies[4].scored.index, replies[4].scored.scores["fake"].value) == (1, 0.02)

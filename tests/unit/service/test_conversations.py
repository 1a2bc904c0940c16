"""What a live conversation answers, how it is bounded, how it ends, and what a cut leaves: nothing."""

import asyncio

import pytest
from support.conditions import until
from support.fakes import POISON, FakeReaction, FakeScorer, Since
from support.transports import bounded, talking
from turnscore_core.errors import CallerLeftError, DeadlineExceededError
from turnscore_core.scorers.scorer import TokenPack
from turnscore_service.settings.service import AdmissionSettings, Settings
from turnscore_wire import Limits

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
    percentiles = {"percentile_mean": 2.0, "percentile_min": 1.0, "percentile_max": 3.0}
    expected = {"mean": 0.02, "min": 0.01, "max": 0.03, "turns": 2, **percentiles}
    assert second.scored.dialogue["fake"].model_dump() == expected
    assert channel.replies.empty()


async def test_a_user_s_turn_is_answered_by_its_scores_where_their_scorer_is_asked():
    grown = Since("conversation_turns_")
    async with talking(fake=FakeScorer(), reaction=FakeReaction()) as (channel, _, _):
        channel.tell({"open": {"scorers": ["fake", "reaction"]}})
        for speaker, text in (("user", "a b c"), ("user", " "), ("system", "a"), ("user", POISON)):
            channel.say(speaker, text)
        channel.tell({"messages": {"messages": [{"role": "user", "content": "b"}, {"role": "system", "content": "c"}]}})
        opened, first, silent, said, failed, last = [await channel.hear() for _ in range(6)]
    assert opened.opened.scorers == ["fake", "reaction"]
    assert (first.user_turn.index, first.user_turn.scores["reaction"].signals) == (0, ["pleased", "frustrated"])
    assert list(first.user_turn.dialogue) == []  # nothing was said before it that counts
    assert silent.ack.index == 1
    assert (said.scored.index, list(said.scored.scores)) == (2, ["fake"])
    assert (failed.user_turn.scores, list(failed.user_turn.errors)) == ({}, ["reaction"])
    assert (last.user_turn.index, last.user_turn.dialogue["reaction"].turns) == (4, 1)
    assert [grown("total", outcome=each) for each in ("acknowledged", "scored", "failed")] == [1, 3, 1]


async def test_a_flood_of_user_turns_waits_for_its_answers_and_pays_for_each():
    reaction = FakeReaction()
    reaction.gate.clear()
    settings = Settings(conversations={"max_pending": 3}, cache={"ttl_seconds": 0}, admission={"max_items": 2})
    async with talking(settings, reaction=reaction) as (channel, _, _):
        channel.tell({"open": {"scorers": ["reaction"]}})
        await channel.hear()
        for number in range(20):
            channel.say("user", f"turn {number}")
        await until(lambda: channel.read == 4)
        await until(reaction.started.is_set)
        assert channel.read == 4
        reaction.gate.set()
        answers = [(await channel.hear()).user_turn for _ in range(20)]
    assert [answer.index for answer in answers] == list(range(20))
    assert [list(answer.scores) for answer in answers[:2]] == [["reaction"]] * 2
    assert answers[2].errors["reaction"].code == "overloaded"  # there is room for two turns


class Reader(FakeScorer):
    """Reads a user's turn before the reply to it is there."""

    def __init__(self):
        super().__init__()
        self.read = []  # words of the turns that were read

    def read_ahead(self, turn):
        return TokenPack(rows=((0,) * len(turn.context[-1].text.split()),), answers=(), tokens=())

    def score(self, batch):
        self.read += [pack.width for pack in batch if not pack.answers]
        asked = [pack for pack in batch if pack.answers]
        return super().score(asked) if asked else []


async def test_the_loop_comes_round_after_every_message_of_a_flood():
    async with talking(bounded(max_pending=100)) as (channel, _, _):
        for _ in range(100):
            channel.say("user", "hi")
        while (heard := channel.replies.qsize()) < 100:
            await asyncio.sleep(0)
            assert channel.replies.qsize() <= heard + 1


async def test_a_users_turn_is_read_when_it_comes_once_for_each_reply_that_is_scored():
    scorer = Reader()
    async with talking(fake=scorer) as (channel, _, _):
        for speaker, text in (("user", "no reply yet"), ("system", "a b"), ("user", "one"), ("user", "one more")):
            channel.say(speaker, text)
            await channel.hear()
        await until(lambda: scorer.read == [1])
        channel.say("system", "a b c")
        assert (await channel.hear()).scored.scores["fake"].value == 0.03
    assert scorer.read == [1]


async def test_a_user_s_turn_that_is_scored_lets_no_other_be_read_ahead():
    scorer = Reader()
    async with talking(fake=scorer, reaction=FakeReaction()) as (channel, _, _):
        channel.tell({"open": {"scorers": ["fake", "reaction"]}})
        await channel.hear()
        for speaker, text in (("system", "a b"), ("user", "one"), ("user", "one more"), ("system", "a b c")):
            channel.say(speaker, text)
            await channel.hear()
    assert scorer.read == [1]


async def test_a_reader_that_breaks_costs_the_conversation_nothing():
    class Broken(FakeScorer):
        def read_ahead(self, turn):
            raise ValueError("no such vector")

    async with talking(fake=Broken()) as (channel, _, _):
        for speaker, text in (("system", "a"), ("user", "one"), ("system", "a b")):
            channel.say(speaker, text)
        assert [(await channel.hear()).error for _ in range(3)] == [None] * 3


async def test_no_turn_is_read_ahead_where_there_is_no_room():
    scorer = Reader()
    async with talking(Settings(admission=AdmissionSettings(max_items=1)), fake=scorer) as (channel, _, _):
        channel.say("system", "a")
        await channel.hear()
        scorer.started.clear()
        scorer.gate.clear()
        channel.say("system", "a b")
        await until(scorer.started.is_set)
        channel.say("user", "one")
        await asyncio.sleep(0.05)
        scorer.gate.set()
        scored, heard = [await channel.hear() for _ in range(2)]
        assert (scored.scored.scores["fake"].value, heard.ack.index) == (0.02, 2)
    assert scorer.read == []


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


async def test_an_unforeseen_error_while_scoring_is_that_turns_alone(monkeypatch):
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
async def test_a_turns_deadline_is_its_own_or_the_openings(opening, turn):
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(Settings(default_deadline_ms=60_000), fake=scorer) as (channel, _, _):
        channel.tell({"open": opening})
        channel.say("system", "a", **turn)
        await channel.hear()
        assert (await channel.hear()).scored.errors["fake"].code == "deadline_exceeded"
        scorer.gate.set()


ASKED = {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url"}]}
CALLS = {"role": "assistant", "content": "one", "tool_calls": [{}]}
RESULT = {"role": "tool", "content": "secret"}


def told(text):
    return {"role": "assistant", "content": text}


async def test_what_messages_end_with_is_scored_once_the_tools_are_done():
    async with talking() as (channel, _, _):
        channel.tell({"open": {"messages": [{"role": "system", "content": "p"}, told("hi")]}})
        channel.tell({"messages": {"messages": [ASKED, CALLS]}})
        channel.tell({"messages": {"messages": [RESULT, told("two three")]}})
        opened, waits, first = [await channel.hear() for _ in range(3)]
    assert opened.opened.turns == 2
    assert (waits.ack.index, waits.ack.skipped) == (3, 1)
    assert (first.scored.index, first.scored.skipped, first.scored.scores["fake"].value) == (5, 0, 0.03)


async def test_messages_that_are_not_taken_leave_the_conversation_as_it_was():
    small = Settings(limits=Limits(max_text_chars=9, max_turns=3))
    async with talking(small) as (channel, _, _):
        taken, long, blank = [CALLS], [RESULT, told("x" * 10)], [told(" ")]
        for sent in (taken, long, blank, [RESULT] * 3, [told("two")], [told("a"), told("b"), ASKED]):
            channel.tell({"messages": {"messages": sent}})
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


async def test_a_caller_that_takes_no_answers_is_not_read_and_at_last_treated_as_gone():
    async with talking(bounded(max_pending=2, idle_seconds=0.2)) as (channel, holding, _):
        channel.room.clear()
        for _ in range(5):
            channel.say("system", "a")
        with pytest.raises(CallerLeftError):
            await asyncio.wait_for(holding, 30)
        assert channel.read == 2


async def test_time_spent_on_scoring_is_not_idle_time():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(bounded(idle_seconds=0.5), fake=scorer) as (channel, holding, _):
        channel.say("system", "a")
        await asyncio.sleep(1.0)  # twice as long as it may be idle
        assert not holding.done()
        scorer.gate.set()
        assert (await channel.hear()).scored.scores
        channel.say("user", "still there")
        assert (await channel.hear()).ack
        with pytest.raises(DeadlineExceededError):
            await asyncio.wait_for(holding, 30)

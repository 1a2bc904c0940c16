"""A live conversation over a channel that a test holds: order, aggregates, bounds, errors, and what a cut leaves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import REGISTRY
from support.fakes import POISON, FakeScorer, loaded_fake
from turnscore_service.conversation import Received
from turnscore_service.deadline import Deadline
from turnscore_service.errors import (
    CallerLeftError,
    DeadlineExceededError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    TooLargeError,
)
from turnscore_service.settings import AdmissionSettings, ConversationSettings, Settings
from turnscore_service.wiring import Runtime
from turnscore_wire import ConversationMessage, ConversationReply, DialogueRequest, Limits

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class HeldChannel:
    """A channel whose caller is the test: it says, hears, and leaves."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[Received | CallerLeftError | None] = asyncio.Queue()
        self.replies: asyncio.Queue[ConversationReply] = asyncio.Queue()
        self.room = asyncio.Event()
        self.room.set()
        self.read = 0

    async def receive(self) -> Received | None:
        received = await self.inbox.get()
        if isinstance(received, CallerLeftError):
            raise received
        self.read += 1
        return received

    async def send(self, reply: ConversationReply) -> None:
        await self.room.wait()
        self.replies.put_nowait(reply)

    def say(self, speaker: str, text: str, **fields: Any) -> None:
        self.tell({"turn": {"speaker": speaker, "text": text, **fields}})

    def tell(self, message: dict[str, Any]) -> None:
        self.inbox.put_nowait(Received(ConversationMessage.model_validate(message), 100))

    async def hear(self) -> ConversationReply:
        return await asyncio.wait_for(self.replies.get(), 30)


@asynccontextmanager
async def serving(settings: Settings | None = None, **scorers: Any) -> AsyncIterator[Runtime]:
    loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
    runtime = Runtime(settings or Settings(), load=lambda _: loaded)
    runtime.start()
    await runtime.wait_until_loaded()
    yield runtime
    await runtime.stop()


@asynccontextmanager
async def talking(
    settings: Settings | None = None, **scorers: Any
) -> AsyncIterator[tuple[HeldChannel, "asyncio.Task[None]", Runtime]]:
    async with serving(settings, **(scorers or {"fake": FakeScorer()})) as runtime:
        channel = HeldChannel()
        holding = asyncio.create_task(runtime.conversations.hold(runtime.pipeline(), channel, "r-1"))
        yield channel, holding, runtime
        if not holding.done():
            channel.inbox.put_nowait(None)
            await asyncio.wait_for(holding, 30)


def bounded(**bounds: Any) -> Settings:
    return Settings(conversations=ConversationSettings(**bounds))


@pytest.fixture
async def nothing_is_left() -> AsyncIterator[None]:
    """After every test: no task but the test's own, nothing in flight, no conversation open."""
    before = asyncio.all_tasks()
    yield
    assert {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()} == set()
    assert REGISTRY.get_sample_value("turnscore_open_conversations") == 0
    for scorer in ("fake", "other"):
        assert not REGISTRY.get_sample_value("turnscore_items_in_flight", {"scorer": scorer})
        assert not REGISTRY.get_sample_value("turnscore_queued_items", {"scorer": scorer})


async def until(claim: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not claim():
            await asyncio.sleep(0)


async def test_every_message_is_answered_once_and_in_order():
    async with talking() as (channel, _, _):
        channel.tell({"open": {"context": [{"speaker": "user", "text": "before"}]}})
        channel.say("user", "q")
        channel.say("system", "one two three")
        channel.say("system", "one")
        replies = [await channel.hear() for _ in range(4)]
    opened, heard, first, second = replies
    assert (opened.opened.request_id, opened.opened.scorers, opened.opened.turns) == ("r-1", ["fake"], 1)
    assert heard.heard.index == 1
    assert (first.scored.index, first.scored.scores["fake"].value) == (2, 0.03)
    assert (second.scored.index, second.scored.scores["fake"].value) == (3, 0.01)
    assert first.scored.dialogue["fake"].turns == 1
    assert second.scored.dialogue["fake"].model_dump() == {"mean": 0.02, "min": 0.01, "max": 0.03, "turns": 2}
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
    assert [list(kind) for kind in kinds] == [["scored"], ["scored"], ["heard"]]
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
        channel.inbox.put_nowait(Received(InvalidRequestError("the body is not JSON", field="body"), 3))
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
            broken.setattr(runtime.pipeline()._answerer, "answer", lambda _: 1 / 0)
            channel.say("system", "a")
            assert (await channel.hear()).scored.errors["fake"].code == "internal"
        channel.say("system", "a")
        assert (await channel.hear()).scored.scores["fake"].value == 0.01


async def test_a_turn_without_room_is_told_and_the_next_one_is_scored():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(Settings(admission=AdmissionSettings(max_items=1)), fake=scorer) as (channel, _, _):
        channel.say("system", "a")
        await until(scorer.started.is_set)
        channel.say("system", "b")
        await until(lambda: channel.read == 2)
        scorer.gate.set()
        first, second = await channel.hear(), await channel.hear()
        channel.say("system", "c")
        third = await channel.hear()
    assert first.scored.scores
    assert second.scored.errors["fake"].code == "overloaded"
    assert second.scored.errors["fake"].retry_after_ms
    assert (third.scored.index, list(third.scored.scores)) == (2, ["fake"])


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
        channel.inbox.put_nowait(Received(InvalidRequestError("the body is not JSON", field="body"), 3))
        with pytest.raises(InvalidRequestError):
            await holding


async def test_no_more_is_read_than_may_be_unanswered():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(bounded(max_unanswered=2), fake=scorer) as (channel, _, _):
        for _ in range(5):
            channel.say("system", "a")
        await until(scorer.started.is_set)
        await until(lambda: channel.read == 2)
        for _ in range(100):
            await asyncio.sleep(0)
        assert channel.read == 2
        scorer.gate.set()
        assert [(await channel.hear()).scored.index for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_caller_that_takes_no_answers_is_not_read_and_at_last_treated_as_gone():
    async with talking(bounded(max_unanswered=2, idle_seconds=0.2)) as (channel, holding, _):
        channel.room.clear()
        for _ in range(5):
            channel.say("system", "a")
        with pytest.raises(CallerLeftError):
            await asyncio.wait_for(holding, 30)
        assert channel.read == 2


async def test_a_conversation_in_which_nothing_is_said_ends():
    async with talking(bounded(idle_seconds=0.05)) as (channel, holding, _):
        channel.say("user", "q")
        await channel.hear()
        with pytest.raises(DeadlineExceededError, match=r"0\.05 s"):
            await asyncio.wait_for(holding, 30)


async def test_time_spent_on_scoring_is_not_idle_time():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(bounded(idle_seconds=0.1), fake=scorer) as (channel, holding, _):
        channel.say("system", "a")
        await asyncio.sleep(0.3)  # three times as long as it may be idle
        assert not holding.done()
        scorer.gate.set()
        assert (await channel.hear()).scored.scores
        channel.say("user", "still there")
        assert (await channel.hear()).heard
        with pytest.raises(DeadlineExceededError):
            await asyncio.wait_for(holding, 30)


async def test_more_bytes_than_a_conversation_takes_end_it_after_the_answers_due():
    async with talking(bounded(max_bytes=250)) as (channel, holding, _):
        for _ in range(3):
            channel.say("system", "a")
        with pytest.raises(TooLargeError):
            await holding
        assert [(await channel.hear()).scored.index for _ in range(2)] == [0, 1]
        assert channel.replies.empty()


@pytest.mark.parametrize("way", ["leaves", "is cancelled"])
async def test_a_conversation_cut_in_the_middle_leaves_nothing_behind(way: str):
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(fake=scorer) as (channel, holding, _):
        for _ in range(3):
            channel.say("system", "a")
        await until(scorer.started.is_set)
        await until(lambda: channel.read == 3)
        if way == "leaves":
            channel.inbox.put_nowait(CallerLeftError())
        else:
            holding.cancel()
        with pytest.raises((CallerLeftError, asyncio.CancelledError)):
            await asyncio.wait_for(holding, 10)  # the scorer is held for longer: nobody waits for it
        scorer.gate.set()
        assert channel.replies.empty()


async def test_a_caller_that_has_said_everything_gets_the_answers_due():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(fake=scorer) as (channel, holding, _):
        channel.say("system", "a")
        channel.inbox.put_nowait(None)
        await until(scorer.started.is_set)
        scorer.gate.set()
        await asyncio.wait_for(holding, 30)
        assert (await channel.hear()).scored.scores


async def test_draining_is_told_and_turns_are_still_taken_until_the_end():
    scorer = FakeScorer()
    async with talking(Settings(drain_seconds=7), fake=scorer) as (channel, holding, runtime):
        channel.say("user", "q")
        assert (await channel.hear()).heard
        runtime.begin_drain()
        assert (await channel.hear()).draining.ends_in_ms == 7000
        scorer.gate.clear()
        channel.say("system", "a")
        await until(scorer.started.is_set)
        ending = asyncio.create_task(runtime.end_conversations())
        await asyncio.sleep(0)  # one step of the loop: the task has begun
        channel.say("system", "too late")
        with pytest.raises(NotReadyError):
            runtime.conversations.require_room()
        scorer.gate.set()
        with pytest.raises(NotReadyError):
            await asyncio.wait_for(holding, 30)
        await ending
        assert (await channel.hear()).scored.scores
        assert channel.replies.empty()


async def test_there_are_no_more_conversations_than_may_be_open():
    async with talking(bounded(max_open=1)) as (channel, _, runtime):
        channel.say("user", "q")
        await channel.hear()
        with pytest.raises(OverloadedError) as refused:
            await runtime.conversations.hold(runtime.pipeline(), HeldChannel(), "r-2")
        assert refused.value.retry_after_ms
        assert REGISTRY.get_sample_value("turnscore_open_conversations") == 1


async def test_messages_are_counted_by_what_became_of_them():
    def counted() -> list[float]:
        outcomes = ("heard", "scored", "failed", "refused")
        name = "turnscore_conversation_turns_total"
        return [REGISTRY.get_sample_value(name, {"outcome": each}) or 0.0 for each in outcomes]

    before = counted()
    async with talking() as (channel, _, _):
        for speaker, text in [("user", "q"), ("system", "a"), ("system", POISON), ("system", ""), ("system", "b")]:
            channel.say(speaker, text)
            await channel.hear()
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 2, 1, 1]

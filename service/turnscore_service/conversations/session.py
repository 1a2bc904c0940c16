"""One live conversation: every message is answered once, in order; how many wait, and for how long, is bounded.

A door gives a Channel and learns of the end from what `run` raises. The messages are turnscore_wire.conversations'.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from turnscore_wire import (
    ConversationDraining,
    ConversationHeard,
    ConversationMessage,
    ConversationOpened,
    ConversationOpening,
    ConversationReply,
    ConversationScored,
    ConversationTurn,
    Turn,
)

from turnscore_service import metrics
from turnscore_service.deadline import Deadline
from turnscore_service.errors import (
    CallerLeftError,
    DeadlineExceededError,
    FailedScoringError,
    InvalidRequestError,
    ScoringError,
    TooLargeError,
)
from turnscore_service.path.dialogue_tally import DialogueTally
from turnscore_service.path.items import Item
from turnscore_service.path.outcomes import Outcome, error_details, timing_of
from turnscore_service.path.pipeline import ScoringPipeline
from turnscore_service.path.request_checks import check_opening, check_spoken_turn
from turnscore_service.settings.service import Settings

_LOGGER = logging.getLogger("turnscore.conversations")


@dataclass(frozen=True, slots=True)
class Received:
    """One message of the caller as it came."""

    size_bytes: int
    read: Callable[[], ConversationMessage]
    """Decodes it, which takes time: its size comes first. Raises the error that says why it is no message."""


class Channel(Protocol):
    """A door's side of a conversation. Both methods raise CallerLeftError once the connection is gone."""

    async def receive(self) -> Received | None:
        """The next message; None when the caller has said everything and still listens."""

    async def send(self, reply: ConversationReply) -> None:
        """Hands one message to the caller; returns when there is room for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialogue:
    opening: ConversationOpening
    """The opening's choices, and the turns since."""

    asked: dict[str, object]
    deadline_ms: int
    turns: list[Turn]
    tally: DialogueTally


@dataclass(frozen=True, slots=True, kw_only=True)
class _TurnInWork:
    index: int
    item: Item
    started_at: float
    outcome: "asyncio.Task[Outcome]"


_Answer = ConversationReply | _TurnInWork


class Conversation:
    """Reads in the task that runs it and answers in another; so a turn is read while those before it are scored."""

    def __init__(self, pipeline: ScoringPipeline, channel: Channel, request_id: str, settings: Settings) -> None:
        self._pipeline = pipeline
        self._channel = channel
        self._request_id = request_id
        self._settings = settings
        self._bounds = settings.conversations
        self._dialogue: _Dialogue | None = None
        self._bytes = 0
        self._unanswered = 0
        self._room = asyncio.Semaphore(self._bounds.max_unanswered)
        self._outbox: asyncio.Queue[_Answer | None] = asyncio.Queue()
        self._in_work: set[asyncio.Task[Outcome]] = set()
        self._reading = asyncio.timeout(None)
        self._is_reading = False
        self._end: ScoringError | CallerLeftError | None = None

    async def run(self) -> None:
        """Returns when the caller has said everything and has every answer; raises what else ended it."""
        answering = asyncio.create_task(self._answer_all())
        answering.add_done_callback(self._stop_if_broken)
        try:
            await self._read_all()
            self._outbox.put_nowait(None)
            await answering
        finally:
            answering.cancel()
            for task in self._in_work:
                task.cancel()
            await asyncio.gather(answering, *self._in_work, return_exceptions=True)
        if self._end is not None:
            raise self._end

    def tell_draining(self) -> None:
        """Warns the caller, after the answers that are due, that the service is shutting down."""
        ends_in_ms = int(1000 * self._settings.drain_seconds)
        self._outbox.put_nowait(ConversationReply(draining=ConversationDraining(ends_in_ms=ends_in_ms)))

    def end(self, error: ScoringError | CallerLeftError) -> None:
        """Takes no more messages; those taken are answered, then `run` raises the error."""
        if self._end is None:
            self._end = error
            if self._is_reading and not self._reading.expired():
                self._reading.reschedule(asyncio.get_running_loop().time())

    async def _read_all(self) -> None:
        try:
            async with self._reading:
                self._is_reading = True
                self._start_idle_clock()
                while True:
                    await self._room.acquire()
                    received = await self._channel.receive()
                    if received is None or self._end is not None:
                        return
                    self._stop_idle_clock()
                    self._take(received)
        except TimeoutError:
            idle = f"nothing was said for {self._bounds.idle_seconds:g} s"
            self._end = self._end or DeadlineExceededError(idle)
        finally:
            self._is_reading = False

    def _take(self, received: Received) -> None:
        """Puts the answer to one message, or the work that will be it, into the outbox."""
        self._bytes += received.size_bytes
        if self._bytes > self._bounds.max_bytes:
            self.end(TooLargeError(f"a conversation takes {self._bounds.max_bytes} bytes of messages", field="body"))
            return
        self._unanswered += 1
        try:
            self._outbox.put_nowait(self._answer(received.read()))
        except ScoringError as error:
            if self._dialogue is None:
                self.end(error)
            else:
                metrics.CONVERSATION_TURNS.labels("refused").inc()
                self._outbox.put_nowait(ConversationReply(error=error.detail()))

    def _answer(self, message: ConversationMessage) -> _Answer:
        if message.open is not None:
            return self._open(message.open)
        if self._dialogue is None:
            self._open(ConversationOpening())
        assert self._dialogue is not None
        assert message.turn is not None  # exactly one field is set, by the type
        return self._say(message.turn, self._dialogue)

    def _open(self, opening: ConversationOpening) -> ConversationReply:
        if self._dialogue is not None:
            raise InvalidRequestError("the conversation is already open", field="open")
        asked = check_opening(opening, self._settings.limits, self._pipeline.roster)
        deadline_ms = opening.deadline_ms or self._settings.default_deadline_ms
        self._dialogue = _Dialogue(
            opening=opening,
            asked=asked,
            deadline_ms=deadline_ms,
            turns=list(opening.context),
            tally=DialogueTally(self._pipeline.roster.scorers, asked),
        )
        opened = ConversationOpened(request_id=self._request_id, scorers=list(asked), turns=len(self._dialogue.turns))
        return ConversationReply(opened=opened)

    def _say(self, turn: ConversationTurn, dialogue: _Dialogue) -> _Answer:
        index = len(dialogue.turns)
        check_spoken_turn(turn, index, self._settings.limits)
        context = list(dialogue.turns)
        dialogue.turns.append(turn)
        if turn.speaker == "user":
            return ConversationReply(heard=ConversationHeard(index=index))
        deadline = Deadline.after_ms(turn.deadline_ms or dialogue.deadline_ms)
        item = Item.of(dialogue.opening, context, turn.text, dialogue.asked, deadline)
        work = asyncio.create_task(self._score(item))
        self._in_work.add(work)
        work.add_done_callback(self._in_work.discard)
        return _TurnInWork(index=index, item=item, started_at=time.monotonic(), outcome=work)

    async def _score(self, item: Item) -> Outcome:
        """The turn's outcome; what refuses or breaks its scoring as a whole is every scorer's error."""
        try:
            return await self._pipeline.score_turn(item)
        except ScoringError as error:
            return Outcome(errors=dict.fromkeys(item.asked, error))
        except Exception:
            _LOGGER.exception("unforeseen error")
            broken = FailedScoringError("something failed inside turnscore; its log says what")
            return Outcome(errors=dict.fromkeys(item.asked, broken))

    async def _answer_all(self) -> None:
        while (answer := await self._outbox.get()) is not None:
            reply = await self._finish(answer) if isinstance(answer, _TurnInWork) else answer
            await self._within_idle_time(self._channel.send(reply))
            if reply.draining is None:
                self._count_answered(reply)

    async def _finish(self, turn: _TurnInWork) -> ConversationReply:
        outcome = await turn.outcome
        assert self._dialogue is not None
        self._dialogue.tally.add(turn.item, outcome)
        scored = ConversationScored(
            index=turn.index,
            scores=outcome.scores,
            errors=error_details(outcome),
            dialogue=self._dialogue.tally.aggregates(),
            timing_ms=timing_of([outcome], turn.started_at),
        )
        metrics.CONVERSATION_TURN_SECONDS.observe(time.monotonic() - turn.started_at)
        return ConversationReply(scored=scored)

    async def _within_idle_time(self, sending: Awaitable[None]) -> None:
        """A caller that does not take its answers for so long is treated as gone."""
        try:
            async with asyncio.timeout(self._bounds.idle_seconds):
                await sending
        except TimeoutError:
            raise CallerLeftError from None

    def _count_answered(self, reply: ConversationReply) -> None:
        if reply.heard is not None:
            metrics.CONVERSATION_TURNS.labels("heard").inc()
        elif reply.scored is not None:
            metrics.CONVERSATION_TURNS.labels("scored" if reply.scored.scores else "failed").inc()
        self._room.release()
        self._unanswered -= 1
        if not self._unanswered:
            self._start_idle_clock()

    def _start_idle_clock(self) -> None:
        """Nothing said and nothing being scored: the time for that is bounded."""
        self._set_reading_until(asyncio.get_running_loop().time() + self._bounds.idle_seconds)

    def _stop_idle_clock(self) -> None:
        self._set_reading_until(None)

    def _set_reading_until(self, when: float | None) -> None:
        if self._is_reading and self._end is None and not self._reading.expired():
            self._reading.reschedule(when)

    def _stop_if_broken(self, answering: "asyncio.Task[None]") -> None:
        """Reads nothing more once there is no caller to answer."""
        if not answering.cancelled() and answering.exception() is not None:
            self.end(CallerLeftError())

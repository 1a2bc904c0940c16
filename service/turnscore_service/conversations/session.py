"""Runs one live conversation: every message is answered once, in order, within bounds on number and time.

The transport gives a Channel and learns how the conversation ended from what `run` raises.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from weakref import ref

import turnscore_wire as wire
from turnscore_core import errors
from turnscore_core.dialogues import DialogueTally
from turnscore_core.model_set import ModelSet
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import Deadline, Item, Outcome, error_details, timing_of
from turnscore_wire.conversations import Transcript
from turnscore_wire.messages import count_skipped, is_blank

from turnscore_service import metrics
from turnscore_service.scheduling import request_checks
from turnscore_service.scheduling.executor import within
from turnscore_service.scheduling.fairness import CooperativeScheduler
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.slow_requests import SlowLog
from turnscore_service.settings.service import Settings
from turnscore_service.telemetry.recorder import CallTrace


@dataclass(frozen=True, slots=True)
class Received:
    size_bytes: int
    # Decodes it, which takes time: its size comes first. Raises the error that says why it is no message.
    read: Callable[[], wire.ConversationMessage]


class Channel(Protocol):
    """The transport's side of a conversation. Both methods raise CallerLeftError once the connection is gone."""

    async def receive(self) -> Received | None:
        """The next message; None when the caller has sent everything and still listens."""

    async def send(self, reply: wire.ConversationReply) -> None:
        """Hands one message to the caller; returns when there is room for another."""


class OpenDialogue:
    """Belongs to one conversation. Keeps no model: those that served before were dropped if others took their place."""

    def __init__(self, opening: wire.ConversationOpening, pipeline: ScoringPipeline, settings: Settings) -> None:
        """Raises TooLargeError or InvalidRequestError for an opening that this service cannot take."""
        self._opening, self._limits = opening, settings.limits
        self.deadline_ms = opening.deadline_ms or settings.default_deadline_ms
        model_set = pipeline.split.model_set_for(opening.conversation, opening.context)
        self.asked = request_checks.check_opening(opening, settings.limits, model_set)
        self._pipeline, self._model_set = ref(pipeline), ref(model_set)
        self._names: dict[wire.Speaker, list[str]] = {
            "system": list(model_set.asked_of("system", self.asked)),
            "user": list(model_set.asked_of("user", self.asked)),
        }
        self.transcript = Transcript(list(opening.context), len(opening.messages or opening.context))
        self.tally = DialogueTally(self.asked)

    def asked_of(self, turn: wire.Turn) -> list[str]:
        """The scorers that are asked of the turn."""
        return [] if is_blank(turn.text) else self._names[turn.speaker]

    def item_for(
        self, turns: Sequence[wire.Turn], deadline: Deadline, pipeline: ScoringPipeline
    ) -> tuple[Item, ModelSet]:
        """The last of the turns as these models score it, and which of their versions do.

        Raises InvalidRequestError where they do not take the opening's options, which those before them took.
        """
        *context, turn = turns
        model_set = self._choose_versions(turns, pipeline)
        asked = {name: self.asked[name] for name in self._names[turn.speaker]}
        said = TurnToScore(context, turn.text)
        versions = model_set.versions
        return Item(turn=said, asked=asked, deadline=deadline, choice=self._opening, versions=versions), model_set

    def _choose_versions(self, turns: Sequence[wire.Turn], pipeline: ScoringPipeline) -> ModelSet:
        """Others than before only after the user's first turn, or where other models are served.

        Where a split's versions do not take the opening's options, those that took them go on.
        """
        before = self._model_set() if self._pipeline() is pipeline else None
        model_set = pipeline.split.model_set_for(self._opening.conversation, turns)
        if model_set is before:
            return model_set
        try:
            asked = request_checks.check_opening(self._opening, self._limits, model_set, self.asked)
        except errors.ScoringError:
            if before is not None:
                return before
            model_set = pipeline.model_set
            asked = request_checks.check_opening(self._opening, self._limits, model_set, self.asked)
        self.asked, self._pipeline, self._model_set = asked, ref(pipeline), ref(model_set)
        return model_set


_LOGGER = logging.getLogger("turnscore.conversations")


# A turn's outcome, and of what by which models; None twice where nothing was scored.
_Scored = tuple[Outcome, Item | None, ModelSet | None]


# A reply, or the work that makes it once those before it are sent.
_Answer = wire.ConversationReply | Callable[[], Awaitable[wire.ConversationReply]]


class LiveConversation:
    """Reads in the task that runs it and answers in another; so a turn is read while those before it are scored."""

    def __init__(
        self,
        pipeline: Callable[[], ScoringPipeline],
        channel: Channel,
        request_id: str,
        settings: Settings,
        cooperative: CooperativeScheduler,
        slow: SlowLog,
        trace: CallTrace | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._channel = channel
        self._request_id = request_id
        self._settings = settings
        self._cooperative, self._slow, self._trace = cooperative, slow, trace
        self._bounds = settings.conversations
        self._dialogue: OpenDialogue | None = None
        self._bytes = self._pending = 0
        self._room = asyncio.Semaphore(self._bounds.max_pending)
        self._outbox: asyncio.Queue[_Answer | None] = asyncio.Queue()
        self._in_work: set[asyncio.Task[_Scored]] = set()
        self._reading = asyncio.timeout(None)
        self._is_reading = False
        # One user's turn for each system turn that was scored: who asks, and pays, for no scores makes no work.
        self._may_read_ahead = False
        self._end: errors.ScoringError | errors.CallerLeftError | None = None

    async def run(self) -> None:
        """Returns when the caller has sent everything and has every answer; raises what else ended it."""
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

    def announce_draining(self) -> None:
        """Warns the caller, after the answers that are due, that the service is shutting down."""
        ends_in_ms = int(1000 * self._settings.drain_seconds)
        self._outbox.put_nowait(wire.ConversationReply(draining=wire.ConversationDraining(ends_in_ms=ends_in_ms)))

    def end(self, error: errors.ScoringError | errors.CallerLeftError) -> None:
        """Takes no more messages; those taken are answered, then `run` raises the error."""
        if self._end is None:
            self._end = error
            if self._is_reading and not self._reading.expired():
                self._reading.reschedule(asyncio.get_running_loop().time())

    async def _read_all(self) -> None:
        try:
            async with self._reading:
                self._is_reading = True
                self._set_idle_clock(is_running=True)
                while True:
                    await self._room.acquire()
                    received = await self._channel.receive()
                    if received is None or self._end is not None:
                        return
                    self._set_idle_clock(is_running=False)
                    # Without it, 20 that only send make others wait five times as long (measured).
                    await self._cooperative.turn(is_new=True)
                    self._take(received)
        except TimeoutError:
            idle = f"no message arrived for {self._bounds.idle_seconds:g} s"
            self._end = self._end or errors.DeadlineExceededError(idle)
        finally:
            self._is_reading = False

    def _take(self, received: Received) -> None:
        """Puts the answer to one message, or the work that will be it, into the outbox."""
        self._bytes += received.size_bytes
        if self._bytes > self._bounds.max_bytes:
            most = f"a conversation may have at most {self._bounds.max_bytes} bytes of messages"
            self.end(errors.TooLargeError(most, field="body"))
            return
        self._pending += 1
        try:
            self._outbox.put_nowait(self._answer(received.read()))
        except errors.ScoringError as error:
            if self._dialogue is None:
                self.end(error)
            else:
                metrics.CONVERSATION_TURNS.labels("refused").inc()
                self._outbox.put_nowait(wire.ConversationReply(error=error.detail()))

    def _answer(self, message: wire.ConversationMessage) -> _Answer:
        if message.open is not None:
            return self._open(message.open)
        if self._dialogue is None:
            self._open(wire.ConversationOpening())
        assert self._dialogue is not None
        if message.messages is not None:
            return self._take_messages(message.messages, self._dialogue)
        assert message.turn is not None  # exactly one field is set, by the type
        return self._take_turn(message.turn, self._dialogue)

    def _open(self, opening: wire.ConversationOpening) -> wire.ConversationReply:
        if self._dialogue is not None:
            raise errors.InvalidRequestError("the conversation is already open", field="open")
        self._dialogue = dialogue = OpenDialogue(opening, self._pipeline(), self._settings)
        taken = dialogue.transcript.taken
        opened = wire.ConversationOpened(request_id=self._request_id, scorers=list(dialogue.asked), turns=taken)
        return wire.ConversationReply(opened=opened)

    def _take_turn(self, turn: wire.ConversationTurn, dialogue: OpenDialogue) -> _Answer:
        request_checks.check_conversation_turn(turn, len(dialogue.transcript.turns), self._settings.limits)
        return self._hear(dialogue.transcript.add_turn(turn), turn, turn.deadline_ms, dialogue)

    def _take_messages(self, sent: wire.ConversationMessages, dialogue: OpenDialogue) -> _Answer:
        request_checks.check_conversation_messages(dialogue.transcript, sent.messages, self._settings.limits)
        index, turn = dialogue.transcript.add_messages(sent.messages)
        return self._hear(index, turn, sent.deadline_ms, dialogue, count_skipped(sent.messages))

    def _hear(
        self, index: int, turn: wire.Turn | None, deadline_ms: int | None, dialogue: OpenDialogue, skipped: int = 0
    ) -> _Answer:
        """The answer to what was just said, or the work that will be it. None for a turn that goes on."""
        if turn is None or turn.speaker == "user":
            self._read_ahead(dialogue)
        if turn is None or not dialogue.asked_of(turn):
            last = dialogue.transcript.taken + len(dialogue.transcript.waiting) - 1
            return wire.ConversationReply(ack=wire.ConversationAck(index=last, skipped=skipped))
        deadline = Deadline.after_ms(deadline_ms or dialogue.deadline_ms)
        work = asyncio.create_task(self._score(list(dialogue.transcript.turns), deadline, dialogue))
        self._in_work.add(work)
        work.add_done_callback(self._in_work.discard)
        return partial(self._finish, work, index, turn.speaker, skipped, time.monotonic())

    def _read_ahead(self, dialogue: OpenDialogue) -> None:
        """Has the user's turn read before the reply to it is there, so that scoring waits for the reply alone."""
        if self._may_read_ahead:
            self._may_read_ahead = False
            pipeline, deadline = self._pipeline(), Deadline.after_ms(dialogue.deadline_ms)
            reply = wire.Turn.model_construct(speaker="system", text="")  # of which nothing is known yet
            with suppress(errors.ScoringError):  # scoring the reply will say so
                item, _ = dialogue.item_for([*dialogue.transcript.turns, reply], deadline, pipeline)
                pipeline.read_ahead(item)

    async def _score(self, turns: Sequence[wire.Turn], deadline: Deadline, dialogue: OpenDialogue) -> _Scored:
        """The last turn's outcome; what refuses or breaks its scoring as a whole is every scorer's error."""
        pipeline = self._pipeline()
        try:
            item, model_set = dialogue.item_for(turns, deadline, pipeline)
            outcome = await pipeline.score_turn(item)
            self._may_read_ahead = self._may_read_ahead or turns[-1].speaker == "system"
            return outcome, item, model_set
        except errors.ScoringError as refusal:
            error: errors.ScoringError = refusal
        except Exception:
            _LOGGER.exception("unforeseen error")
            error = errors.FailedScoringError()
        return Outcome(errors=dict.fromkeys(dialogue.asked_of(turns[-1]), error)), None, None

    async def _answer_all(self) -> None:
        while (answer := await self._outbox.get()) is not None:
            reply = answer if isinstance(answer, wire.ConversationReply) else await answer()
            del answer  # while the next one is waited for, nothing may keep the models that answered
            try:
                await within(self._bounds.idle_seconds, self._channel.send(reply))
            except TimeoutError:  # a caller that does not take its answers for so long is treated as gone
                raise errors.CallerLeftError from None
            if reply.draining is None:
                if reply.ack is not None:
                    metrics.CONVERSATION_TURNS.labels("acknowledged").inc()
                elif (scored := reply.scored or reply.user_turn) is not None:
                    metrics.CONVERSATION_TURNS.labels("scored" if scored.scores else "failed").inc()
                self._room.release()
                self._pending -= 1
                if not self._pending:
                    self._set_idle_clock(is_running=True)

    async def _finish(
        self, work: "asyncio.Task[_Scored]", index: int, speaker: wire.Speaker, skipped: int, started_at: float
    ) -> wire.ConversationReply:
        outcome, item, model_set = await work
        assert self._dialogue is not None
        if item is not None and model_set is not None:
            self._dialogue.tally.add(item, outcome, model_set)
        scored = wire.ConversationScored(
            index=index,
            scores=outcome.scores,
            errors=error_details(outcome),
            dialogue=self._dialogue.tally.aggregates(),
            timing_ms=timing_of([outcome], started_at),
            skipped=skipped,
        )
        seconds = time.monotonic() - started_at
        metrics.CONVERSATION_TURN_SECONDS.observe(seconds)
        self._slow.note("conversation turn", "ok" if outcome.scores else "failed", seconds, scored)
        if self._trace is not None:
            self._trace.end("ok", scored, self._request_id, seconds)
        if speaker == "user":
            return wire.ConversationReply(user_turn=scored)
        return wire.ConversationReply(scored=scored)

    def _set_idle_clock(self, *, is_running: bool) -> None:
        """The time in which nothing arrives and nothing is being scored is bounded."""
        if self._is_reading and self._end is None and not self._reading.expired():
            until = asyncio.get_running_loop().time() + self._bounds.idle_seconds
            self._reading.reschedule(until if is_running else None)

    def _stop_if_broken(self, answering: "asyncio.Task[None]") -> None:
        """Reads nothing more once there is no caller to answer."""
        if not answering.cancelled() and answering.exception() is not None:
            self.end(errors.CallerLeftError())

"""Talking: one live conversation over gRPC at the pace of people, and what came of each of its messages."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from turnscore_wire.v1 import turnscore_pb2

from turnscore_load.pace import PATIENCE_SECONDS, pause_seconds
from turnscore_load.traffic import SYSTEM_WORDS, USER_WORDS, Traffic

STREAM_PATH = "/turnscore.v1.TurnScorer/ScoreStream"
_TYPICAL_PAUSE_SECONDS = pause_seconds(round(SYSTEM_WORDS.mean), round(USER_WORDS.mean), 1)


class WrongReplyError(Exception):
    """A reply that the message it answers must not get; a sentence of a few, without what was said."""


@dataclass(kw_only=True)
class Tally:
    """What became of the messages of all streams."""

    said: int = 0
    """System turns that were said and whose answer was waited for."""
    heard: int = 0
    took_ms: list[float] = field(default_factory=list)
    """Of every system turn that was scored, from being said to its scores."""
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def scored(self) -> int:
        return len(self.took_ms)


def check_reply(reply: Any, kind: str, index: int, scorers: Sequence[str]) -> None:
    """Raises WrongReplyError for anything but the one right answer to the turn of that index."""
    found = reply.WhichOneof("message")
    if found != kind:
        raise WrongReplyError(f"{found or 'a message of no known kind'} instead of {kind}")
    answer = getattr(reply, found)
    if found == "opened":
        return
    if answer.index != index:
        raise WrongReplyError("an answer out of order")
    if found == "scored":
        if answer.errors:
            codes = sorted({turnscore_pb2.ErrorCode.Name(each.code) for each in answer.errors.values()})
            raise WrongReplyError(f"not scored: {', '.join(codes)}")
        if set(answer.scores) != set(scorers):
            raise WrongReplyError("not every scorer answered")


class TalkingStream:
    """One stream. Its calls raise nothing of the service's doing: the tally has the problem, and the stream is over."""

    def __init__(
        self, channel: grpc.aio.Channel, traffic: Traffic, scorers: Sequence[str], tally: Tally, label: str
    ) -> None:
        self.channel = channel
        self.is_over = False
        self._traffic = traffic
        self._scorers = scorers
        self._tally = tally
        self._chance = random.Random(label)
        self._words_to_read = 0
        self._turns = 0
        self._call: Any = channel.stream_stream(
            STREAM_PATH,
            request_serializer=turnscore_pb2.ConversationMessage.SerializeToString,
            response_deserializer=turnscore_pb2.ConversationReply.FromString,
        )()

    async def open(self) -> None:
        """Returns when the service has said that the conversation is open."""
        opening = turnscore_pb2.ConversationMessage(open={"scorers": self._scorers})
        await self._ask(opening, "opened")

    async def talk(self, until: float, pace: float) -> None:
        """Exchanges turns with pauses as people make them, up to that moment of the event loop's clock."""
        await self._pause(_TYPICAL_PAUSE_SECONDS / pace * self._chance.random(), until)
        while not self.is_over and time.monotonic() < until:
            ask = self._traffic.next_ask()
            if await self._pause(pause_seconds(self._words_to_read, ask.user_words, pace), until):
                await self.exchange(ask.item["context"][-1]["text"], ask.item["response"])
            self._words_to_read = ask.system_words

    async def exchange(self, user_text: str, system_text: str) -> None:
        """The person's turn, and the chatbot's answer to it, which is scored."""
        await self._ask(_turn("SPEAKER_USER", user_text), "ack")
        if self.is_over:
            return
        self._tally.heard += 1
        self._tally.said += 1
        said_at = time.perf_counter()
        await self._ask(_turn("SPEAKER_SYSTEM", system_text), "scored")
        if not self.is_over:
            self._tally.took_ms.append(1000 * (time.perf_counter() - said_at))

    async def say_and_leave_unanswered(self) -> None:
        """Says a system turn, for a stream that is cut before its answer."""
        try:
            await self._call.write(_turn("SPEAKER_SYSTEM", self._traffic.next_ask().item["response"]))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            self._fail(error)

    def cancel(self) -> None:
        """Goes without a word."""
        self.is_over = True
        self._call.cancel()

    async def finish(self) -> bool:
        """Says that everything is said; whether the service ended the stream as it should."""
        if self.is_over:
            return False
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._call.done_writing()
                last = await self._call.read()
                code = await self._call.code()
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            self._fail(error)
            return False
        self.is_over = True
        return last is grpc.aio.EOF and code == grpc.StatusCode.OK

    async def _ask(self, message: Any, kind: str) -> None:
        """Sends one message and takes its answer, which must be of that kind and the next in order."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._call.write(message)
                reply = await self._call.read()
            if reply is grpc.aio.EOF:
                raise WrongReplyError(f"the stream ended: {(await self._call.code()).name}")
            check_reply(reply, kind, self._turns, self._scorers)
        except (grpc.aio.AioRpcError, WrongReplyError, TimeoutError, asyncio.InvalidStateError) as error:
            self._fail(error)
        else:
            self._turns += kind != "opened"

    def _fail(self, error: Exception) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            self._tally.problems[f"status {error.code().name}"] += 1
        else:
            self._tally.problems[str(error) or f"no answer: {type(error).__name__}"] += 1
        self.cancel()

    async def _pause(self, seconds: float, until: float) -> bool:
        """Waits so long; False where the talk is over before."""
        left = until - time.monotonic()
        await asyncio.sleep(max(0.0, min(seconds, left)))
        return seconds < left


def _turn(speaker: str, text: str) -> Any:
    return turnscore_pb2.ConversationMessage(turn={"speaker": speaker, "text": text})

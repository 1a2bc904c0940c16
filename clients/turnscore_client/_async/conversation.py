"""A live conversation for asyncio: says turns over a line and reads their answers. Knows no door."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self, Unpack, overload

from turnscore_wire import (
    ChatMessage,
    ConversationMessage,
    ConversationOpened,
    ConversationOpening,
    ConversationReply,
    ConversationScored,
    Speaker,
    Turn,
)

from turnscore_client._clock import Clock
from turnscore_client._errors import ConnectionFailedError, TurnScoreError, UnexpectedReplyError
from turnscore_client._exchange import Exchange, read_answer
from turnscore_client._options import MessageLike, TurnOptions, check_names
from turnscore_client._reopening import has_ended, opening_with
from turnscore_client._retry import Attempts, OutOfTimeError, Patience


class AsyncLine(Protocol):
    """A connection for one conversation. Raises OutOfTimeError, or a TurnScoreError where it is broken or ended."""

    async def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message."""

    async def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
        """The next message of the service."""

    async def close(self) -> None:
        """Ends the connection; what is still due does not come."""


class AsyncConversation:
    """A live conversation, inside its `async with`. Tasks may share it; their turns are said one after the other.

    Opening is retried as a call is. A turn is not: it has been said, and saying it twice would add it twice. Where the
    connection breaks, or the service is draining, the conversation is opened anew with what was said as its context,
    at most `max_reopenings` times, and the turn that was not answered is said there: the one that broke remembers
    nothing. A turn for which it could not be opened anew raises and is not part of it; the next one tries again.
    """

    def __init__(
        self,
        open_line: Callable[[str | None, Attempts], Awaitable[AsyncLine]],
        opening: ConversationOpening,
        request_id: str | None,
        patience: Patience,
        clock: Clock,
        max_reopenings: int,
    ) -> None:
        self._open_line = open_line
        self._opening = opening
        self._waiting: Sequence[ChatMessage] = ()
        """Messages to hand over once it is open anew: of an assistant's turn that goes on."""
        self._patience = patience
        self._clock = clock
        self._reopenings_left = max_reopenings
        self._exchange = Exchange(opening, request_id)
        self._line: AsyncLine | None = None
        self._is_entered = False
        self._turn = asyncio.Lock()

    @overload
    async def say(self, speaker: Literal["system"], text: str, **given: Unpack[TurnOptions]) -> ConversationScored: ...

    @overload
    async def say(self, speaker: Speaker, text: str, **given: Unpack[TurnOptions]) -> ConversationScored | None: ...

    async def say(self, speaker: Speaker, text: str, **given: Unpack[TurnOptions]) -> ConversationScored | None:
        """Says a turn. For the system's: its scores, and those of the conversation so far, in `dialogue`.

        Raises InvalidRequestError or TooLargeError for a turn that is refused, which is then not part of the
        conversation, and any other ServiceError for one that could not be scored, which is. A timeout leaves open
        which; the conversation goes on. What may be given is in TurnOptions.
        """
        return await self._exchange_one(given, lambda left_ms: self._exchange.say(speaker, text, left_ms))

    async def say_messages(
        self, messages: Iterable[MessageLike], **given: Unpack[TurnOptions]
    ) -> ConversationScored | None:
        """Hands over the messages since the last ones, in OpenAI's chat form: one, or several.

        The scores of the turn that they end with, if it is the assistant's and no tools are at work; else None, and
        the service waits for the rest of it. Raises as `say` does.
        """
        return await self._exchange_one(given, lambda left_ms: self._exchange.hand_over(messages, left_ms))

    async def _exchange_one(
        self, given: TurnOptions, write: Callable[[int], ConversationMessage]
    ) -> ConversationScored | None:
        check_names(given, TurnOptions.__optional_keys__)
        async with self._turn:
            attempts = self._patience.with_timeout(given.get("timeout_seconds")).begin()
            own_ms = given.get("deadline_ms")
            if self._is_entered and self._reopenings_left and (self._exchange.is_draining or self._line is None):
                await self._reopen(None, attempts)
            while True:
                self._require_line()
                message = write(attempts.deadline_ms_left(self._exchange.deadline_ms if own_ms is None else own_ms))
                try:
                    reply = await self._ask(message, attempts)
                except ConnectionFailedError:
                    if not self._reopenings_left:
                        raise
                else:
                    if not (has_ended(reply) and self._reopenings_left):
                        return read_answer(reply, self._exchange.request_id)
                await self._reopen(message, attempts)

    async def _ask(self, message: ConversationMessage, attempts: Attempts) -> ConversationReply:
        line = self._require_line()
        try:
            await line.send(message, attempts.seconds_left)
            return await self._hear(line, attempts)
        except UnexpectedReplyError:
            self._exchange.skip()
            raise
        except TurnScoreError:
            raise
        except OutOfTimeError:
            self._exchange.give_up()
            raise attempts.out_of_time(self._exchange.request_id) from None
        except BaseException:  # a caller that is cancelled or interrupted does not get the answer that comes
            self._exchange.give_up()
            raise

    async def _reopen(self, unanswered: ConversationMessage | None, attempts: Attempts) -> None:
        """Over all that was said before the message that has no answer."""
        self._reopenings_left -= 1
        await self._close_line()
        known = self._exchange
        said, places = known.transcript_before(unanswered), known.places_before(unanswered)
        self._opening, self._waiting = opening_with(self._opening, said.turns), said.waiting
        shift = places - len(said.turns) - len(said.waiting)
        self._exchange = Exchange(self._opening, known.request_id, known.dialogue, shift, self._waiting)
        await self._open_patiently(attempts)

    @property
    def opened(self) -> ConversationOpened:
        """What the service said when it opened: the request id, the scorers, the turns of context."""
        if self._exchange.opened is None:
            raise ConnectionFailedError("the conversation is not open; use it inside its `async with`")
        return self._exchange.opened

    @property
    def turns(self) -> Sequence[Turn]:
        """Everything said so far, the context it was opened with included: the context of the next conversation."""
        return self._exchange.turns

    @property
    def is_draining(self) -> bool:
        """Whether the service has said that it is shutting down: finish the exchange and open another conversation."""
        return self._exchange.is_draining

    async def close(self) -> None:
        """Ends the conversation."""
        self._is_entered = False
        await self._close_line()

    async def _close_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def __aenter__(self) -> Self:
        await self._open_patiently(self._patience.begin())
        self._is_entered = True
        return self

    async def _open_patiently(self, attempts: Attempts) -> None:
        while True:
            try:
                await self._open(attempts)
                return
            except OutOfTimeError:
                await self._close_line()
                raise attempts.out_of_time(self._exchange.request_id) from None
            except TurnScoreError as error:
                await self._close_line()
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            except BaseException:  # whoever is cancelled here has no `async with` that would close it
                await self._close_line()
                raise
            await self._clock.sleep_async(delay)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self, attempts: Attempts) -> None:
        known = self._exchange
        self._exchange = Exchange(self._opening, known.request_id, known.dialogue, known.shift, self._waiting)
        self._line = await self._open_line(self._exchange.request_id, attempts)
        await self._line.send(self._exchange.open(), attempts.seconds_left)
        read_answer(await self._hear(self._line, attempts), self._exchange.request_id)
        waiting = self._exchange.hand_over_waiting(attempts.deadline_ms_left(self._exchange.deadline_ms))
        if waiting is not None:
            await self._line.send(waiting, attempts.seconds_left)
            read_answer(await self._hear(self._line, attempts), self._exchange.request_id)

    async def _hear(self, line: AsyncLine, attempts: Attempts) -> ConversationReply:
        while True:
            answer = self._exchange.read(await line.receive(attempts.seconds_left))
            if answer is not None:
                return answer

    def _require_line(self) -> AsyncLine:
        if self._line is None and self._is_entered:
            raise ConnectionFailedError(
                "the connection is gone, and max_reopenings is used up; open another conversation with these turns"
            )
        if self._line is None:
            raise ConnectionFailedError("the conversation is not open; use it inside its `async with`")
        return self._line

"""A live conversation for asyncio: says turns over a line and reads their answers. Knows no door."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self, Unpack, overload

from turnscore_wire import (
    ConversationMessage,
    ConversationOpened,
    ConversationOpening,
    ConversationReply,
    ConversationScored,
    Speaker,
    Turn,
)

from turnscore_client._clock import Clock
from turnscore_client._errors import ConnectionFailedError, TurnScoreError
from turnscore_client._exchange import Exchange, read_answer
from turnscore_client._options import TurnOptions, check_names
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
    connection breaks, or the service is draining, open another one with `turns` as its context.
    """

    def __init__(
        self,
        open_line: Callable[[str | None, Attempts], Awaitable[AsyncLine]],
        opening: ConversationOpening,
        request_id: str | None,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self._open_line = open_line
        self._opening = opening
        self._patience = patience
        self._clock = clock
        self._exchange = Exchange(opening, request_id)
        self._line: AsyncLine | None = None
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
        check_names(given, TurnOptions.__optional_keys__)
        async with self._turn:
            line = self._require_line()
            attempts = self._patience.with_timeout(given.get("timeout_seconds")).begin()
            own_ms = given.get("deadline_ms")
            left_ms = attempts.deadline_ms_left(self._exchange.deadline_ms if own_ms is None else own_ms)
            message = self._exchange.say(speaker, text, left_ms)
            try:
                await line.send(message, attempts.seconds_left)
                return read_answer(await self._hear(line, attempts), self._exchange.request_id)
            except TurnScoreError:
                raise
            except OutOfTimeError:
                self._exchange.give_up()
                raise attempts.out_of_time(self._exchange.request_id) from None
            except BaseException:  # a caller that is cancelled or interrupted does not get the answer that comes
                self._exchange.give_up()
                raise

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
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def __aenter__(self) -> Self:
        attempts = self._patience.begin()
        while True:
            try:
                await self._open(attempts)
                return self
            except OutOfTimeError:
                await self.close()
                raise attempts.out_of_time(self._exchange.request_id) from None
            except TurnScoreError as error:
                await self.close()
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            await self._clock.sleep_async(delay)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self, attempts: Attempts) -> None:
        self._exchange = Exchange(self._opening, self._exchange.request_id)
        self._line = await self._open_line(self._exchange.request_id, attempts)
        await self._line.send(self._exchange.open(), attempts.seconds_left)
        read_answer(await self._hear(self._line, attempts), self._exchange.request_id)

    async def _hear(self, line: AsyncLine, attempts: Attempts) -> ConversationReply:
        while True:
            answer = self._exchange.read(await line.receive(attempts.seconds_left))
            if answer is not None:
                return answer

    def _require_line(self) -> AsyncLine:
        if self._line is None:
            raise ConnectionFailedError("the conversation is not open; use it inside its `async with`")
        return self._line

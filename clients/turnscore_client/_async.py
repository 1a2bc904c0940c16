"""The clients for asyncio, over HTTP and over gRPC, and their conversations."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeVar, Unpack, overload

import httpx
import turnscore_wire as wire
from pydantic import BaseModel

from turnscore_client import _calls, _defaults
from turnscore_client._calls import Call
from turnscore_client._errors import ConnectionFailedError, TurnScoreError, UnexpectedReplyError
from turnscore_client._exchange import Exchange, has_ended, opening_with, read_answer
from turnscore_client._http import AsyncHttpTransport
from turnscore_client._options import (
    CallOptions,
    ClientOptions,
    Clock,
    ItemLike,
    MessageLike,
    ScoringOptions,
    SimilarityOptions,
    TurnLike,
    TurnOptions,
    check_names,
)
from turnscore_client._retry import Attempts, OutOfTimeError, RetryPolicy, SystemClock
from turnscore_client._settings import ClientSetup, resolve_grpc, resolve_http

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)


class AsyncStream(Protocol):
    """A connection for one conversation. Raises OutOfTimeError, or a TurnScoreError where it is broken or ended."""

    async def send(self, message: wire.ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message."""

    async def receive(self, seconds_left: Callable[[], float]) -> wire.ConversationReply:
        """The next message of the service."""

    async def close(self) -> None:
        """Ends the connection; what is still due does not come."""


class AsyncConversation:
    """A live conversation, inside its `async with`. Tasks may share it; their turns are sent one after the other.

    Opening is retried as a call is. A turn is not: sending it twice would add it twice. Where the connection breaks, or
    the service is draining, the conversation is reopened with its turns as context, at most `max_reopenings` times, and
    the unanswered turn is sent there: the broken connection remembers nothing. A turn for which the conversation could
    not be reopened raises and is not part of it; the next turn tries again.
    """

    def __init__(
        self,
        open_stream: Callable[[str | None, Attempts], Awaitable[AsyncStream]],
        opening: wire.ConversationOpening,
        request_id: str | None,
        policy: RetryPolicy,
        clock: Clock,
        max_reopenings: int,
    ) -> None:
        self._open_stream = open_stream
        self._opening = opening
        # Messages of an unfinished assistant's turn, to send once it is reopened.
        self._waiting: Sequence[wire.ChatMessage] = ()
        self._policy = policy
        self._clock = clock
        self._reopenings_left = max_reopenings
        self._exchange = Exchange(opening, request_id)
        self._stream: AsyncStream | None = None
        self._is_entered = False
        self._turn: AbstractAsyncContextManager[None] = asyncio.Lock()
        self._entry = "async with"

    @overload
    async def say(
        self, speaker: Literal["system"], text: str, **given: Unpack[TurnOptions]
    ) -> wire.ConversationScored: ...

    @overload
    async def say(
        self, speaker: wire.Speaker, text: str, **given: Unpack[TurnOptions]
    ) -> wire.ConversationScored | None: ...

    async def say(
        self, speaker: wire.Speaker, text: str, **given: Unpack[TurnOptions]
    ) -> wire.ConversationScored | None:
        """Says a turn. Its scores, and those of the conversation so far, in `dialogue`; None if the turn is not scored.

        The user's turns are scored where `scorers` name scorers of user turns; where they name no others, the
        system's are not scored, whatever the type says here. Raises InvalidRequestError or
        TooLargeError for a turn that is refused, which is then not part of the conversation, and any other ServiceError
        for one that could not be scored, which is. A timeout leaves open which; the conversation goes on. What may be
        given is in TurnOptions.
        """
        return await self._exchange_one(given, lambda left_ms: self._exchange.add_turn(speaker, text, left_ms))

    async def say_messages(
        self, messages: Iterable[MessageLike], **given: Unpack[TurnOptions]
    ) -> wire.ConversationScored | None:
        """Hands over the messages since the last ones, in OpenAI's chat form: one, or several.

        The scores of the turn that they end with, as `say` gives them; None while tools are at work, and the service
        waits for the rest of it. Raises as `say` does.
        """
        return await self._exchange_one(given, lambda left_ms: self._exchange.add_messages(messages, left_ms))

    async def _exchange_one(
        self, given: TurnOptions, write: Callable[[int], wire.ConversationMessage]
    ) -> wire.ConversationScored | None:
        check_names(given, TurnOptions.__optional_keys__)
        async with self._turn:
            attempts = Attempts(self._policy.with_timeout(given.get("timeout_seconds")))
            own_ms = given.get("deadline_ms")
            if self._is_entered and self._reopenings_left and (self._exchange.is_draining or self._stream is None):
                await self._reopen(None, attempts)
            while True:
                self._require_stream()
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

    async def _ask(self, message: wire.ConversationMessage, attempts: Attempts) -> wire.ConversationReply:
        stream = self._require_stream()
        try:
            await stream.send(message, attempts.seconds_left)
            return await self._receive(stream, attempts)
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

    async def _reopen(self, unanswered: wire.ConversationMessage | None, attempts: Attempts) -> None:
        """With every turn before the message that has no answer."""
        self._reopenings_left -= 1
        await self._close_stream()
        known = self._exchange
        before, places = known.transcript_before(unanswered), known.places_before(unanswered)
        self._opening, self._waiting = opening_with(self._opening, before.turns), before.waiting
        shift = places - len(before.turns) - len(before.waiting)
        self._exchange = Exchange(self._opening, known.request_id, known.dialogue, shift, self._waiting)
        await self._open_patiently(attempts)

    @property
    def opened(self) -> wire.ConversationOpened:
        """What the service answered when it opened: the request id, the scorers, the turns of context."""
        if self._exchange.opened is None:
            raise ConnectionFailedError(f"the conversation is not open; use it inside its `{self._entry}`")
        return self._exchange.opened

    @property
    def turns(self) -> Sequence[wire.Turn]:
        """Every turn so far, with the context it was opened with: the context of the next conversation."""
        return self._exchange.turns

    @property
    def is_draining(self) -> bool:
        """Whether the service is shutting down: finish the exchange and open another conversation."""
        return self._exchange.is_draining

    async def close(self) -> None:
        self._is_entered = False
        await self._close_stream()

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def __aenter__(self) -> Self:
        await self._open_patiently(Attempts(self._policy))
        self._is_entered = True
        return self

    async def _open_patiently(self, attempts: Attempts) -> None:
        async def open_or_close() -> None:
            try:
                await self._open(attempts)
            except BaseException:  # whoever is cancelled here has no `async with` that would close it
                await self._close_stream()
                raise

        await _retry(open_or_close, attempts, self._clock, lambda: self._exchange.request_id)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(self, attempts: Attempts) -> None:
        known = self._exchange
        self._exchange = Exchange(self._opening, known.request_id, known.dialogue, known.shift, self._waiting)
        self._stream = await self._open_stream(self._exchange.request_id, attempts)
        await self._stream.send(self._exchange.open(), attempts.seconds_left)
        read_answer(await self._receive(self._stream, attempts), self._exchange.request_id)
        waiting = self._exchange.waiting_message(attempts.deadline_ms_left(self._exchange.deadline_ms))
        if waiting is not None:
            await self._stream.send(waiting, attempts.seconds_left)
            read_answer(await self._receive(self._stream, attempts), self._exchange.request_id)

    async def _receive(self, stream: AsyncStream, attempts: Attempts) -> wire.ConversationReply:
        while True:
            answer = self._exchange.read(await stream.receive(attempts.seconds_left))
            if answer is not None:
                return answer

    def _require_stream(self) -> AsyncStream:
        if self._stream is None and self._is_entered:
            raise ConnectionFailedError(
                "the connection is gone, and max_reopenings is used up; open another conversation with these turns"
            )
        if self._stream is None:
            raise ConnectionFailedError(f"the conversation is not open; use it inside its `{self._entry}`")
        return self._stream


class AsyncCallTransport(Protocol):
    """What sends for a client. Everything raises a TurnScoreError, or OutOfTimeError."""

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""

    async def open_stream(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> AsyncStream:
        """A connection for one conversation."""

    async def close(self) -> None:
        """Closes every connection."""


class AsyncCalls:
    """The calls; every method raises a TurnScoreError."""

    def __init__(self, transport: AsyncCallTransport, settings: ClientSetup, clock: Clock | None) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._policy = RetryPolicy(
            timeout_seconds=settings.timeout_seconds, max_retries=settings.max_retries, now=self._clock.now
        )

    async def score(
        self,
        *,
        context: Iterable[TurnLike] = (),
        response: str | None = None,
        messages: Iterable[MessageLike] | None = None,
        speaker: wire.Speaker | None = None,
        **given: Unpack[ScoringOptions],
    ) -> wire.ScoreReply:
        """The scores of one turn. `context` is oldest first; ScoringOptions has what else may be given.

        `messages`, in OpenAI's chat form, stand in for both: their last turn is scored, or `response` after them.
        `speaker="user"` says that it is the user's, for scorers of user turns.
        """
        own = {name: each for name, each in (("response", response), ("speaker", speaker)) if each is not None}
        fields = {**_calls.dialogue_of("context", context, messages), **own, **_calls.choice_of(given)}
        return await self._run(_calls.make_call(_calls.SCORE, given, fields))

    async def score_batch(self, items: Iterable[ItemLike], **given: Unpack[ScoringOptions]) -> wire.BatchReply:
        """The scores of several turns; `results` holds a ScoreReply or an ErrorReply for each, in order.

        What an item says about its scoring goes before what is given here.
        An item that is not well-formed is an InvalidRequestError of the whole call, naming it.
        """
        return await self._run(_calls.make_call(_calls.SCORE_BATCH, given, {"items": _calls.items_of(items, given)}))

    async def score_dialogue(
        self,
        turns: Iterable[TurnLike] = (),
        *,
        messages: Iterable[MessageLike] | None = None,
        **given: Unpack[ScoringOptions],
    ) -> wire.DialogueReply:
        """The scores of every system turn of a dialogue, oldest turn first, and of the dialogue as a whole.

        The user's turns are scored too where `scorers` name scorers of user turns.
        `messages`, in OpenAI's chat form, stand in for the turns; `turns[i].index` is then a message's.
        """
        fields = {**_calls.dialogue_of("turns", turns, messages), **_calls.choice_of(given)}
        return await self._run(_calls.make_call(_calls.SCORE_DIALOGUE, given, fields))

    async def rank(
        self,
        candidates: Iterable[str],
        *,
        context: Iterable[TurnLike] = (),
        messages: Iterable[MessageLike] | None = None,
        weights: Mapping[str, float] | None = None,
        **given: Unpack[ScoringOptions],
    ) -> wire.RankReply:
        """Several responses to one context, best first: `candidates[reply.candidates[0].index]` is the best.

        `weights` say how much each scorer's percentile counts, 1 where none is given; without `scorers` they are asked.
        `messages`, in OpenAI's chat form, stand in for `context`.
        """
        fields = {**_calls.dialogue_of("context", context, messages), "candidates": _calls.plain(candidates)}
        own = {} if weights is None else {"weights": _calls.plain(weights)}
        return await self._run(_calls.make_call(_calls.RANK, given, {**fields, **own, **_calls.choice_of(given)}))

    def conversation(
        self,
        *,
        context: Iterable[TurnLike] = (),
        messages: Iterable[MessageLike] | None = None,
        max_reopenings: int = _defaults.MAX_REOPENINGS,
        **given: Unpack[ScoringOptions],
    ) -> AsyncConversation:
        """A live conversation, to be entered: `say` every turn once, and it is answered by its scores.

        `context`, or `messages` in OpenAI's chat form, is what came before; it is not scored. `deadline_ms` is
        for each turn, `timeout_seconds` for the opening, retries included, and for each turn. Where the connection
        breaks or the service shuts down, the conversation goes on with another replica, `max_reopenings` times; 0
        leaves that to you.
        """
        opening = _calls.opening_of(context, given, messages)
        policy = self._policy.with_timeout(given.get("timeout_seconds"))
        open_stream = partial(self._transport.open_stream, _calls.checked_metadata(given.get("metadata")))
        request_id = _calls.checked_id(given.get("request_id"))
        return AsyncConversation(open_stream, opening, request_id, policy, self._clock, max_reopenings)

    async def similarity(
        self, texts: Iterable[str], references: Iterable[str] = (), **given: Unpack[SimilarityOptions]
    ) -> wire.SimilarityReply:
        """How near each text is to each of `references`, or to the other texts without any, by the sentence encoder.

        `texts[i].similarities[j]` is a cosine, -1 to 1, and `texts[i].best` the place of the greatest. A NotFoundError
        where the service has no encoder loaded.
        """
        check_names(given, SimilarityOptions.__optional_keys__)
        fields = {"texts": _calls.plain(texts), "references": _calls.plain(references), **_calls.chosen(given)}
        return await self._run(_calls.make_call(_calls.SIMILARITY, given, fields))

    async def models(self, **given: Unpack[CallOptions]) -> wire.ModelsReply:
        """What the service has loaded, and how much it takes at once."""
        check_names(given, CallOptions.__optional_keys__)
        return await self._run(_calls.make_call(_calls.MODELS, given))

    async def aclose(self) -> None:
        """Closes every connection; the client is of no use after that."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, call: Call[R]) -> R:
        attempts = Attempts(self._policy.with_timeout(call.timeout_seconds), call.deadline_ms)
        send = partial(self._transport.send, call, attempts)
        return await _retry(send, attempts, self._clock, lambda: call.request_id)


async def _retry(
    work: Callable[[], Awaitable[T]], attempts: Attempts, clock: Clock, request_id: Callable[[], str | None]
) -> T:
    """What the work gives, done again as often and as late as the attempts allow."""
    while True:
        try:
            return await work()
        except OutOfTimeError:
            raise attempts.out_of_time(request_id()) from None
        except TurnScoreError as error:
            delay = attempts.delay_after(error)
            if delay is None:
                raise
        await clock.sleep_async(delay)


class AsyncTurnScoreClient(AsyncCalls):
    """A client of one turnscore service, to be kept and shared within one event loop: it reuses its connections.

    `url` and `api_key` default to the environment's TURNSCORE_URL and TURNSCORE_API_KEY. `tls` is for an
    `https://` address whose authority is private or which asks for a certificate; without it the public authorities are
    trusted. `transport` is one of httpx's, encrypted in its own way; `tls` then holds for conversations. ClientOptions
    has what else may be given. Every method raises a TurnScoreError.

    Raises ValueError for arguments that make no sense.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        **given: Unpack[ClientOptions],
    ) -> None:
        settings = resolve_http(url, given)
        super().__init__(AsyncHttpTransport(settings, given.get("tls"), transport), settings, given.get("clock"))


if TYPE_CHECKING:  # an installation without the extra has the classes, which say what to install when one is made
    import grpc


class AsyncTurnScoreGrpcClient(AsyncCalls):
    """A client of one turnscore service, to be kept and shared within one event loop: it reuses its connection.

    `address` is `host:port`; it and `api_key` default to the environment's TURNSCORE_GRPC_ADDRESS and
    TURNSCORE_API_KEY. `tls` encrypts: `Tls()` trusts the public authorities; without it everything goes in plain text.
    `channel` is one of grpc.aio's, opened and encrypted in another way; the client closes it. ClientOptions has what
    else may be given. Every method raises a TurnScoreError.

    Raises ValueError for arguments that make no sense. Without the extra, an ImportError says what to install.
    """

    def __init__(
        self, address: str | None = None, *, channel: "grpc.aio.Channel | None" = None, **given: Unpack[ClientOptions]
    ) -> None:
        from turnscore_client._grpc import AsyncGrpcTransport

        settings = resolve_grpc(address, given)
        super().__init__(AsyncGrpcTransport(settings, given.get("tls"), channel), settings, given.get("clock"))

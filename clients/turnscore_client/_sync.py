"""The clients for threads, over HTTP and over gRPC, and their conversations: those of asyncio, where nothing waits.

Each coroutine of `_async` runs at once to its end: those of transports and streams for threads block, and never
wait for an event loop.
"""

import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack, overload

import httpx
from turnscore_wire import ConversationOpened, ConversationScored, Speaker, Turn

from turnscore_client import _defaults
from turnscore_client._async import AsyncCalls, AsyncConversation
from turnscore_client._http import HttpTransport
from turnscore_client._options import ClientOptions, Clock, MessageLike, ScoringOptions, TurnLike, TurnOptions
from turnscore_client._retry import SystemClock
from turnscore_client._settings import ClientSetup, resolve_grpc, resolve_http

if TYPE_CHECKING:  # an installation without the extra has the classes, which say what to install when one is made
    import grpc

    from turnscore_client._grpc import GrpcTransport

T = TypeVar("T")
P = ParamSpec("P")


class _BlockingClock:
    def __init__(self, clock: Clock) -> None:
        self.now, self.sleep = clock.now, clock.sleep

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


class _BlockingLock:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise RuntimeError("it waits for something")


def _for_threads(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method of the object's counterpart for asyncio, with its signature and its documentation."""

    @wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_now(method(self._inner, *args, **kwargs))

    return run


class Conversation:
    """A live conversation, inside its `with`. Threads may share it; their turns are sent one after the other.

    Opening is retried as a call is. A turn is not: sending it twice would add it twice. Where the connection breaks, or
    the service is draining, the conversation is reopened with its turns as context, at most `max_reopenings` times, and
    the unanswered turn is sent there: the broken connection remembers nothing. A turn for which the conversation could
    not be reopened raises and is not part of it; the next turn tries again.
    """

    def __init__(self, inner: AsyncConversation) -> None:
        inner._turn, inner._entry = _BlockingLock(), "with"
        self._inner = inner

    @overload
    def say(self, speaker: Literal["system"], text: str, **given: Unpack[TurnOptions]) -> ConversationScored: ...

    @overload
    def say(self, speaker: Speaker, text: str, **given: Unpack[TurnOptions]) -> ConversationScored | None: ...

    @wraps(AsyncConversation.say)
    def say(self, speaker: Speaker, text: str, **given: Unpack[TurnOptions]) -> ConversationScored | None:
        return run_now(self._inner.say(speaker, text, **given))

    say_messages = _for_threads(AsyncConversation.say_messages)
    close = _for_threads(AsyncConversation.close)

    @property
    def opened(self) -> ConversationOpened:
        """What the service answered when it opened: the request id, the scorers, the turns of context."""
        return self._inner.opened

    @property
    def turns(self) -> Sequence[Turn]:
        """Every turn so far, with the context it was opened with: the context of the next conversation."""
        return self._inner.turns

    @property
    def is_draining(self) -> bool:
        """Whether the service is shutting down: finish the exchange and open another conversation."""
        return self._inner.is_draining

    def __enter__(self) -> Self:
        run_now(self._inner.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Calls:
    """The calls; every method raises a TurnScoreError."""

    def __init__(self, transport: "HttpTransport | GrpcTransport", settings: ClientSetup, clock: Clock | None) -> None:
        self._inner = AsyncCalls(transport, settings, _BlockingClock(clock or SystemClock()))

    score = _for_threads(AsyncCalls.score)
    score_batch = _for_threads(AsyncCalls.score_batch)
    score_dialogue = _for_threads(AsyncCalls.score_dialogue)
    rank = _for_threads(AsyncCalls.rank)
    similarity = _for_threads(AsyncCalls.similarity)
    models = _for_threads(AsyncCalls.models)

    def conversation(
        self,
        *,
        context: Iterable[TurnLike] = (),
        messages: Iterable[MessageLike] | None = None,
        max_reopenings: int = _defaults.MAX_REOPENINGS,
        **given: Unpack[ScoringOptions],
    ) -> Conversation:
        """A live conversation, to be entered: `say` every turn once, and it is answered by its scores.

        `context`, or `messages` in OpenAI's chat form, is what came before; it is not scored. `deadline_ms` is
        for each turn, `timeout_seconds` for the opening, retries included, and for each turn. Where the connection
        breaks or the service shuts down, the conversation goes on with another replica, `max_reopenings` times; 0
        leaves that to you.
        """
        inner = self._inner.conversation(context=context, messages=messages, max_reopenings=max_reopenings, **given)
        return Conversation(inner)

    def close(self) -> None:
        """Closes every connection; the client is of no use after that."""
        run_now(self._inner.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TurnScoreClient(Calls):
    """A client of one turnscore service, to be kept and shared between threads: it reuses its connections.

    `url` and `api_key` default to the environment's TURNSCORE_URL and TURNSCORE_API_KEY. `tls` is for an
    `https://` address whose authority is private or which asks for a certificate; without it the public authorities are
    trusted. `transport` is one of httpx's, encrypted in its own way; `tls` then holds for conversations. ClientOptions
    has what else may be given. Every method raises a TurnScoreError.

    Raises ValueError for arguments that make no sense.
    """

    def __init__(
        self, url: str | None = None, *, transport: httpx.BaseTransport | None = None, **given: Unpack[ClientOptions]
    ) -> None:
        settings = resolve_http(url, given)
        super().__init__(HttpTransport(settings, given.get("tls"), transport), settings, given.get("clock"))


class TurnScoreGrpcClient(Calls):
    """A client of one turnscore service, to be kept and shared between threads: it reuses its connection.

    `address` is `host:port`; it and `api_key` default to the environment's TURNSCORE_GRPC_ADDRESS and
    TURNSCORE_API_KEY. `tls` encrypts: `Tls()` trusts the public authorities; without it everything goes in plain text.
    `channel` is one of grpc's, opened and encrypted in another way; the client closes it. ClientOptions has what else
    may be given. Every method raises a TurnScoreError.

    Raises ValueError for arguments that make no sense. Without the extra, an ImportError says what to install.
    """

    def __init__(
        self, address: str | None = None, *, channel: "grpc.Channel | None" = None, **given: Unpack[ClientOptions]
    ) -> None:
        from turnscore_client._grpc import GrpcTransport

        settings = resolve_grpc(address, given)
        super().__init__(GrpcTransport(settings, given.get("tls"), channel), settings, given.get("clock"))

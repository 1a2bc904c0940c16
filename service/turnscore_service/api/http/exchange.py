"""One HTTP request and its caller, with no more objects than the calls need: a web framework's took 0.1 ms of CPU.

Where our protocol serves (protocol.py) the request's scope has a `Link` to its connection. Elsewhere ASGI's own
messages say the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from turnscore_core.deadline import within
from turnscore_core.errors import CallerLeftError, DeadlineExceededError, TooLargeError
from turnscore_wire import BODY_FIELD

from turnscore_service.api.http.answers import read_headers

LINK = "turnscore.link"
"""The key of a request's link in its ASGI scope."""
_T = TypeVar("_T")


class Door(Protocol):
    """An ASGI app that is an object: as an attribute of a class it is no method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""


class Link(Protocol):
    """A request's connection."""

    def take_body(self) -> bytes | None:
        """The request's body where all of it has come and nobody has taken it; else None."""

    def send(self, response: Response) -> bool:
        """Sends the whole answer, if it can go out at once; else does nothing and returns False."""

    def watch(self, on_leave: Callable[[], object] | None) -> None:
        """From here on calls this, once, when the caller leaves; None: calls nothing more."""


class HttpExchange:
    """One request. Its head is there; its body may still come."""

    __slots__ = ("_link", "_receive", "headers", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.headers = read_headers(scope)
        self._receive = receive
        self._link: Link | None = scope.get(LINK)

    async def read_body(self, most_bytes: int, seconds: float) -> bytes:
        """The whole body. Raises TooLargeError as soon as it is known to be longer than so many bytes.

        Raises DeadlineExceededError where it takes longer, CallerLeftError where it ends before its end.
        """
        announced = self.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most_bytes:
            raise TooLargeError(f"the body has {announced} bytes; at most {most_bytes} are allowed", field=BODY_FIELD)
        if self._link is not None and (body := self._link.take_body()) is not None:
            if len(body) > most_bytes:
                raise TooLargeError(f"the body has more than {most_bytes} bytes", field=BODY_FIELD)
            return body
        try:
            return await within(seconds, self._gather_body(most_bytes))
        except TimeoutError:
            raise DeadlineExceededError("the body did not arrive in time", field=BODY_FIELD) from None

    def send(self, response: Response) -> bool:
        """Sends the answer past ASGI's messages; False where it has to take them."""
        return self._link is not None and self._link.send(response)

    async def unless_left(self, work: Awaitable[_T]) -> _T:
        """The work's result; CallerLeftError if the caller leaves first, and the work then stops."""
        working = asyncio.current_task()
        assert working is not None
        has_left = False

        def leave() -> None:
            nonlocal has_left
            has_left = True
            working.cancel()

        stop_watching = self._watch(leave)
        try:
            return await work
        except asyncio.CancelledError:
            if has_left and not working.uncancel():
                raise CallerLeftError from None
            raise
        finally:
            stop_watching()

    async def _gather_body(self, most_bytes: int) -> bytes:
        chunks, size, is_more = [], 0, True
        while is_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise CallerLeftError
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most_bytes:
                raise TooLargeError(f"the body has more than {most_bytes} bytes", field=BODY_FIELD)
            chunks.append(chunk)
            is_more = message.get("more_body", False)
        return b"".join(chunks)

    def _watch(self, leave: Callable[[], object]) -> Callable[[], object]:
        """Calls `leave` when the caller leaves; returns what ends that."""
        link = self._link
        if link is not None:
            link.watch(leave)
            return lambda: link.watch(None)
        watching = asyncio.ensure_future(self._receive())

        def look(_: object) -> None:
            leave()

        def stop() -> None:
            watching.remove_done_callback(look)
            watching.cancel()

        watching.add_done_callback(look)
        return stop

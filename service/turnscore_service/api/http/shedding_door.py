"""The shedding door: under a lasting overload, refuses most requests undecoded. Stands in front of the HTTP door."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from turnscore_core.errors import UnauthenticatedError

from turnscore_service.api.boundary import shed
from turnscore_service.api.calls import CALLS
from turnscore_service.api.http.exchange import read_headers, request_id_of, send_answer, sender_of
from turnscore_service.auth.access import Caller
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.admission import KNOWN_REQUEST
from turnscore_service.scheduling.pipeline import SIMILARITY

_CALLS = {f"/v1/{call.name}": call.name for call in CALLS}


class SheddingDoor:
    """Hands every request on, but those that shedding.py says are not to be decoded. ASGI.

    A request that was answered lately in the same bytes is decoded: it is most likely known.
    """

    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life cycle."""
        call = _CALLS.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        caller = self._caller(scope) if call is not None and self._runtime.has_refused() else None
        if call is None or caller is None or (scorer := self._runtime.full_scorer(caller)) is None:
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []
        with suppress(TimeoutError):  # the door behind refuses callers that are too slow
            async with asyncio.timeout(self._runtime.settings.default_deadline_ms / 1000):
                await _read(receive, self._runtime.settings.limits.max_body_bytes, messages)
        body = _whole_body(messages)
        if body in self._runtime.answered:
            token = KNOWN_REQUEST.set(True)
            try:
                await self._app(scope, _replay(messages, receive), send)
            finally:
                KNOWN_REQUEST.reset(token)
            return
        if not self._asks(call, body, scorer) or (error := self._runtime.shed(caller)) is None:
            await self._app(scope, _replay(messages, receive), send)
            return
        request_id = request_id_of(scope)
        await send_answer(shed("http", call, error, request_id), request_id)(scope, receive, send)

    def _asks(self, call: str, body: bytes, scorer: str) -> bool:
        """Whether a body asks this scorer: by its name, or by naming none where it is asked by default.

        A name that is written with JSON's escapes is not found, and the body is decoded.
        """
        if not body:
            return False
        if call == SIMILARITY or self._runtime.is_encoder(scorer):
            return self._runtime.asks(call, scorer)
        if f'"{scorer}"'.encode() in body:
            return True
        return b'"scorers"' not in body and b'"weights"' not in body and self._runtime.asks(call, scorer)

    def _caller(self, scope: Scope) -> Caller | None:
        """The caller; None for an unknown one, which the door behind refuses."""
        try:
            return self._runtime.access.recognize(*sender_of(scope, read_headers(scope)))
        except UnauthenticatedError:
            return None


async def _read(receive: Receive, most_bytes: int, messages: list[Message]) -> None:
    """Adds the messages of one body, to its end or until there are more bytes than are taken anyway."""
    size, is_more = 0, True
    while is_more and size <= most_bytes:
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
        is_more = messages[-1].get("more_body", False)


def _whole_body(messages: Sequence[Message]) -> bytes:
    """The body, where the messages are all of it; else none."""
    if not messages or messages[-1]["type"] != "http.request" or messages[-1].get("more_body", False):
        return b""
    return b"".join(message.get("body", b"") for message in messages)


def _replay(messages: Sequence[Message], receive: Receive) -> Receive:
    waiting = deque(messages)

    async def replay() -> Message:
        return waiting.popleft() if waiting else await receive()

    return replay

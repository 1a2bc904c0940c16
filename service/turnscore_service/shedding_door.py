"""The shedding door: under a lasting overload, refuses most requests undecoded. Stands in front of the HTTP door."""

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnscore_service.boundary import shed
from turnscore_service.calls import CALLS
from turnscore_service.http_answers import request_id_of, send_answer
from turnscore_service.wiring import Runtime

_CALLS = {f"/v1/{call.name}": call.name for call in CALLS}


class SheddingDoor:
    """Hands every request on, but those that shedding.py says are not to be decoded. ASGI."""

    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life cycle."""
        call = _CALLS.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if call is None or (scorer := self._runtime.full_scorer()) is None:
            await self._app(scope, receive, send)
            return
        first: Message | None = None
        with suppress(TimeoutError):  # the door behind tells whoever is too slow
            async with asyncio.timeout(self._runtime.settings.default_deadline_ms / 1000):
                first = await receive()
        if first is None or not _asks(first, scorer) or (error := self._runtime.shed()) is None:
            await self._app(scope, receive if first is None else _replay(first, receive), send)
            return
        request_id = request_id_of(Request(scope))
        await send_answer(shed("http", call, error, request_id), request_id)(scope, receive, send)


def _asks(message: Message, scorer: str) -> bool:
    """Whether the message is a whole body that asks this scorer: by its name, or by naming none.

    A name that is written with JSON's escapes is not found, and the body is decoded.
    """
    body: bytes = message.get("body", b"")
    if message["type"] != "http.request" or message.get("more_body", False) or not body:
        return False
    return b'"scorers"' not in body or f'"{scorer}"'.encode() in body


def _replay(first: Message, receive: Receive) -> Receive:
    waiting = [first]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay

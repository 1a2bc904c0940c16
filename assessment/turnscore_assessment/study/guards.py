"""The checks that every request passes first: host, origin, form, size; and the headers of answers."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnscore_assessment.study.refusals import Refusal, RefusedError

BODY_SECONDS = 15.0
"""Seconds for a whole body. Chosen: a slow phone sends a thousand characters in one."""
LEAST_BODY_BYTES = 100_000
"""Smallest limit of a body: 50 ratings with long names."""
BYTES_PER_CHARACTER = 12
"""Bytes of a character outside of the basic plane, as JSON escapes it."""

_SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
}


class GuardedApp:
    """The app behind its host check, with the security headers on every answer, errors included."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._hosts = {urlsplit(origin).netloc.lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY)
            await send(message)

        if Headers(scope=scope).get("host", "").lower() not in self._hosts:
            await _refuse_host(send_guarded)
            return
        await self._app(scope, receive, send_guarded)


async def read_fields(request: Request, origins: Sequence[str], input_characters: int) -> Any:
    """The JSON body of a request of this study's page. RefusedError: FOREIGN_ORIGIN, NOT_JSON, TOO_LARGE, INVALID."""
    if request.headers.get("origin") not in origins:
        raise RefusedError(Refusal.FOREIGN_ORIGIN)
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise RefusedError(Refusal.FOREIGN_ORIGIN)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(Refusal.NOT_JSON)
    body = await _read_body(request, max(LEAST_BODY_BYTES, BYTES_PER_CHARACTER * input_characters + 1000))
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(Refusal.INVALID, "the body is not JSON") from None


def read_link(request: Request) -> str:
    """The link in the request's header; it is never in an address. Raises RefusedError: UNKNOWN_LINK."""
    scheme, _, link = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise RefusedError(Refusal.UNKNOWN_LINK)
    return link.strip()


async def _read_body(request: Request, most: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise RefusedError(Refusal.TOO_LARGE)
    except (TimeoutError, ClientDisconnect):
        raise RefusedError(Refusal.INVALID, "the body did not arrive") from None
    return bytes(body)


async def _refuse_host(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": b"This server does not answer under that name.\n"})

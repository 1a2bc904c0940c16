"""Reads one HTTP request and writes its response: who sends it, from which page, its body; replies and errors.

Where our protocol serves (`_patches/uvicorn_http.py`) the request's scope has a `Link` to its connection. Elsewhere
ASGI's own messages say the same. A web framework's request and response objects took 0.1 ms of CPU.

A page on the internet reaches whatever its reader's machine reaches, including localhost, so its origin must be allowed
or be the service's own. The owner of a name decides at any moment where it leads (DNS rebinding), so a page counts as
the service's own only under an address, under `localhost`, or under a name that the settings allow.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope
from turnscore_core import errors
from turnscore_wire import BODY_FIELD, ERROR_TABLE, ErrorCode, ErrorReply

from turnscore_service._patches.uvicorn_http import HEADERS_FIELD, LINK, Link, Serving
from turnscore_service.api.calls import refuse, take_request_id
from turnscore_service.auth.access import FORWARDED_KEY, sent_key
from turnscore_service.scheduling.executor import within
from turnscore_service.settings.api import HttpSettings
from turnscore_service.settings.service import Settings

CONTENT_TYPE_FIELD, CONTENT_ENCODING_FIELD = "content-type", "content-encoding"


def check_page(headers: Mapping[str, str], settings: HttpSettings) -> None:
    """Raises InvalidRequestError where a page of this origin, or anybody by this host's name, may not ask."""
    origin, authority = headers.get("origin"), headers.get("host", "").lower()
    if settings.allowed_hosts and authority and not _is_known(authority, settings):
        raise errors.InvalidRequestError("this host is not in TURNSCORE_HTTP__ALLOWED_HOSTS", field="host")
    if origin is None or origin in settings.allowed_origins:
        return
    is_own = origin.lower().partition("://")[2] == authority and _is_known(authority, settings)
    if not is_own:
        message = "pages of this origin may not use the service: TURNSCORE_HTTP__ALLOWED_ORIGINS"
        raise errors.InvalidRequestError(message, field="origin")


def _is_known(authority: str, settings: HttpSettings) -> bool:
    """Whether no other owner decides where the name leads."""
    try:
        host = urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host in settings.allowed_hosts:
        return True
    with suppress(ValueError):
        return bool(ip_address(host))
    return False


_NARROWER: dict[tuple[ErrorCode, str | None], int] = {
    (ErrorCode.INVALID_REQUEST, CONTENT_TYPE_FIELD): 415,  # RFC 9110, 15.5.16
    (ErrorCode.INVALID_REQUEST, CONTENT_ENCODING_FIELD): 415,
    (ErrorCode.TOO_LARGE, HEADERS_FIELD): 431,  # RFC 6585, 5
}
REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID_NAME = REQUEST_ID_HEADER.encode()
_JSON = (b"content-type", b"application/json")


class JsonResponse(Response):
    """A reply, or an error with its status, and Retry-After or WWW-Authenticate where they belong."""

    def __init__(self, reply: BaseModel | None, request_id: str) -> None:
        assert reply is not None
        self.body = body = reply.__pydantic_serializer__.to_json(reply)
        self.status_code = 200
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), _JSON, (_REQUEST_ID_NAME, request_id.encode())]
        if isinstance(reply, ErrorReply):
            error = reply.error
            # A narrower status than the table's for a part of the request that is no field of any call.
            self.status_code = _NARROWER.get((error.code, error.field), ERROR_TABLE[error.code].http_status)
            if error.code == ErrorCode.UNAUTHENTICATED:
                self.headers["www-authenticate"] = 'Bearer realm="turnscore"'
            if error.retry_after_ms is not None:
                self.headers["retry-after"] = str(-(-error.retry_after_ms // 1000))


def sender_of(
    scope: Scope, headers: Mapping[str, str], offered_key: str | None = None
) -> tuple[str | None, str, str | None]:
    """What identifies a caller: the key, the address of the other end, and the address that it says it forwards."""
    client = scope.get("client")
    forwarded = None
    if FORWARDED_KEY in headers:
        key = FORWARDED_KEY.encode()
        forwarded = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == key) or None
    return sent_key(headers) or offered_key, client[0] if client else "", forwarded


def serving_with(settings: Settings, app: ASGIApp | None = None) -> Serving:
    """What the protocols of a service with these settings need; `app` as `Serving` has it."""
    return Serving(
        refuse=_refuse_connection,
        header_timeout_seconds=settings.http.header_timeout_seconds,
        max_head_bytes=settings.http.max_head_bytes,
        max_message_bytes=settings.conversations.max_bytes,
        app=app,
    )


def _refuse_connection(error: errors.ScoringError) -> Response:
    request_id = take_request_id(None)
    return JsonResponse(refuse(error, request_id), request_id)


class HttpExchange:
    """One request. Its head is there; its body may still come.

    `with exchange:` cancels what the block waits for when the caller leaves, and raises CallerLeftError.
    """

    __slots__ = ("_has_left", "_link", "_receive", "_watching", "_working", "headers", "request_id", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        # By name, in lower case; of several with one name the first.
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        self.request_id = take_request_id(self.headers.get(REQUEST_ID_HEADER))
        self._receive = receive
        self._link: Link | None = scope.get(LINK)

    async def read_body(self, most_bytes: int, seconds: float) -> bytes:
        """The whole body. Raises TooLargeError as soon as it is known to be longer than `most_bytes`.

        Raises InvalidRequestError for one that is compressed, or not said to be JSON, as any page may send one unasked,
        DeadlineExceededError where it takes longer, CallerLeftError where it ends before its end.
        """
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise errors.InvalidRequestError("the body must be sent as application/json", field=CONTENT_TYPE_FIELD)
        if self.headers.get(CONTENT_ENCODING_FIELD, "identity").strip().lower() != "identity":
            raise errors.InvalidRequestError("the body must be sent uncompressed", field=CONTENT_ENCODING_FIELD)
        announced = self.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most_bytes:
            raise errors.TooLargeError(
                f"the body has {announced} bytes; at most {most_bytes} are allowed", field=BODY_FIELD
            )
        if self._link is not None and (body := self._link.take_body()) is not None:
            if len(body) > most_bytes:
                raise errors.TooLargeError(f"the body has more than {most_bytes} bytes", field=BODY_FIELD)
            return body
        try:
            return await within(seconds, self._gather_body(most_bytes))
        except TimeoutError:
            raise errors.DeadlineExceededError("the body did not arrive in time", field=BODY_FIELD) from None

    def refuse(self, error: errors.ScoringError) -> Response:
        return JsonResponse(refuse(error, self.request_id), self.request_id)

    def send(self, response: Response) -> bool:
        """Sends the response without ASGI's messages; False where they are needed."""
        return self._link is not None and self.scope["method"] != "HEAD" and self._link.send(response)

    def __enter__(self) -> None:
        working = asyncio.current_task()
        assert working is not None
        self._working, self._has_left = working, False
        if self._link is not None:
            self._link.watch(self._leave)
        else:
            self._watching = asyncio.ensure_future(self._receive())
            self._watching.add_done_callback(self._leave)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._link is not None:
            self._link.watch(None)
        else:
            self._watching.remove_done_callback(self._leave)
            self._watching.cancel()
        if self._has_left and isinstance(error, asyncio.CancelledError) and not self._working.uncancel():
            raise errors.CallerLeftError from None

    def _leave(self, _: object = None) -> None:
        self._has_left = True
        self._working.cancel()

    async def _gather_body(self, most_bytes: int) -> bytes:
        chunks, size, is_more = [], 0, True
        while is_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise errors.CallerLeftError
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most_bytes:
                raise errors.TooLargeError(f"the body has more than {most_bytes} bytes", field=BODY_FIELD)
            chunks.append(chunk)
            is_more = message.get("more_body", False)
        return b"".join(chunks)

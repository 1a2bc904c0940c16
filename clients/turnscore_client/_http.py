"""Sends requests over HTTP within the time that their call has left, and reads typed replies."""

import asyncio
import os
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpcore
import httpx
from pydantic import BaseModel, ValidationError
from turnscore_wire import ErrorReply

from turnscore_client import _defaults, _errors
from turnscore_client._calls import Call
from turnscore_client._options import Tls
from turnscore_client._retry import Attempts, OutOfTimeError
from turnscore_client._settings import ClientSetup, load_authorities, load_own_pair

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class HttpAnswer:
    """What came over the network. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read_reply(answer: HttpAnswer, reply_type: type[R]) -> R:
    """The reply in the answer; raises the typed error of an answer that is an error or not turnscore's."""
    if answer.status != 200:
        raise read_error(answer)
    try:
        return reply_type.model_validate_json(answer.body)
    except ValidationError:
        raise _unexpected(answer) from None


def read_error(answer: HttpAnswer) -> _errors.ServiceError | _errors.UnexpectedReplyError:
    """The typed error that an answer with another status than 200 stands for."""
    try:
        error = _errors.error_from_reply(ErrorReply.model_validate_json(answer.body))
    except ValidationError:
        return _unexpected(answer)
    if error.retry_after_ms is None:
        error.retry_after_ms = retry_after_header_ms(answer.headers)
    return error


def retry_after_header_ms(headers: Mapping[str, str]) -> int | None:
    """Retry-After (RFC 9110, 10.2.3) in milliseconds; a date counts from the answer's own Date, as clocks differ."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", value):
        return round(float(value) * 1000)
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return max(0, round(wait.total_seconds() * 1000))


def _unexpected(answer: HttpAnswer) -> _errors.UnexpectedReplyError:
    kind = answer.headers.get("content-type", "no content type").partition(";")[0]
    return _errors.UnexpectedReplyError(
        f"status {answer.status} with a body that is not turnscore's ({kind}); is something else at this address?",
        answer.status,
        _errors.start_of(answer.body),
        answer.headers.get("x-request-id"),
    )


def unexpected_text(text: str | bytes) -> _errors.UnexpectedReplyError:
    """The error of a message in a conversation that is not turnscore's."""
    message = "a message that is not turnscore's; is something else at this address?"
    start = _errors.start_of(text) if isinstance(text, bytes) else text[: _defaults.BODY_START_CHARS]
    return _errors.UnexpectedReplyError(message, body_start=start)


# The extension of a request by which the transport asks for the time that its call has left.
SECONDS_LEFT = "seconds_left"

_WRITE_BYTES = 16 * 1024  # one TLS record (RFC 8446, 5.1): the time is looked at before each
# Of the request that this thread sends: httpcore's streams outlive requests and see nothing of them.
_SECONDS_LEFT: ContextVar[Callable[[], float]] = ContextVar("seconds_left")


class BoundedTransport(httpx.BaseTransport):
    """For one address, through the environment's proxy where there is one.

    Raises what httpcore raises, and OutOfTimeError. An answer is read whole, and its connection free, when it returns.
    A forked process opens connections of its own: on its parent's each would get the other's answers.
    """

    def __init__(self, url: httpx.URL, context: ssl.SSLContext | None) -> None:
        self._context, self._proxy = context, _proxy_to(url)
        self._pool, self._process = self._open_pool(), os.getpid()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer, not decoded yet."""
        if self._process != os.getpid():
            self._pool, self._process = self._open_pool(), os.getpid()
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        bound = _SECONDS_LEFT.set(request.extensions[SECONDS_LEFT])
        try:
            with self._pool.stream(
                request.method,
                target,
                headers=request.headers.raw,
                content=request.content or None,
                extensions=request.extensions,
            ) as answer:
                content = bytearray()
                for chunk in answer.iter_stream():
                    content += chunk
                    if len(content) > _defaults.MAX_REPLY_BYTES:
                        break  # the caller refuses so much; the connection is closed with what is left
        finally:
            _SECONDS_LEFT.reset(bound)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Pieces(bytes(content)))

    def close(self) -> None:
        self._pool.close()

    def _open_pool(self) -> httpcore.ConnectionPool:
        return httpcore.ConnectionPool(
            ssl_context=self._context,
            proxy=self._proxy,
            max_connections=_defaults.MAX_CONNECTIONS,
            max_keepalive_connections=_defaults.MAX_IDLE_CONNECTIONS,
            keepalive_expiry=_defaults.IDLE_CONNECTION_SECONDS,
            network_backend=BoundedBackend(),
        )


class _Pieces(httpx.SyncByteStream):
    """A body in pieces, so that a packed one is not unpacked at once: each becomes a thousand times as much at most."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._content), _WRITE_BYTES):
            yield self._content[start : start + _WRITE_BYTES]


class BoundedStream(httpcore.NetworkStream):
    """A stream whose reads and writes raise OutOfTimeError once the call's time is over."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=_seconds_left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Sends all of it, looking at the time now and then."""
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], timeout=_seconds_left())

    def start_tls(self, *args: Any, **kwargs: Any) -> "BoundedStream":
        """The stream inside the encryption, bounded alike."""
        return BoundedStream(self._stream.start_tls(*args, **kwargs))

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class BoundedBackend(httpcore.SyncBackend):
    def connect_tcp(self, *args: Any, **kwargs: Any) -> BoundedStream:
        return BoundedStream(super().connect_tcp(*args, **kwargs))


def _seconds_left() -> float:
    left = _SECONDS_LEFT.get()()
    if left <= 0:
        raise OutOfTimeError
    return left


def _proxy_to(url: httpx.URL) -> httpcore.Proxy | None:
    """The environment's proxy for the address. Raises ValueError for one of an unknown kind."""
    named = urllib.request.getproxies()
    found = named.get(url.scheme) or named.get("all")
    if not found or urllib.request.proxy_bypass(url.netloc.decode()):
        return None
    proxy = httpx.Proxy(found if "://" in found else f"http://{found}")
    return httpcore.Proxy(str(proxy.url), auth=proxy.raw_auth, headers=proxy.headers.raw)


_LIMITS = httpx.Limits(
    max_connections=_defaults.MAX_CONNECTIONS,
    max_keepalive_connections=_defaults.MAX_IDLE_CONNECTIONS,
    keepalive_expiry=_defaults.IDLE_CONNECTION_SECONDS,
)
_TIMEOUTS = (httpx.TimeoutException, httpcore.TimeoutException)
_NETWORK_ERRORS = (
    *(httpx.TransportError, httpx.InvalidURL, UnicodeError),  # the last two: a host whose name cannot be encoded
    *(httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError),
    *(httpcore.ProxyError, httpcore.UnsupportedProtocol),
)
_SENDING_ERRORS = (httpx.RequestError, *_NETWORK_ERRORS)
_LEAST_SECONDS = 0.001  # a socket takes 0 for "do not wait at all"


class AsyncHttpTransport:
    """Sends calls over HTTP from the running event loop; conversations go over a WebSocket."""

    _blocks = False

    def __init__(self, settings: ClientSetup, tls: Tls | None, transport: Any) -> None:
        self._settings = settings
        self._stream_context = context_of(settings.address, tls)
        self._client = self._open_client(tls, transport)
        self._open_stream = getattr(transport, "open_stream", None)  # a mock's own

    def _open_client(self, tls: Tls | None, transport: Any) -> Any:
        verify = self._stream_context or True
        return httpx.AsyncClient(base_url=self._settings.address, verify=verify, transport=transport, limits=_LIMITS)

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt. Raises a TurnScoreError, or OutOfTimeError."""
        request = _build(self._client, self._settings, call, attempts)
        try:
            answer = await self._exchange(request, attempts)
        except _SENDING_ERRORS as error:
            raise _translate(error, self._settings.address) from error
        return read_reply(answer, call.endpoint.reply_type)

    async def _exchange(self, request: httpx.Request, attempts: Attempts) -> HttpAnswer:
        try:
            async with asyncio.timeout(attempts.seconds_left()):
                response = await self._client.send(request, stream=True)
                try:
                    body = bytearray()
                    async for chunk in response.aiter_bytes():
                        _add(body, chunk, response)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise OutOfTimeError from error
        return _answer(response, bytes(body))

    async def open_stream(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> Any:
        headers = self._settings.headers(request_id, metadata)
        if self._open_stream is not None:
            return self._open_stream(headers)
        from turnscore_client._websocket import AsyncWebSocketStream, WebSocketStream

        stream = WebSocketStream if self._blocks else AsyncWebSocketStream
        return await stream.open(self._settings.address, self._stream_context, headers, attempts)

    async def close(self) -> None:
        await self._client.aclose()


class HttpTransport(AsyncHttpTransport):
    """The same from the calling thread: its coroutines block it, and never wait."""

    _blocks = True

    def _open_client(self, tls: Tls | None, transport: Any) -> Any:
        url = httpx.URL(self._settings.address)
        bounded = transport or BoundedTransport(url, context_of(self._settings.address, tls))
        return httpx.Client(base_url=url, transport=bounded)

    async def _exchange(self, request: httpx.Request, attempts: Attempts) -> HttpAnswer:
        response = self._client.send(request, stream=True)
        try:
            body = bytearray()
            for chunk in response.iter_bytes():
                _add(body, chunk, response)
                attempts.check_time()
        finally:
            response.close()
        return _answer(response, bytes(body))

    async def close(self) -> None:
        self._client.close()


def context_of(url: str, tls: Tls | None) -> ssl.SSLContext | None:
    """What calls and conversations alike are encrypted with; None for an address in plain text.

    Raises ValueError for files that cannot be read or do not fit together, and for `tls` with such an address.
    """
    if not url.lower().startswith("https:"):
        if tls is not None:
            raise ValueError("tls: the url must begin with https://, or everything goes in plain text")
        return None
    tls = tls or Tls()
    if tls.ca_file is None:
        context = httpx.create_ssl_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_authorities(context, tls.ca_file)
    if tls.cert_file is not None and tls.key_file is not None:
        load_own_pair(context, tls.cert_file, tls.key_file)
    return context


class TimeLeft(Mapping[str, float]):
    """Timeouts by phase: each phase, when it begins, gets what is left of the whole, not the whole again."""

    def __init__(self, seconds_left: Callable[[], float]) -> None:
        self._seconds_left = seconds_left

    def __getitem__(self, phase: str) -> float:
        if phase not in ("connect", "read", "write", "pool"):
            raise KeyError(phase)
        left = max(self._seconds_left(), _LEAST_SECONDS)
        return min(left, _defaults.CONNECT_TIMEOUT_SECONDS) if phase == "connect" else left

    def __iter__(self) -> Iterator[str]:
        return iter(("connect", "read", "write", "pool"))

    def __len__(self) -> int:
        return 4


def _build(
    client: httpx.Client | httpx.AsyncClient, settings: ClientSetup, call: Call[R], attempts: Attempts
) -> httpx.Request:
    attempts.check_time()
    headers = dict(settings.headers(call.request_id, call.metadata))
    body = call.body(attempts.deadline_ms_left)
    if body is not None:
        headers["Content-Type"] = "application/json"
    extensions = {"timeout": TimeLeft(attempts.seconds_left), SECONDS_LEFT: attempts.seconds_left}
    return client.build_request(
        call.endpoint.method, call.endpoint.path, content=body, headers=headers, extensions=extensions
    )


def _add(body: bytearray, chunk: bytes, response: httpx.Response) -> None:
    """Adds what came; UnexpectedReplyError for more than any reply of turnscore's has."""
    body += chunk
    if len(body) > _defaults.MAX_REPLY_BYTES:
        message = f"status {response.status_code} with a body of more than {_defaults.MAX_REPLY_BYTES} bytes"
        message = f"{message}; is something else at this address?"
        raise _errors.UnexpectedReplyError(message, response.status_code, _errors.start_of(body))


def _answer(response: httpx.Response, body: bytes) -> HttpAnswer:
    return HttpAnswer(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def _translate(error: Exception, url: str) -> _errors.TurnScoreError | OutOfTimeError:
    """Every way in which httpx and httpcore fail to bring an answer, in this package's words."""
    if isinstance(error, _TIMEOUTS) and not isinstance(error, httpx.ConnectTimeout | httpcore.ConnectTimeout):
        return OutOfTimeError()
    reason = str(error) or type(error).__name__
    if isinstance(error, _NETWORK_ERRORS):
        return _errors.ConnectionFailedError(f"no answer from {url}: {reason}")
    return _errors.UnexpectedReplyError(f"an answer from {url} that cannot be read: {reason}")

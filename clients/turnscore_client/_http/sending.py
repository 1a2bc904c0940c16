"""HTTP: sends one request and gives back the answer. Retries nothing.

One pool of connections lives as long as its client. A body is always read or closed before this module returns.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import httpcore
import httpx

from turnscore_client import _defaults
from turnscore_client._errors import ConnectionFailedError, TurnScoreError, UnexpectedReplyError
from turnscore_client._http.bounded_transport import SECONDS_LEFT, BoundedTransport
from turnscore_client._http.replies import Answer
from turnscore_client._http.shared_ssl_socket import share
from turnscore_client._retry import OutOfTimeError
from turnscore_client._tls import Tls, load_authorities, load_own_pair

Transport = httpx.BaseTransport
AsyncTransport = httpx.AsyncBaseTransport

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


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """One request to send, and how to ask for the time it has left."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)  # the API key among them
    body: bytes | None
    seconds_left: Callable[[], float]


class Http:
    """Sends from the calling thread."""

    def __init__(self, url: str, tls: Tls | None, transport: Transport | None) -> None:
        self._url = url
        self.line_context = share(context_of(url, tls))
        """What conversations are encrypted with."""
        checked = _checked_url(url)
        transport = transport or BoundedTransport(checked, context_of(url, tls))
        self._client = httpx.Client(base_url=checked, transport=transport)

    def send(self, outgoing: Outgoing) -> Answer:
        """The answer, whatever its status; without one OutOfTimeError, ConnectionFailedError, UnexpectedReplyError."""
        request = _build(self._client, outgoing)
        try:
            response = self._client.send(request, stream=True)
            try:
                body = bytearray()
                for chunk in response.iter_bytes():
                    _add(body, chunk, response)
                    _check_time(outgoing)
            finally:
                response.close()
        except _SENDING_ERRORS as error:
            raise _translate(error, self._url) from error
        return _answer(response, bytes(body))

    def close(self) -> None:
        """Closes every connection."""
        self._client.close()


class AsyncHttp:
    """Sends from the running event loop."""

    def __init__(self, url: str, tls: Tls | None, transport: AsyncTransport | None) -> None:
        self._url = url
        self.line_context = context_of(url, tls)
        """What conversations are encrypted with."""
        verify = self.line_context or True
        self._client = httpx.AsyncClient(base_url=_checked_url(url), verify=verify, transport=transport, limits=_LIMITS)

    async def send(self, outgoing: Outgoing) -> Answer:
        """The answer, whatever its status; without one OutOfTimeError, ConnectionFailedError, UnexpectedReplyError."""
        request = _build(self._client, outgoing)
        try:
            async with asyncio.timeout(outgoing.seconds_left()):
                response = await self._client.send(request, stream=True)
                try:
                    body = bytearray()
                    async for chunk in response.aiter_bytes():
                        _add(body, chunk, response)
                finally:
                    await response.aclose()
        except _SENDING_ERRORS as error:
            raise _translate(error, self._url) from error
        except TimeoutError as error:
            raise OutOfTimeError from error
        return _answer(response, bytes(body))

    async def close(self) -> None:
        """Closes every connection."""
        await self._client.aclose()


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


def _checked_url(url: str) -> httpx.URL:
    """The address, where its host can be looked up; ValueError else."""
    try:
        parsed = httpx.URL(url)
        is_known = "%20" not in parsed.host and bool(parsed.raw_host.decode("ascii").encode("idna"))
    except (httpx.InvalidURL, UnicodeError):
        is_known = False
    if not is_known:
        raise ValueError("url must have a host that can be looked up")
    return parsed


def _build(client: httpx.Client | httpx.AsyncClient, outgoing: Outgoing) -> httpx.Request:
    _check_time(outgoing)
    headers = dict(outgoing.headers)
    if outgoing.body is not None:
        headers["Content-Type"] = "application/json"
    extensions = {"timeout": TimeLeft(outgoing.seconds_left), SECONDS_LEFT: outgoing.seconds_left}
    return client.build_request(
        outgoing.method, outgoing.path, content=outgoing.body, headers=headers, extensions=extensions
    )


def _check_time(outgoing: Outgoing) -> None:
    if outgoing.seconds_left() <= 0:
        raise OutOfTimeError


def _add(body: bytearray, chunk: bytes, response: httpx.Response) -> None:
    """Adds what came; UnexpectedReplyError for more than any reply of turnscore's has."""
    body += chunk
    if len(body) > _defaults.MAX_REPLY_BYTES:
        message = f"status {response.status_code} with a body of more than {_defaults.MAX_REPLY_BYTES} bytes"
        start = bytes(body[: 4 * _defaults.BODY_START_CHARS]).decode(errors="replace")[: _defaults.BODY_START_CHARS]
        raise UnexpectedReplyError(f"{message}; is something else at this address?", response.status_code, start)


def _answer(response: httpx.Response, body: bytes) -> Answer:
    return Answer(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def _translate(error: Exception, url: str) -> TurnScoreError | OutOfTimeError:
    """Every way in which httpx and httpcore fail to bring an answer, in this package's words."""
    if isinstance(error, _TIMEOUTS) and not isinstance(error, httpx.ConnectTimeout | httpcore.ConnectTimeout):
        return OutOfTimeError()
    reason = str(error) or type(error).__name__
    if isinstance(error, _NETWORK_ERRORS):
        return ConnectionFailedError(f"no answer from {url}: {reason}")
    return UnexpectedReplyError(f"an answer from {url} that cannot be read: {reason}")

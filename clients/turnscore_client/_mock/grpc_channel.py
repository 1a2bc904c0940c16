"""The mock over gRPC (extra `grpc`): channels whose calls are the mock's requests over HTTP, message by message."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import httpx
from pydantic import ValidationError
from turnscore_wire import ERROR_TABLE, ErrorReply

from turnscore_client._endpoints import ENDPOINTS
from turnscore_client._extras import needs_extra
from turnscore_client._grpc.messages import StatusError
from turnscore_client._mock.conversation import AsyncMockLine, MockLine

with needs_extra("grpc", "a mock over gRPC"):
    import grpc
    from google.protobuf.any_pb2 import Any as AnyMessage
    from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

_ENDPOINTS = {endpoint.rpc: endpoint for endpoint in ENDPOINTS}
_PROXY_CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    **dict.fromkeys((429, 502, 503, 504), grpc.StatusCode.UNAVAILABLE),
}
"""What a gRPC library makes of an HTTP status (gRPC, HTTP to gRPC Status Code Mapping); of any other UNKNOWN."""

Pairs = Sequence[tuple[str, str]]


class MockTransport(Protocol):
    """What carries the mock's requests and conversations."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to one request."""

    def open_line(self, headers: Mapping[str, str]) -> MockLine:
        """A conversation for threads."""

    def open_async_line(self, headers: Mapping[str, str]) -> AsyncMockLine:
        """A conversation for asyncio."""


class MockGrpcChannel:
    """A channel to the mock, for threads."""

    def __init__(self, transport: MockTransport) -> None:
        self._transport = transport
        self.open_line = transport.open_line

    def unary_unary(self, method: str) -> Any:
        """What a client calls with a message, for a message."""

        def ask(data: bytes, *, metadata: Pairs, **_: float) -> bytes:
            return _answer(self._transport, method.rpartition("/")[2], data, metadata)

        return ask

    def close(self) -> None:
        """Has nothing to close."""


class AsyncMockGrpcChannel:
    """The same for asyncio."""

    def __init__(self, transport: MockTransport) -> None:
        self._transport = transport
        self.open_async_line = transport.open_async_line

    def unary_unary(self, method: str) -> Any:
        """What a client awaits with a message, for a message."""

        async def ask(data: bytes, *, metadata: Pairs, **_: float) -> bytes:
            return _answer(self._transport, method.rpartition("/")[2], data, metadata)

        return ask

    async def close(self) -> None:
        """Has nothing to close."""


def _answer(transport: MockTransport, rpc: str, data: bytes, metadata: Pairs) -> bytes:
    """The message that answers; raises StatusError for a refusal."""
    endpoint = _ENDPOINTS[rpc]
    message = getattr(turnscore_pb2, endpoint.request_message).FromString(data)
    fields = None if endpoint.request_type is None else to_fields(message)
    url = f"http://turnscore.test{endpoint.path}"
    request = httpx.Request(endpoint.method, url, headers=list(metadata), json=fields)
    try:
        response = transport.handle_request(request)
    except httpx.ConnectError as error:
        raise StatusError(grpc.StatusCode.UNAVAILABLE, str(error)) from None
    if response.status_code != 200:
        raise _refusal(response)
    try:
        return to_message(endpoint.reply_type.model_validate_json(response.content)).SerializeToString()
    except ValidationError:
        return response.content


def _refusal(response: httpx.Response) -> StatusError:
    try:
        reply = ErrorReply.model_validate_json(response.content)
    except ValidationError:
        code = _PROXY_CODES.get(response.status_code, grpc.StatusCode.UNKNOWN)
        return StatusError(code, f"the answer has the HTTP status {response.status_code}")
    code = grpc.StatusCode[ERROR_TABLE[reply.error.code].grpc_code]
    details = AnyMessage()
    details.Pack(to_message(reply))
    status = turnscore_pb2.Status(code=code.value[0], message=reply.error.message, details=[details])
    trailers: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", status.SerializeToString())]
    if response.headers.get("retry-after", "").isdecimal():
        trailers.append(("grpc-retry-pushback-ms", f"{1000 * int(response.headers['retry-after'])}"))
    return StatusError(code, reply.error.message, trailers)

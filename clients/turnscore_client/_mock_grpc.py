"""The mock over gRPC (extra `grpc`): a call is one of the mock's requests over HTTP, its message one of gRPC."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import httpx
from pydantic import ValidationError
from turnscore_wire import ERROR_TABLE, ErrorReply

from turnscore_client._calls import ENDPOINTS, Endpoint
from turnscore_client._errors import needs_extra
from turnscore_client._grpc import status_error

with needs_extra("grpc", "a mock over gRPC"):
    import grpc
    from google.protobuf.any_pb2 import Any as AnyMessage
    from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

_ENDPOINTS = {endpoint.rpc: endpoint for endpoint in ENDPOINTS}
# What a gRPC library makes of an HTTP status (gRPC, HTTP to gRPC Status Code Mapping); of any other UNKNOWN.
_PROXY_CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    **dict.fromkeys((429, 502, 503, 504), grpc.StatusCode.UNAVAILABLE),
}


class MockGrpcChannel:
    """A channel of gRPC to the mock that this transport reaches; its calls raise an AioRpcError for a refusal."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.open_stream = transport.open_stream

    def unary_unary(self, method: str) -> Any:
        """What a client calls with a message, for a message."""
        return partial(self._answer, _ENDPOINTS[method.rpartition("/")[2]])

    def _answer(self, endpoint: Endpoint[Any], data: bytes, *, metadata: Sequence[tuple[str, str]], **_: Any) -> Any:
        message = getattr(turnscore_pb2, endpoint.request_message).FromString(data)
        fields = None if endpoint.request_type is None else to_fields(message)
        url = f"http://turnscore.test{endpoint.path}"
        request = httpx.Request(endpoint.method, url, headers=list(metadata), json=fields)
        try:
            response = self._transport.handle_request(request)
        except httpx.ConnectError as error:
            raise status_error(grpc.StatusCode.UNAVAILABLE, str(error)) from None
        if response.status_code != 200:
            raise _refusal(response)
        try:
            return to_message(endpoint.reply_type.model_validate_json(response.content)).SerializeToString()
        except ValidationError:
            return response.content

    def close(self) -> Any:
        """Has nothing to close."""


class AsyncMockGrpcChannel(MockGrpcChannel):
    """The same for asyncio: what a call or `close` returns is awaited."""

    async def _answer(self, *args: Any, **kwargs: Any) -> bytes:
        data: bytes = super()._answer(*args, **kwargs)
        return data

    async def close(self) -> None:
        """Has nothing to close."""


def _refusal(response: httpx.Response) -> grpc.aio.AioRpcError:
    try:
        reply = ErrorReply.model_validate_json(response.content)
    except ValidationError:
        code = _PROXY_CODES.get(response.status_code, grpc.StatusCode.UNKNOWN)
        return status_error(code, f"the answer has the HTTP status {response.status_code}")
    code = grpc.StatusCode[ERROR_TABLE[reply.error.code].grpc_code]
    details = AnyMessage()
    details.Pack(to_message(reply))
    status = turnscore_pb2.Status(code=code.value[0], message=reply.error.message, details=[details])
    trailers: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", status.SerializeToString())]
    if response.headers.get("retry-after", "").isdecimal():
        trailers.append(("grpc-retry-pushback-ms", f"{1000 * int(response.headers['retry-after'])}"))
    return status_error(code, reply.error.message, trailers)

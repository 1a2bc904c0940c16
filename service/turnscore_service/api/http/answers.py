"""HTTP answers: how replies, errors and request ids stand in a response, and what a connection says of its caller."""

from collections.abc import Mapping

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Scope
from turnscore_wire import ERROR_TABLE, ErrorCode, ErrorReply

from turnscore_service.api.boundary import Answer, take_request_id
from turnscore_service.api.page.web_pages import CONTENT_TYPE_FIELD
from turnscore_service.auth.access import FORWARDED_KEY, sent_key

HEADERS_FIELD = "headers"
_NARROWER: dict[tuple[ErrorCode, str | None], int] = {
    (ErrorCode.INVALID_REQUEST, CONTENT_TYPE_FIELD): 415,  # RFC 9110, 15.5.16
    (ErrorCode.TOO_LARGE, HEADERS_FIELD): 431,  # RFC 6585, 5
}
REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID_NAME = REQUEST_ID_HEADER.encode()
_REQUEST_ID = "turnscore.request_id"
"""The key of a request's id in its ASGI scope."""


_JSON = (b"content-type", b"application/json")


class JsonResponse(Response):
    """A response of finished bytes."""

    def __init__(self, body: bytes, status_code: int = 200) -> None:
        """Takes the body as it is."""
        self.body = body
        self.status_code = status_code
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), _JSON]


def read_headers(scope: Scope) -> dict[str, str]:
    """A request's headers by name, in lower case; of several with one name the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def request_id_of(scope: Scope, headers: Mapping[str, str] | None = None) -> str:
    """The id of a request with these headers, taken from them or drawn once."""
    known: str | None = scope.get(_REQUEST_ID)
    if known is None:
        sent = (read_headers(scope) if headers is None else headers).get(REQUEST_ID_HEADER)
        known = scope[_REQUEST_ID] = take_request_id(sent)
    return known


def sender_of(
    scope: Scope, headers: Mapping[str, str], offered_key: str | None = None
) -> tuple[str | None, str, str | None]:
    """What there is to know a caller by: the key, the address of the other end, and whom that says it forwards."""
    client = scope.get("client")
    forwarded = None
    if FORWARDED_KEY in headers:
        key = FORWARDED_KEY.encode()
        forwarded = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == key) or None
    return sent_key(headers) or offered_key, client[0] if client else "", forwarded


def send_answer(answered: Answer, request_id: str) -> Response:
    """The reply, or the error with its status, and Retry-After or WWW-Authenticate where they belong."""
    response = encode_reply(answered.reply)
    response.raw_headers.append((_REQUEST_ID_NAME, request_id.encode()))
    if answered.code is not None:
        response.status_code = _status_of(answered)
    if answered.code == ErrorCode.UNAUTHENTICATED:
        response.headers["www-authenticate"] = 'Bearer realm="turnscore"'
    if answered.retry_after_ms is not None:
        response.headers["retry-after"] = str(-(-answered.retry_after_ms // 1000))
    return response


def _status_of(answered: Answer) -> int:
    """The table's; or a narrower one for a part of the request that is no field of any call."""
    assert answered.code is not None
    field = answered.reply.error.field if isinstance(answered.reply, ErrorReply) else None
    return _NARROWER.get((answered.code, field), ERROR_TABLE[answered.code].http_status)


def encode_reply(reply: BaseModel) -> Response:
    """The reply as JSON, with status 200."""
    return JsonResponse(reply.__pydantic_serializer__.to_json(reply))

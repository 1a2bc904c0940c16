"""HTTP answers: how replies, errors and request ids stand in a response, and what a connection says of its caller."""

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.requests import HTTPConnection
from turnscore_wire import ERROR_TABLE, ErrorCode, ErrorReply

from turnscore_service.doors.boundary import Answer, take_request_id
from turnscore_service.doors.web_pages import CONTENT_TYPE_FIELD
from turnscore_service.keys.access import FORWARDED_KEY, sent_key

HEADERS_FIELD = "headers"
_NARROWER: dict[tuple[ErrorCode, str | None], int] = {
    (ErrorCode.INVALID_REQUEST, CONTENT_TYPE_FIELD): 415,  # RFC 9110, 15.5.16
    (ErrorCode.TOO_LARGE, HEADERS_FIELD): 431,  # RFC 6585, 5
}
REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID = "turnscore.request_id"
"""The key of a request's id in its ASGI scope."""


def request_id_of(request: Request) -> str:
    """The request's id, taken from its header or drawn once."""
    known: str | None = request.scope.get(_REQUEST_ID)
    if known is None:
        known = request.scope[_REQUEST_ID] = take_request_id(request.headers.get(REQUEST_ID_HEADER))
    return known


def sender_of(connection: HTTPConnection, offered_key: str | None = None) -> tuple[str | None, str, str | None]:
    """What there is to know a caller by: the key, the address of the other end, and whom that says it forwards."""
    headers = connection.headers
    peer = connection.client.host if connection.client else ""
    return sent_key(headers) or offered_key, peer, ",".join(headers.getlist(FORWARDED_KEY)) or None


def send_answer(answered: Answer, request_id: str) -> Response:
    """The reply, or the error with its status, and Retry-After or WWW-Authenticate where they belong."""
    response = encode_reply(answered.reply)
    response.headers[REQUEST_ID_HEADER] = request_id
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
    return Response(reply.model_dump_json(), media_type="application/json")

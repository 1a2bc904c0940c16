"""HTTP answers: how replies and errors, and the request id that goes with them, stand in a response."""

from fastapi import Request, Response
from pydantic import BaseModel
from turnscore_wire import ERROR_TABLE, ErrorCode

from turnscore_service.boundary import Answer, take_request_id

REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID = "turnscore.request_id"
"""Where a request's id stands in its ASGI scope."""


def request_id_of(request: Request) -> str:
    """The request's id, taken from its header or drawn once."""
    known: str | None = request.scope.get(_REQUEST_ID)
    if known is None:
        known = request.scope[_REQUEST_ID] = take_request_id(request.headers.get(REQUEST_ID_HEADER))
    return known


def send_answer(answered: Answer, request_id: str) -> Response:
    """The reply, or the error with its status, and Retry-After or WWW-Authenticate where they belong."""
    response = encode_reply(answered.reply)
    response.headers[REQUEST_ID_HEADER] = request_id
    if answered.code is not None:
        response.status_code = ERROR_TABLE[answered.code].http_status
    if answered.code == ErrorCode.UNAUTHENTICATED:
        response.headers["www-authenticate"] = 'Bearer realm="turnscore"'
    if answered.retry_after_ms is not None:
        response.headers["retry-after"] = str(-(-answered.retry_after_ms // 1000))
    return response


def encode_reply(reply: BaseModel) -> Response:
    """The reply as JSON, with status 200."""
    return Response(reply.model_dump_json(), media_type="application/json")

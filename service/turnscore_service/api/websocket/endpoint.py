"""Serves live conversations at /v1/conversations, with messages as JSON text.

A refused handshake gets an HTTP answer in the one error shape. A conversation that the service ends gets its error as
the last message and closes with 4000 + the error's HTTP status.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect
from turnscore_core.errors import CallerLeftError, InvalidRequestError, UnknownPathError
from turnscore_wire import ERROR_TABLE, ConversationMessage, ConversationReply, ErrorDetail, ErrorReply, Limits

from turnscore_service.api.calls import CONVERSATION, RequestScope, decode, refuse, take_request_id
from turnscore_service.api.http.exchange import REQUEST_ID_HEADER, HttpExchange, JsonResponse, check_page, sender_of
from turnscore_service.conversations.session import Received
from turnscore_service.lifecycle.runtime import Runtime

PATH = "/v1/conversations"
# Named in the handshake by callers that offer subprotocols at all; one that offers none gets none.
SUBPROTOCOL = "turnscore.v1"
KEY_SUBPROTOCOL = "turnscore.key."  # offered with an API key behind it by pages, which cannot set headers; never chosen
_CLOSE_CODE_BASE = 4000  # RFC 6455, 7.4.2: 4000 to 4999 are for private use


async def serve(runtime: Runtime, websocket: WebSocket) -> None:
    """Serves one connection, from the handshake to the end of its conversation."""
    headers, settings = websocket.headers, runtime.settings
    request_id = take_request_id(headers.get(REQUEST_ID_HEADER))
    is_open = False
    with suppress(CallerLeftError):  # the connection is gone: there is nothing to close
        if websocket.scope["path"] != PATH:
            await _refuse(websocket, refuse(UnknownPathError("there is nothing at this path"), request_id))
            return
        with RequestScope(runtime, "http", CONVERSATION, request_id, headers) as request:
            check_page(headers, settings.http)
            runtime.access.admit(*sender_of(websocket.scope, headers, _offered_key(websocket)))
            runtime.pipeline()  # raises what keeps it from being there
            runtime.conversations.require_room()
            await _accept(websocket, request_id)
            is_open = True
            channel = _JsonChannel(websocket, settings.limits)
            await runtime.conversations.hold(runtime.pipeline, channel, request_id, request.trace)
        if isinstance(reply := request.answer, ErrorReply):
            await (_end(websocket, reply.error) if is_open else _refuse(websocket, reply))


async def explain(exchange: HttpExchange) -> Response:
    """A live conversation over a WebSocket (RFC 6455): ConversationMessages in, ConversationReplies out."""
    return exchange.refuse(InvalidRequestError("this path is a WebSocket: connect to it with ws:// or wss://"))


class _JsonChannel:
    """One message a frame, as JSON; a binary frame is read as UTF-8."""

    def __init__(self, websocket: WebSocket, limits: Limits) -> None:
        self._websocket = websocket
        self._limits = limits

    async def receive(self) -> Received:
        frame = await self._websocket.receive()
        if frame["type"] == "websocket.disconnect":
            raise CallerLeftError
        body = frame.get("bytes") or (frame.get("text") or "").encode(errors="surrogatepass")
        return Received(len(body), partial(decode, ConversationMessage, body, self._limits))

    async def send(self, reply: ConversationReply) -> None:
        with _while_connected():
            await self._websocket.send_text(reply.model_dump_json(exclude_unset=True))


@contextmanager
def _while_connected() -> Iterator[None]:
    """Raises CallerLeftError where the connection is gone."""
    try:
        yield
    except (WebSocketDisconnect, RuntimeError):
        raise CallerLeftError from None


async def _accept(websocket: WebSocket, request_id: str) -> None:
    offered = websocket.scope.get("subprotocols", [])
    with _while_connected():
        await websocket.accept(
            subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None,
            headers=[(REQUEST_ID_HEADER.encode(), request_id.encode())],
        )


async def _end(websocket: WebSocket, error: ErrorDetail) -> None:
    with _while_connected():
        await websocket.send_text(ConversationReply(error=error).model_dump_json(exclude_unset=True))
        await websocket.close(_CLOSE_CODE_BASE + ERROR_TABLE[error.code].http_status, error.code.value)


async def _refuse(websocket: WebSocket, reply: ErrorReply) -> None:
    with _while_connected():
        await websocket.send_denial_response(JsonResponse(reply, reply.request_id))


def _offered_key(websocket: WebSocket) -> str | None:
    for offered in websocket.scope.get("subprotocols", []):
        if offered.startswith(KEY_SUBPROTOCOL):
            return str(offered.removeprefix(KEY_SUBPROTOCOL))
    return None

"""The HTTP door: decodes, calls the pipeline, encodes. Its OpenAPI document comes from the wire types."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from turnscore_wire import (
    BODY_FIELD,
    ErrorCode,
    HealthReply,
    ModelsReply,
)

from turnscore_service.deadline import Deadline
from turnscore_service.doors.boundary import answer, refuse
from turnscore_service.doors.calls import CALLS, Call
from turnscore_service.doors.http_answers import REQUEST_ID_HEADER, encode_reply, request_id_of, send_answer, sender_of
from turnscore_service.doors.http_schema import add_wire_schemas, describe_errors, describe_scoring_errors, takes
from turnscore_service.doors.web_pages import check_content_type, check_page
from turnscore_service.doors.websocket_door import add_conversations
from turnscore_service.errors import (
    CallerLeftError,
    DeadlineExceededError,
    FailedScoringError,
    InvalidRequestError,
    OverloadedError,
    ScoringError,
    TooLargeError,
    UnknownPathError,
)
from turnscore_service.keys.access import API_KEY_KEY, AUTHORIZATION_KEY
from turnscore_service.metrics import registry
from turnscore_service.path.loop_time import LARGE_BYTES
from turnscore_service.process.runtime import Runtime

_NOWHERE = "/%"
"""Stands for a path with control characters: to the router `/v1/models` and a line's end would be `/v1/models`."""
Endpoint = Callable[[Request], Awaitable[Response]]


class Shortcut:
    """Hands POST requests to the paths it knows to their endpoints, past the router and what stands before it. ASGI.

    Those take a tenth of the CPU that a request costs beside tokenizing and inference (measured); the paths stay in the
    router for the OpenAPI document and for other methods.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Endpoint]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life cycle."""
        if scope["type"] != "lifespan" and not scope["path"].isprintable():
            scope = {**scope, "path": _NOWHERE}
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._endpoints.get(scope["path"]) if is_post else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def create_http_door(runtime: Runtime) -> FastAPI:
    """The ASGI app of the HTTP door."""
    app: FastAPI = FastAPIOffline(
        title="turnscore",
        version="1",
        description="How good is each turn of a chatbot? Scores without a reference answer, while the dialogue runs.",
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url="/docs/oauth2-redirect",
        swagger_ui_parameters={"tryItOutEnabled": True},
    )
    _add_scoring(app, runtime)
    _add_operations(app, runtime)
    add_conversations(app, runtime)
    _add_refusals(app)
    add_wire_schemas(app)
    return app


def _add_scoring(app: FastAPI, runtime: Runtime) -> None:
    def deadline_of(deadline_ms: int | None) -> Deadline:
        return Deadline.after_ms(deadline_ms or runtime.settings.default_deadline_ms)

    endpoints: dict[str, Endpoint] = {}

    def add(call: Call) -> None:
        async def endpoint(request: Request) -> Response:
            async def work(request_id: str, body: bytes) -> BaseModel:
                slices = runtime.loop_time.slices(is_large=len(body) >= LARGE_BYTES)
                wanted = await call.decode(body, runtime.settings.limits, slices)
                try:
                    reply = await call.run(runtime, wanted, request_id, deadline_of)
                except OverloadedError:
                    runtime.answered.note(body, is_answered=False)
                    raise
                runtime.answered.note(body, is_answered=True)
                return reply

            return await _respond(request, runtime, call.name, work, takes_json=True)

        path = f"/v1/{call.name}"
        endpoints[path] = endpoint
        app.post(
            path,
            name=call.name,
            description=call.summary,
            response_model=call.reply_type,
            responses=describe_scoring_errors(*call.own_errors),
            openapi_extra=takes(call.request_type),
        )(endpoint)

    for call in CALLS:
        add(call)
    app.add_middleware(Shortcut, endpoints=endpoints)
    if origins := runtime.settings.http.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("content-type", AUTHORIZATION_KEY, API_KEY_KEY, REQUEST_ID_HEADER),
            expose_headers=(REQUEST_ID_HEADER, "retry-after"),
        )


def _add_operations(app: FastAPI, runtime: Runtime) -> None:
    scraping = asyncio.Lock()
    not_ready, no_key = describe_errors(ErrorCode.NOT_READY), describe_errors(ErrorCode.UNAUTHENTICATED)

    @app.get("/v1/models", response_model=ModelsReply, responses={**no_key, **not_ready})
    async def models(request: Request) -> Response:
        """The loaded models, and how much one request may carry."""

        async def work(request_id: str, _body: bytes) -> BaseModel:
            return runtime.models(request_id)

        return await _respond(request, runtime, "models", work)

    @app.head("/livez", include_in_schema=False)
    @app.get("/livez", response_model=HealthReply)
    async def livez() -> Response:
        """Whether the process answers at all."""
        return encode_reply(HealthReply(status="alive"))

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", response_model=HealthReply, responses=not_ready)
    async def readyz(request: Request) -> Response:
        """Whether requests should be sent here: models loaded and proved, not shutting down."""
        if runtime.health.is_ready:
            return encode_reply(HealthReply(status="ready"))
        return send_answer(refuse(runtime.health.not_ready(), request_id_of(request)), request_id_of(request))

    @app.get("/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}, **no_key})
    async def metrics(request: Request) -> Response:
        """Prometheus metrics of all worker processes."""
        try:
            check_page(request.headers, runtime.settings.http)
            if runtime.settings.auth.metrics_need_key:
                runtime.access.admit(*sender_of(request))
        except ScoringError as error:
            return send_answer(refuse(error, request_id_of(request)), request_id_of(request))
        async with scraping:  # merging many workers' files takes a while: 10 ms for three (measured)
            scraped = await asyncio.to_thread(lambda: generate_latest(registry()))
        return Response(scraped, media_type=CONTENT_TYPE_LATEST)


def _add_refusals(app: FastAPI) -> None:
    """Gives unknown paths and methods the one error shape."""

    @app.exception_handler(Exception)
    async def refuse_unforeseen(request: Request, _: Exception) -> Response:
        error = FailedScoringError("something failed inside turnscore; its log says what")
        return send_answer(refuse(error, request_id_of(request)), request_id_of(request))

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        request_id = request_id_of(request)
        if error.status_code == 405:
            response = send_answer(
                refuse(InvalidRequestError("this path takes another method"), request_id), request_id
            )
            response.status_code = 405  # RFC 9110 wants this status, and Allow beside it, for a known path
            response.headers.update(error.headers or {})
            return response
        return send_answer(refuse(UnknownPathError("there is nothing at this path"), request_id), request_id)


async def _respond(
    request: Request,
    runtime: Runtime,
    call: str,
    work: Callable[[str, bytes], Awaitable[BaseModel]],
    *,
    takes_json: bool = False,
) -> Response:
    request_id = request_id_of(request)

    async def read_and_work() -> BaseModel:
        runtime.access.admit(*sender_of(request))
        check_page(request.headers, runtime.settings.http)
        if takes_json:
            check_content_type(request.headers)
        try:
            async with asyncio.timeout(runtime.settings.default_deadline_ms / 1000):
                body = await _read_body(request, runtime.settings.limits.max_body_bytes)
        except TimeoutError:
            raise DeadlineExceededError("the body did not arrive in time", field=BODY_FIELD) from None
        return await _unless_disconnected(request, work(request_id, body))

    try:
        answered = await answer("http", call, request_id, read_and_work, log=runtime.settings.log_requests)
    except CallerLeftError:
        return Response()  # goes nowhere: the connection is closed
    return send_answer(answered, request_id)


async def _read_body(request: Request, most: int) -> bytes:
    """The whole body. Raises TooLargeError as soon as it is known to be longer than `most` bytes."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise TooLargeError(f"the body has {announced} bytes; at most {most} are allowed", field=BODY_FIELD)
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise TooLargeError(f"the body has more than {most} bytes", field=BODY_FIELD)
            chunks.append(chunk)
    except ClientDisconnect:
        raise CallerLeftError from None
    return b"".join(chunks)


async def _unless_disconnected(request: Request, work: Awaitable[BaseModel]) -> BaseModel:
    """The work's result; CallerLeftError if the caller leaves first, and the work then stops."""
    working = asyncio.current_task()
    assert working is not None
    has_left = False

    def leave(_: object) -> None:
        nonlocal has_left
        has_left = True
        working.cancel()

    watching = asyncio.ensure_future(request.receive())
    watching.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and not working.uncancel():
            raise CallerLeftError from None
        raise
    finally:
        watching.remove_done_callback(leave)
        watching.cancel()

"""Serves the HTTP API as one ASGI application: decodes, calls the pipeline, encodes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from turnscore_core.deadline import Deadline
from turnscore_core.errors import (
    CallerLeftError,
    FailedScoringError,
    InvalidRequestError,
    OverloadedError,
    ScoringError,
    UnknownPathError,
)
from turnscore_wire import (
    ErrorCode,
    HealthReply,
    ModelsReply,
)

from turnscore_service.api.boundary import answer, refuse
from turnscore_service.api.calls import CALLS, Call
from turnscore_service.api.http.exchange import (
    REQUEST_ID_HEADER,
    HttpExchange,
    check_content_type,
    check_page,
    encode_reply,
    request_id_of,
    send_answer,
    sender_of,
)
from turnscore_service.api.http.schema import add_wire_schemas, describe_errors, describe_scoring_errors, takes
from turnscore_service.api.page import add_page
from turnscore_service.api.websocket.endpoint import add_conversations
from turnscore_service.auth.access import API_KEY_KEY, AUTHORIZATION_KEY
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.metrics import registry
from turnscore_service.scheduling.fairness import LARGE_BYTES

_NOWHERE = "/%"
"""Stands for a path with control characters: to the router `/v1/models` and a line's end would be `/v1/models`."""
_LOGGER = logging.getLogger("turnscore.http")
Endpoint = Callable[[HttpExchange], Awaitable[Response]]


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
        endpoint = _endpoint_for(scope, self._endpoints)
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        response = await endpoint(HttpExchange(scope, receive))
        await response(scope, receive, send)


class HttpDoor:
    """FastAPI's app, and past it the calls: they go straight from the connection to `endpoints` and back. ASGI."""

    def __init__(self, app: FastAPI, endpoints: Mapping[str, Endpoint]) -> None:
        self.app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life cycle."""
        endpoint = _endpoint_for(scope, self._endpoints)
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        exchange = HttpExchange(scope, receive)
        try:
            response = await endpoint(exchange)
        except Exception:
            _LOGGER.exception("unforeseen error")
            response = _refuse_unforeseen(scope)
        if not exchange.send(response):
            await response(scope, receive, send)


def _endpoint_for(scope: Scope, endpoints: Mapping[str, Endpoint]) -> Endpoint | None:
    return endpoints.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None


def create_http_door(runtime: Runtime) -> HttpDoor:
    """The HTTP door."""
    app: FastAPI = FastAPIOffline(
        title="turnscore",
        version="1",
        description="How good is each turn of a chatbot? Scores without a reference answer, while the dialogue runs.",
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url="/docs/oauth2-redirect",
        swagger_ui_parameters={"tryItOutEnabled": True},
    )
    endpoints = _add_scoring(app, runtime)
    _add_operations(app, runtime)
    add_page(app, runtime.settings)
    add_conversations(app, runtime)
    _add_refusals(app)
    add_wire_schemas(app)
    return HttpDoor(app, endpoints)


def _add_scoring(app: FastAPI, runtime: Runtime) -> Mapping[str, Endpoint]:
    """Adds the calls; returns those that may pass the app by."""

    def deadline_of(deadline_ms: int | None) -> Deadline:
        return Deadline.after_ms(deadline_ms or runtime.settings.default_deadline_ms)

    endpoints: dict[str, Endpoint] = {}

    def add(call: Call) -> None:
        async def endpoint(exchange: HttpExchange) -> Response:
            async def work(request_id: str, body: bytes) -> BaseModel:
                slices = runtime.cooperative.slices(is_large=len(body) >= LARGE_BYTES)
                wanted = await call.decode(body, runtime.settings.limits, slices)
                try:
                    reply = await call.run(runtime, wanted, request_id, deadline_of)
                except OverloadedError:
                    runtime.answered.note(body, is_answered=False)
                    raise
                runtime.answered.note(body, is_answered=True)
                return reply

            return await _respond(exchange, runtime, call.name, work, takes_json=True)

        async def route(request: Request) -> Response:
            return await endpoint(HttpExchange(request.scope, request.receive))

        path = f"/v1/{call.name}"
        endpoints[path] = endpoint
        app.post(
            path,
            name=call.name,
            description=call.summary,
            response_model=call.reply_type,
            responses=describe_scoring_errors(*call.own_errors),
            openapi_extra=takes(call.request_type),
        )(route)

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
        return {}  # browsers have to be told more than the answers
    return endpoints


def _add_operations(app: FastAPI, runtime: Runtime) -> None:
    scraping = asyncio.Lock()
    not_ready, no_key = describe_errors(ErrorCode.NOT_READY), describe_errors(ErrorCode.UNAUTHENTICATED)

    @app.get("/v1/models", response_model=ModelsReply, responses={**no_key, **not_ready})
    async def models(request: Request) -> Response:
        """The loaded models, and how much one request may carry."""

        async def work(request_id: str, _body: bytes) -> BaseModel:
            return runtime.models(request_id)

        return await _respond(HttpExchange(request.scope, request.receive), runtime, "models", work)

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
        return send_answer(
            refuse(runtime.health.not_ready(), request_id_of(request.scope)), request_id_of(request.scope)
        )

    @app.get("/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}, **no_key})
    async def metrics(request: Request) -> Response:
        """Prometheus metrics of all worker processes."""
        try:
            check_page(request.headers, runtime.settings.http)
            if runtime.settings.auth.metrics_need_key:
                runtime.access.admit(*sender_of(request.scope, request.headers))
        except ScoringError as error:
            return send_answer(refuse(error, request_id_of(request.scope)), request_id_of(request.scope))
        async with scraping:  # merging many workers' files takes a while: 10 ms for three (measured)
            scraped = await asyncio.to_thread(lambda: generate_latest(registry()))
        return Response(scraped, media_type=CONTENT_TYPE_LATEST)


def _add_refusals(app: FastAPI) -> None:
    """Gives unknown paths and methods the one error shape."""

    @app.exception_handler(Exception)
    async def refuse_unforeseen(request: Request, _: Exception) -> Response:
        return _refuse_unforeseen(request.scope)

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        request_id = request_id_of(request.scope)
        if error.status_code == 405:
            response = send_answer(
                refuse(InvalidRequestError("this path takes another method"), request_id), request_id
            )
            response.status_code = 405  # RFC 9110 wants this status, and Allow beside it, for a known path
            response.headers.update(error.headers or {})
            return response
        return send_answer(refuse(UnknownPathError("there is nothing at this path"), request_id), request_id)


def _refuse_unforeseen(scope: Scope) -> Response:
    error = FailedScoringError("something failed inside turnscore; its log says what")
    return send_answer(refuse(error, request_id_of(scope)), request_id_of(scope))


async def _respond(
    exchange: HttpExchange,
    runtime: Runtime,
    call: str,
    work: Callable[[str, bytes], Awaitable[BaseModel]],
    *,
    takes_json: bool = False,
) -> Response:
    scope, headers, settings = exchange.scope, exchange.headers, runtime.settings
    request_id = request_id_of(scope, headers)

    async def read_and_work() -> BaseModel:
        runtime.access.admit(*sender_of(scope, headers))
        check_page(headers, settings.http)
        if takes_json:
            check_content_type(headers)
        body = await exchange.read_body(settings.limits.max_body_bytes, settings.default_deadline_ms / 1000)
        return await exchange.unless_left(work(request_id, body))

    trace = runtime.trace("http", call, headers)
    try:
        answered = await answer(
            "http", call, request_id, read_and_work, log=settings.log_requests, slow=runtime.slow, trace=trace
        )
    except CallerLeftError:
        return Response()  # goes nowhere: the connection is closed
    return send_answer(answered, request_id)

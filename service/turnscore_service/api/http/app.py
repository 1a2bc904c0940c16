"""Serves the HTTP API as one ASGI application.

Every request goes straight from its connection to its endpoint: a web framework's routing took a tenth of the CPU that
a request costs besides tokenizing and inference (measured). FastAPI serves the OpenAPI document and /docs.
"""

import asyncio
import logging
from dataclasses import replace

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from turnscore_core.errors import CallerLeftError, FailedScoringError, OverloadedError, ScoringError, UnknownPathError
from turnscore_core.model_set import ModelSet, component_scorers
from turnscore_core.scoring import Deadline
from turnscore_wire import ErrorCode, HealthReply, ModelsReply

from turnscore_service.api.calls import CALLS, RequestScope, ServiceCall
from turnscore_service.api.http import schema
from turnscore_service.api.http.exchange import (
    REQUEST_ID_HEADER,
    HttpExchange,
    JsonResponse,
    check_page,
    sender_of,
)
from turnscore_service.api.http.rerank import RERANK
from turnscore_service.api.page import page_endpoints
from turnscore_service.api.websocket import endpoint as websocket
from turnscore_service.auth.access import API_KEY_KEY, AUTHORIZATION_KEY, Caller
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.metrics import SHED, registry
from turnscore_service.scheduling.admission import KNOWN_REQUEST
from turnscore_service.scheduling.fairness import LARGE_BYTES, TimeSlice
from turnscore_service.scheduling.pipeline import SIMILARITY

_LOGGER = logging.getLogger("turnscore.http")


class HttpApi:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._scraping = asyncio.Lock()
        rerank = self._scoring(RERANK)
        at_v2 = replace(rerank, path="/v2/rerank", group="")  # where Cohere's second client posts the same
        scoring = [*map(self._scoring, CALLS), rerank, at_v2]
        endpoints = [*scoring, *self._operations(), *page_endpoints(runtime.settings)]
        self._endpoints = {each.path: each for each in endpoints}
        self.documents = schema.create_documents(endpoints)
        self._allows_origins = bool(runtime.settings.http.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await websocket.serve(self._runtime, WebSocket(scope, receive, send))
            return
        exchange = HttpExchange(scope, receive)
        endpoint = self._endpoints.get(scope["path"])
        try:
            if endpoint is None:
                # With control characters, "/docs" and a line's end would be "/docs" to the router.
                if scope["path"].isprintable():
                    await self.documents(scope, receive, send)
                    return
                raise UnknownPathError("there is nothing at this path")
            if scope["method"] in endpoint.methods:
                response = await endpoint.serve(exchange)
            else:
                response = schema.refuse_method(exchange, ", ".join(endpoint.methods))
        except ScoringError as error:
            response = exchange.refuse(error)
        except CallerLeftError:
            return  # the connection is closed
        except Exception:
            _LOGGER.exception("unforeseen error")
            response = exchange.refuse(FailedScoringError())
        # CORS adds headers to ASGI's messages.
        if self._allows_origins or not exchange.send(response):
            await response(scope, receive, send)

    def _scoring(self, call: ServiceCall) -> schema.DocumentedEndpoint:
        runtime, settings = self._runtime, self._runtime.settings

        async def serve(exchange: HttpExchange) -> Response:
            with RequestScope(runtime, "http", call.name, exchange.request_id, exchange.headers) as request:
                caller = runtime.access.admit(*sender_of(exchange.scope, exchange.headers))
                check_page(exchange.headers, settings.http)
                body = await exchange.read_body(settings.limits.max_body_bytes, settings.default_deadline_ms / 1000)
                _shed(runtime, call.name, body, caller)
                with exchange:  # from here on a caller who leaves ends the work
                    slices = TimeSlice(runtime.cooperative, is_large=len(body) >= LARGE_BYTES)
                    wanted = await call.read(body, settings.limits, slices)
                    deadline = Deadline.after_ms(getattr(wanted, "deadline_ms", None) or settings.default_deadline_ms)
                    if (pipeline := runtime.served) is None:
                        raise runtime.health.not_ready()
                    try:
                        request.answer = await call.do(pipeline, wanted, exchange.request_id, deadline)
                    except OverloadedError:
                        runtime.answered.note(body, is_answered=False)
                        raise
                    runtime.answered.note(body, is_answered=True)
            return JsonResponse(request.answer, exchange.request_id)

        return schema.DocumentedEndpoint(
            path=f"/v1/{call.name}",
            serve=serve,
            methods=("POST",),
            group="similarity" if call.name == SIMILARITY else "scoring",
            title=call.title,
            described={
                "description": call.summary,
                "response_model": call.reply_type,
                "responses": schema.describe_scoring_errors(*call.own_errors),
                "openapi_extra": schema.takes(call.request_type),
            },
        )

    def _operations(self) -> list[schema.DocumentedEndpoint]:
        not_ready = schema.describe_errors(ErrorCode.NOT_READY)
        no_key = schema.describe_errors(ErrorCode.UNAUTHENTICATED)
        return [
            schema.DocumentedEndpoint(
                path="/v1/models",
                serve=self._models,
                group="models",
                title="List the models",
                described={"response_model": ModelsReply, "responses": {**no_key, **not_ready}},
            ),
            schema.DocumentedEndpoint(
                path=websocket.PATH,
                serve=websocket.explain,
                group="conversations",
                title="Hold a conversation",
                described={"responses": schema.describe_conversations()},
            ),
            schema.DocumentedEndpoint(
                path="/livez",
                serve=self._livez,
                methods=("GET", "HEAD"),
                group="operations",
                title="Is it alive?",
                described={"response_model": HealthReply},
            ),
            schema.DocumentedEndpoint(
                path="/readyz",
                serve=self._readyz,
                methods=("GET", "HEAD"),
                group="operations",
                title="Is it ready?",
                described={"response_model": HealthReply, "responses": not_ready},
            ),
            schema.DocumentedEndpoint(
                path="/metrics",
                serve=self._metrics,
                group="operations",
                title="Prometheus metrics",
                described={
                    "response_class": Response,
                    "responses": {200: {"content": {CONTENT_TYPE_LATEST: {}}}, **no_key},
                },
            ),
        ]

    async def _models(self, exchange: HttpExchange) -> Response:
        """The loaded models, and how much one request may carry."""
        with RequestScope(self._runtime, "http", "models", exchange.request_id, exchange.headers) as request:
            self._runtime.access.admit(*sender_of(exchange.scope, exchange.headers))
            check_page(exchange.headers, self._runtime.settings.http)
            request.answer = self._runtime.models(exchange.request_id)
        return JsonResponse(request.answer, exchange.request_id)

    async def _livez(self, _: HttpExchange) -> Response:
        """Whether the process answers at all."""
        return Response(HealthReply(status="alive").model_dump_json(), media_type="application/json")

    async def _readyz(self, exchange: HttpExchange) -> Response:
        """Whether requests should be sent here: models loaded and checked, not shutting down."""
        if self._runtime.health.is_ready:
            return Response(HealthReply(status="ready").model_dump_json(), media_type="application/json")
        raise self._runtime.health.not_ready()

    async def _metrics(self, exchange: HttpExchange) -> Response:
        """Prometheus metrics of all worker processes."""
        check_page(exchange.headers, self._runtime.settings.http)
        if self._runtime.settings.auth.metrics_need_key:
            self._runtime.access.admit(*sender_of(exchange.scope, exchange.headers))
        async with self._scraping:  # merging many workers' files takes a while: 10 ms for three (measured)
            scraped = await asyncio.to_thread(lambda: generate_latest(registry()))
        return Response(scraped, media_type=CONTENT_TYPE_LATEST)


def create_app(runtime: Runtime) -> ASGIApp:
    """The API, for pages of other origins too where the settings allow some."""
    api = HttpApi(runtime)
    origins = runtime.settings.http.allowed_origins
    if not origins:
        return api
    return CORSMiddleware(
        api,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=("content-type", AUTHORIZATION_KEY, API_KEY_KEY, REQUEST_ID_HEADER),
        expose_headers=(REQUEST_ID_HEADER, "retry-after"),
    )


def _shed(runtime: Runtime, call: str, body: bytes, caller: Caller) -> None:
    """Under a lasting overload, raises OverloadedError for most requests before they are decoded (`Admission`).

    A request that was answered lately in the same bytes is decoded: most likely its scores are cached.
    """
    KNOWN_REQUEST.set(False)
    pipeline = runtime.served
    if pipeline is None or (refusal := pipeline.admission.would_shed(caller.share)) is None:
        return
    if body in runtime.answered:
        KNOWN_REQUEST.set(True)
        return
    models = pipeline.split.model_set_for()
    is_asked = any(asks(models, call, body, each) for each in pipeline.computed_by(refusal.scorer))
    if is_asked and (error := pipeline.admission.shed(caller.share)) is not None:
        SHED.labels("http", call).inc()
        raise error


def asks(models: ModelSet, call: str, body: bytes, scorer: str) -> bool:
    """Whether a body asks this scorer: by its name, or by naming none where it is asked by default.

    A name that is written with JSON's escapes is not found, and the body is decoded.
    """
    encoder = models.encoder.name if models.encoder is not None else None
    if call == SIMILARITY or scorer == encoder:
        return call == SIMILARITY and scorer == encoder
    if f'"{scorer}"'.encode() in body:
        return True
    default = models.ranking if call in ("rank", "rerank") else models.defaults
    is_default = scorer in component_scorers(default, models.combinations)
    choosing = (b'"model"',) if call == "rerank" else (b'"scorers"', b'"weights"')
    return is_default and not any(field in body for field in choosing)

"""Describes the HTTP API: the parts of its OpenAPI document that come from the wire types and the error table."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import turnscore_wire as wire
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from turnscore_core.errors import FailedScoringError, InvalidRequestError, UnknownPathError

from turnscore_service.api.http.exchange import HttpExchange
from turnscore_service.api.http.rerank import RerankRequest
from turnscore_service.auth.access import API_KEY_KEY

_QUESTION = {"speaker": "user", "text": "hi, what did you do today?"}
_VIVID = "i hiked up a volcano and nearly lost my hat. ever been on one?"

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    wire.ScoreRequest: {"context": [_QUESTION], "response": _VIVID},
    wire.BatchRequest: {"items": [{"context": [_QUESTION], "response": text} for text in (_VIVID, "ok.")]},
    wire.DialogueRequest: {
        "turns": [
            _QUESTION,
            {"speaker": "system", "text": _VIVID},
            {"speaker": "user", "text": "no, is that not dangerous?"},
            {"speaker": "system", "text": "not this one, it sleeps. would you like to see some pictures?"},
        ]
    },
    wire.SimilarityRequest: {"texts": ["not much.", _VIVID], "references": ["i went up a mountain.", "nothing."]},
    wire.RankRequest: {"context": [_QUESTION], "candidates": ["ok.", _VIVID, "not much."]},
    RerankRequest: {"query": _QUESTION["text"], "documents": ["ok.", _VIVID], "top_n": 1},
}


_REF = "#/components/schemas/{model}"
_KEY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, where the service asks for one."},
    "apiKey": {"type": "apiKey", "in": "header", "name": API_KEY_KEY, "description": "The same in another header."},
}

_WRONG_MEDIA_TYPE: dict[int | str, dict[str, Any]] = {
    415: {
        "model": wire.ErrorReply,
        "description": f"`{wire.ErrorCode.INVALID_REQUEST}`: the body is not called application/json",
    }
}
_SCORING_ERRORS = tuple(code for code in wire.ErrorCode if code != wire.ErrorCode.NOT_FOUND)


@dataclass(frozen=True, kw_only=True)
class DocumentedEndpoint:
    """One path: what serves it, and how the document describes it."""

    path: str
    serve: Callable[[HttpExchange], Awaitable[Response]]
    methods: tuple[str, ...] = ("GET",)
    group: str = ""  # its group on /docs; a path without one is not in the document
    title: str = ""
    described: Mapping[str, Any] = field(default_factory=dict)  # FastAPI's arguments for its route


def describe_errors(*codes: wire.ErrorCode) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a path: every status it may answer with besides 200."""
    return {
        wire.ERROR_TABLE[code].http_status: {"model": wire.ErrorReply, "description": f"`{code}`"} for code in codes
    }


def describe_scoring_errors(*own: wire.ErrorCode) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a path that takes a body, with those that only it has."""
    return {**describe_errors(*_SCORING_ERRORS, *own), **_WRONG_MEDIA_TYPE}


def takes(request: type[BaseModel]) -> dict[str, Any]:
    """The `openapi_extra` of a path whose body is `request`; the endpoint decodes it itself."""
    content = {"schema": {"$ref": _REF.format(model=request.__name__)}, "example": EXAMPLES[request]}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def describe_conversations() -> dict[int | str, dict[str, Any]]:
    """The `responses` of the WebSocket's path; of the messages, OpenAPI can hold only the schemas."""
    upgrade = {"description": "A WebSocket: JSON messages, `ConversationMessage` in and `ConversationReply` out."}
    codes = (
        wire.ErrorCode.INVALID_REQUEST,
        wire.ErrorCode.UNAUTHENTICATED,
        wire.ErrorCode.OVERLOADED,
        wire.ErrorCode.NOT_READY,
    )
    return {101: upgrade, **describe_errors(*codes)}


def create_documents(endpoints: Iterable[DocumentedEndpoint]) -> FastAPI:
    """The app that serves /docs and /openapi.json; it answers everything else with an error."""
    app: FastAPI = FastAPIOffline(
        title="turnscore",
        version="1",
        description="How good is each turn of a chatbot? Scores without a reference answer, while the dialogue runs.",
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url="/docs/oauth2-redirect",
        swagger_ui_parameters={"tryItOutEnabled": True},
        exception_handlers={HTTPException: _refuse_route, Exception: _refuse_unforeseen},
    )
    for each in endpoints:
        if each.group:
            app.add_api_route(
                each.path,
                _document_only,
                methods=list(each.methods[:1]),
                tags=[each.group],
                summary=each.title,
                operation_id=each.path.rpartition("/")[2],
                **{"description": inspect.getdoc(each.serve), **each.described},
            )
    app.openapi = partial(_openapi, app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return app


def refuse_method(exchange: HttpExchange, allowed: str) -> Response:
    """RFC 9110 wants status 405 and Allow for a known path; 405 stands in no row of the error table."""
    response = exchange.refuse(InvalidRequestError("this path takes another method"))
    response.status_code = 405
    response.headers["allow"] = allowed
    return response


async def _document_only() -> None:
    """Stands for an endpoint that is served without FastAPI."""


async def _refuse_route(request: Request, error: Exception) -> Response:
    exchange = HttpExchange(request.scope, request.receive)
    if isinstance(error, HTTPException) and error.status_code == 405:
        return refuse_method(exchange, (error.headers or {}).get("Allow", "GET"))
    return exchange.refuse(UnknownPathError("there is nothing at this path"))


async def _refuse_unforeseen(request: Request, _: Exception) -> Response:
    return HttpExchange(request.scope, request.receive).refuse(FailedScoringError())


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with the types of requests and messages, and with API keys."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        requests: list[Any] = [(each, "validation") for each in (*EXAMPLES, wire.ConversationMessage)]
        _, definitions = models_json_schema([*requests, (wire.ConversationReply, "serialization")], ref_template=_REF)
        document["components"]["schemas"].update(definitions["$defs"])
        document["components"]["securitySchemes"] = _KEY_SCHEMES
        for path, operations in document["paths"].items():
            if path.startswith("/v1/"):
                for operation in operations.values():
                    operation["security"] = [{}, *({name: []} for name in _KEY_SCHEMES)]
        app.openapi_schema = document
    return app.openapi_schema

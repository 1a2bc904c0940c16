"""Describes the HTTP API: the parts of its OpenAPI document that come from the wire types and the error table."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from turnscore_wire import (
    ERROR_TABLE,
    BatchRequest,
    ConversationMessage,
    ConversationReply,
    DialogueRequest,
    ErrorCode,
    ErrorReply,
    RankRequest,
    ScoreRequest,
    SimilarityRequest,
)

from turnscore_service.auth.access import API_KEY_KEY

_QUESTION = {"speaker": "user", "text": "hi, what did you do today?"}
_VIVID = "i hiked up a volcano and nearly lost my hat. ever been on one?"

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ScoreRequest: {"context": [_QUESTION], "response": _VIVID},
    BatchRequest: {"items": [{"context": [_QUESTION], "response": text} for text in (_VIVID, "ok.")]},
    DialogueRequest: {
        "turns": [
            _QUESTION,
            {"speaker": "system", "text": _VIVID},
            {"speaker": "user", "text": "no, is that not dangerous?"},
            {"speaker": "system", "text": "not this one, it sleeps. would you like to see some pictures?"},
        ]
    },
    SimilarityRequest: {"texts": ["not much.", _VIVID], "references": ["i went up a mountain.", "nothing."]},
    RankRequest: {"context": [_QUESTION], "candidates": ["ok.", _VIVID, "not much."]},
}


_REF = "#/components/schemas/{model}"
_REQUESTS: tuple[type[BaseModel], ...] = (
    ScoreRequest,
    BatchRequest,
    DialogueRequest,
    RankRequest,
    SimilarityRequest,
    ConversationMessage,
)
_MESSAGES: tuple[type[BaseModel], ...] = (ConversationReply,)

_KEY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, where the service asks for one."},
    "apiKey": {"type": "apiKey", "in": "header", "name": API_KEY_KEY, "description": "The same in another header."},
}

_WRONG_MEDIA_TYPE: dict[int | str, dict[str, Any]] = {
    415: {
        "model": ErrorReply,
        "description": f"`{ErrorCode.INVALID_REQUEST}`: the body is not called application/json",
    }
}
_SCORING_ERRORS = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNAUTHENTICATED,
    ErrorCode.TOO_LARGE,
    ErrorCode.OVERLOADED,
    ErrorCode.INTERNAL,
    ErrorCode.NOT_READY,
    ErrorCode.DEADLINE_EXCEEDED,
)


_NAMES: dict[str, tuple[str, str]] = {
    "/v1/score": ("scoring", "Score one turn"),
    "/v1/score_batch": ("scoring", "Score several turns"),
    "/v1/score_dialogue": ("scoring", "Score a dialogue"),
    "/v1/rank": ("scoring", "Rank responses"),
    "/v1/similarity": ("similarity", "Compare texts"),
    "/v1/conversations": ("conversations", "Hold a conversation"),
    "/v1/models": ("models", "List the models"),
    "/livez": ("operations", "Is it alive?"),
    "/readyz": ("operations", "Is it ready?"),
    "/metrics": ("operations", "Prometheus metrics"),
}
"""The group of each path on `/docs`, and its name there; its identifier is the end of the path."""


def describe_errors(*codes: ErrorCode) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a path: every status it may answer with besides 200; a scoring path's when none is named."""
    return {
        ERROR_TABLE[code].http_status: {"model": ErrorReply, "description": f"`{code}`"}
        for code in codes or _SCORING_ERRORS
    }


def describe_scoring_errors(*own: ErrorCode) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a path that takes a body, with those that only it has."""
    return {**describe_errors(*_SCORING_ERRORS, *own), **_WRONG_MEDIA_TYPE}


def takes(request: type[BaseModel]) -> dict[str, Any]:
    """The `openapi_extra` of a path whose body is `request`; the door decodes it itself."""
    content = {"schema": {"$ref": _REF.format(model=request.__name__)}, "example": EXAMPLES[request]}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def describe_conversations() -> dict[int | str, dict[str, Any]]:
    """The `responses` of the WebSocket's path; OpenAPI has no words for the messages, their schemas stand beside it."""
    upgrade = {"description": "A WebSocket: JSON messages, `ConversationMessage` in and `ConversationReply` out."}
    codes = (ErrorCode.INVALID_REQUEST, ErrorCode.UNAUTHENTICATED, ErrorCode.OVERLOADED, ErrorCode.NOT_READY)
    return {101: upgrade, **describe_errors(*codes)}


def add_wire_schemas(app: FastAPI) -> None:
    """Makes the app's OpenAPI document hold the request types too."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, definitions = models_json_schema(
                [
                    *((each, "validation") for each in _REQUESTS),
                    *((each, "serialization") for each in _MESSAGES),
                ],
                ref_template=_REF,
            )
            document["components"]["schemas"].update(definitions["$defs"])
            document["components"]["securitySchemes"] = _KEY_SCHEMES
            for path, operations in document["paths"].items():
                _name(path, operations)
                if path.startswith("/v1/"):
                    for operation in operations.values():
                        operation["security"] = [{}, *({name: []} for name in _KEY_SCHEMES)]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _name(path: str, operations: dict[str, dict[str, Any]]) -> None:
    """Gives the operations of one path their group, name and identifier. Raises KeyError for one without a name."""
    group, summary = _NAMES[path]
    for operation in operations.values():
        operation.update(tags=[group], summary=summary, operationId=path.rpartition("/")[2])

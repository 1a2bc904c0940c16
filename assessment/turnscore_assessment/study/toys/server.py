"""The toy chatbots as one server in OpenAI's chat form: `POST /v1/chat/completions`, the chatbot named as `model`."""

import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from turnscore_assessment.study.toys.chatbots import CHATBOTS

MOST_BYTES = 1_000_000
"""Most bytes of a request. Chosen: ten times a long conversation."""


def create_toy_app() -> Starlette:
    routes = [
        Route("/v1/chat/completions", _complete, methods=["POST"]),
        Route("/v1/models", _list_models, methods=["GET"]),
    ]
    return Starlette(routes=routes)


async def _complete(request: Request) -> Response:
    if int(request.headers.get("content-length", MOST_BYTES + 1)) > MOST_BYTES:
        return _refuse(413, f"the request may have at most {MOST_BYTES} bytes")
    try:
        fields = await request.json()
    except ValueError:
        return _refuse(400, "the request is not JSON")
    chatbot = CHATBOTS.get(fields.get("model", "")) if isinstance(fields, dict) else None
    if chatbot is None:
        return _refuse(404, f"model: must be one of {', '.join(CHATBOTS)}")
    inputs = _find_inputs(fields.get("messages"))
    if not inputs:
        return _refuse(400, "messages: there is no text of a user")
    message = {"role": "assistant", "content": chatbot(inputs)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse(
        {
            "id": f"toy-{len(inputs)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": fields["model"],
            "choices": [choice],
        }
    )


async def _list_models(_request: Request) -> Response:
    data = [{"id": name, "object": "model", "owned_by": "turnscore"} for name in CHATBOTS]
    return JSONResponse({"object": "list", "data": data})


def _find_inputs(messages: Any) -> list[str]:
    if not isinstance(messages, list):
        return []
    return [
        message["content"]
        for message in messages
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str)
    ]


def _refuse(status: int, reason: str) -> Response:
    return JSONResponse({"error": {"message": reason, "type": "invalid_request_error"}}, status_code=status)

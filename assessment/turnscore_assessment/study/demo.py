"""Three demo chatbots as a server in OpenAI's chat form, so that a study can be tried. Rules of our own, no model.

`POST /v1/chat/completions` with the chatbot as `model`: `companion` takes up a topic and asks on, `brief` answers
politely to anything, `echo` repeats.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

_SAYINGS = json.loads(files(__package__).joinpath("demo_files", "sayings.json").read_text(encoding="utf-8"))
_SMALL = re.compile(
    "about|after|again|because|could|have|just|like|really|that|their|there|they|this|what|when|with|would"
)


def say_as_companion(inputs: Sequence[str]) -> str:
    """Takes up a topic of the last input, a new sentence each time; else asks on about its longest word."""
    last = inputs[-1].lower()
    for pattern, replies in _SAYINGS["topics"].items():
        if re.search(pattern, last):
            before = sum(bool(re.search(pattern, text.lower())) for text in inputs[:-1])
            if before < len(replies):
                return str(replies[before])
    words = [word for word in re.findall(r"[a-z']{4,}", last) if not _SMALL.fullmatch(word)]
    asking = _SAYINGS["asking_on"]
    return str(asking[(len(inputs) - 1) % len(asking)]).format(word=max(words, key=len, default="that"))


def say_briefly(inputs: Sequence[str]) -> str:
    """One of five polite sentences, in turn."""
    return str(_SAYINGS["brief"][(len(inputs) - 1) % len(_SAYINGS["brief"])])


def say_again(inputs: Sequence[str]) -> str:
    """The user's last text, as a question."""
    return f"{inputs[-1].strip().rstrip('.!?')}?"


# The chatbots by a request's `model`.
CHATBOTS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "companion": say_as_companion,
    "brief": say_briefly,
    "echo": say_again,
}


MOST_BYTES = 1_000_000  # Most bytes of a request. Chosen: ten times a long conversation.


def create_demo_app() -> Starlette:
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
            "id": f"demo-{len(inputs)}",
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

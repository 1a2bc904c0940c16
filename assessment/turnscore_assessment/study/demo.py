"""Three demo chatbots as a server in OpenAI's chat form, so that a study can be tried. Rules of our own, no model.

`POST /v1/chat/completions` with the chatbot as `model`: `companion` takes up a topic and asks on, `brief` answers
politely to anything, `echo` repeats.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

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


def create_demo_app() -> Starlette:
    return Starlette(routes=[Route("/v1/chat/completions", _complete, methods=["POST"])])


async def _complete(request: Request) -> Response:
    try:
        fields = await request.json()
        inputs = [each["content"] for each in fields["messages"] if each["role"] == "user"]
        message = {"role": "assistant", "content": CHATBOTS[fields["model"]](inputs)}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        reason = f"the request needs `messages`, a user's among them, and as `model` one of {', '.join(CHATBOTS)}"
        return JSONResponse({"error": {"message": reason, "type": "invalid_request_error"}}, status_code=400)
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = {"id": f"demo-{len(inputs)}", "object": "chat.completion", "created": int(time.time())}
    return JSONResponse({**answer, "model": fields["model"], "choices": [choice]})

"""Three demo chatbots as a server in OpenAI's chat form, so that a study can be tried. Rules of our own, no model.

`POST /v1/chat/completions` with the chatbot as `model`: `companion` takes up a topic and asks on, `brief` answers
politely to anything, `echo` repeats.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

_TOPICS: Mapping[str, tuple[str, ...]] = {
    r"\b(dogs?|cats?|pets?|horses?|birds?|animals?)\b": (
        "Animals notice more than we think. Is there one that you share your days with?",
        "I like hearing about animals. What is the funniest thing that one has done near you?",
    ),
    r"\b(food|cook\w*|eat\w*|soup|bread|pizza|cake|dinner|lunch|breakfast)\b": (
        "That makes me hungry. What do you cook when you want to please somebody?",
        "Good food is a good reason to sit down together. Who taught you to make it?",
    ),
    r"\b(music|songs?|sing\w*|guitar|piano|concerts?|band)\b": (
        "Music changes a day. Which song do you put on when nobody listens?",
        "Do you play something yourself, or are you happy to listen?",
    ),
    r"\b(books?|read\w*|novels?|stor(?:y|ies)|poems?)\b": (
        "A good book keeps me awake. Which one did you last finish?",
        "Do you read to learn something, or to be somewhere else for a while?",
    ),
    r"\b(travel\w*|trips?|holidays?|beach|mountains?|sea|city|cities|country)\b": (
        "I would like to see that. What would you show me there first?",
        "Do you plan a journey to the hour, or do you just set out?",
    ),
    r"\b(work\w*|jobs?|office|boss|students?|stud(?:y|ies|ied)|school)\b": (
        "That takes up a lot of a week. Which part of it do you look forward to?",
        "If you could change one thing about it tomorrow, what would it be?",
    ),
    r"\b(films?|movies?|cinema|series|actors?)\b": (
        "I am always glad of a film to look for. What makes that one worth an evening?",
        "Do you watch alone or with others who talk all the way through?",
    ),
    r"\b(famil(?:y|ies)|sisters?|brothers?|mother|father|kids?|children|friends?)\b": (
        "People make all the difference. Who of them do you laugh with most?",
        "What do you like to do when you are all together?",
    ),
    r"\b(gardens?|plants?|flowers?|trees?|walk\w*|forest|weather|rain|sun\w*)\b": (
        "Being outside clears the head. Where do you go when you have an hour?",
        "Is there a season in which you like it best?",
    ),
    r"\b(hello|hi|hey|good (?:morning|evening|day))\b": (
        "Hello! It is nice to meet you. What have you been up to today?",
        "Hello again! Where were we, and what else is on your mind?",
    ),
}
_ASKING_ON = (
    "Tell me a little more about {word}. How did that begin for you?",
    "I had not thought about {word} that way. What do you like about it?",
    "What would somebody who knows nothing of {word} get wrong?",
    "And apart from {word}, what made you smile this week?",
)
_BRIEF = (
    "That sounds nice.",
    "I see.",
    "Okay, good to know.",
    "Yes, I think so too.",
    "Interesting.",
)
_SMALL = re.compile(
    "about|after|again|because|could|have|just|like|really|that|their|there|they|this|what|when|with|would"
)


def say_as_companion(inputs: Sequence[str]) -> str:
    """Takes up a topic of the last input, a new sentence each time; else asks on about its longest word."""
    last = inputs[-1].lower()
    for pattern, replies in _TOPICS.items():
        if re.search(pattern, last):
            before = sum(bool(re.search(pattern, text.lower())) for text in inputs[:-1])
            if before < len(replies):
                return replies[before]
    words = [word for word in re.findall(r"[a-z']{4,}", last) if not _SMALL.fullmatch(word)]
    return _ASKING_ON[(len(inputs) - 1) % len(_ASKING_ON)].format(word=max(words, key=len, default="that"))


def say_briefly(inputs: Sequence[str]) -> str:
    """One of five polite sentences, in turn."""
    return _BRIEF[(len(inputs) - 1) % len(_BRIEF)]


def say_again(inputs: Sequence[str]) -> str:
    """The user's last text, as a question."""
    return f"{inputs[-1].strip().rstrip('.!?')}?"


CHATBOTS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "companion": say_as_companion,
    "brief": say_briefly,
    "echo": say_again,
}
"""The chatbots by a request's `model`."""


MOST_BYTES = 1_000_000
"""Most bytes of a request. Chosen: ten times a long conversation."""


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

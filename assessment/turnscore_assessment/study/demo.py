"""Three demo chatbots as a server in OpenAI's chat form, and simulated raters, so that a study can be tried.

`POST /v1/chat/completions` with the chatbot as `model`: `companion` takes up a topic and asks on, `brief` answers
politely to anything, `echo` repeats. Rules of our own, no model.
"""

import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import count
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from turnscore_assessment.study.chatbots import Chatbots
from turnscore_assessment.study.database import StudyDatabase
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.recordings import read_recordings
from turnscore_assessment.study.server import RunningStudy, create_study_app
from turnscore_assessment.study.workers import invite_workers

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


# The chatbots by a request's `model`: `brief` says one of five polite sentences, in turn, and `echo` the user's last
# text, as a question.
CHATBOTS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "companion": say_as_companion,
    "brief": lambda inputs: str(_SAYINGS["brief"][(len(inputs) - 1) % len(_SAYINGS["brief"])]),
    "echo": lambda inputs: f"{inputs[-1].strip().rstrip('.!?')}?",
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


INPUTS = (
    "hello there",
    "i went for a walk in the rain",
    "my dog came along",
    "then we cooked soup",
    "i like cooking with friends",
    "do you read books",
    "i study music at school",
    "we travel to the sea in summer",
    "the film last night was long",
    "that was a good day",
)
# What an honest rater thinks of each chatbot, from 0 to 100.
TASTES: Mapping[str, int] = {"companion": 85, "brief": 55, "echo": 30, "degraded": 5}
ORIGIN = "http://demo.invalid"
CARELESS = 4  # Every fourth simulated rater gives any number. Chosen: the quality control finds some.
SECONDS_PER_ACT = 6.0  # What the simulated clock moves on, at each look at it.


class Judgement:
    """A rater's; `guesses`: gives any number."""

    def __init__(self, seed: int, *, guesses: bool) -> None:
        self._generator, self._guesses = random.Random(seed), guesses  # noqa: S311

    def rate(self, replies: Sequence[str], criteria: Sequence[str]) -> list[int]:
        """A number for each criterion, in their order, of the chatbot that said all this."""
        would_say = (
            name
            for name, say in CHATBOTS.items()
            if all(say(INPUTS[: place + 1]) == reply for place, reply in enumerate(replies))
        )
        taste = TASTES[next(would_say, "degraded")]
        return [self._rate(100 - taste if name == "repetitive" else taste) for name in criteria]

    def _rate(self, taste: int) -> int:
        opinion, chance = taste + self._generator.uniform(-10, 10), self._generator.uniform(0, 100)
        return round(chance if self._guesses else min(100, max(0, opinion)))


async def take_part(client: httpx.AsyncClient, link: str, judgement: Judgement) -> None:
    """A rater's whole part, by the calls that the study's page makes."""
    headers = {"Authorization": f"Bearer {link}", "Origin": str(client.base_url).rstrip("/")}

    async def post(act: str, **fields: Any) -> Any:
        return (await client.post(f"/api/{act}", json=fields, headers=headers)).raise_for_status().json()

    study = (await client.get("/api/standing", headers=headers)).json()["study"]
    standing = await post("agreement", consent_hash=study["consent_hash"])
    names = [each["name"] for each in study["criteria"]]
    while not standing["finished"]:
        dialogue = (await post("begin"))["dialogue"]["id"]
        said = [
            (await post("message", dialogue=dialogue, number=number, text=text))["reply"]
            for number, text in enumerate(INPUTS)
        ]
        ratings = dict(zip(names, judgement.rate(said, names), strict=True))
        standing = await post("rating", dialogue=dialogue, ratings=ratings)


async def simulate_raters(plan: StudyPlan, database: StudyDatabase, raters: int) -> None:
    """So many new workers take part in a study of the demo chatbots; every fourth guesses. No server is needed."""
    clock = count(time.time(), SECONDS_PER_ACT)
    chatbots = Chatbots(plan, httpx.ASGITransport(create_demo_app()))
    study = RunningStudy(plan, database, chatbots, read_recordings(plan), now=lambda: next(clock))
    links = database.run_here(invite_workers, database.study_id, raters, next(clock))
    transport = httpx.ASGITransport(create_study_app(study, [ORIGIN]))
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
        for number, link in enumerate(links):
            guesses = number % CARELESS == CARELESS - 1
            await take_part(client, str(link), Judgement(number, guesses=guesses))
    await chatbots.close()

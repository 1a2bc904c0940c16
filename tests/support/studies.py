"""Studies, simulated raters and scored turns for the tests of the assessment."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from turnscore_assessment.study.chatbots import Chatbots
from turnscore_assessment.study.database import open_database
from turnscore_assessment.study.demo import create_demo_app
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.recordings import read_recordings
from turnscore_assessment.study.server import RunningStudy, create_study_app
from turnscore_assessment.study.workers import invite_workers
from turnscore_client import Scored
from turnscore_wire import DialogueAggregate, Score, ScoreReply, Timing, TokenCount

ORIGIN = "http://study.test"


def plan_fields(**changed):
    """A plan of two systems by endpoint, of which one is degraded, with three inputs to a conversation."""
    ends = {"low_end": "strongly disagree", "high_end": "strongly agree"}
    bots = {"url": "http://bots.test/v1/chat/completions"}
    return {
        "name": "spring",
        "title": "A study",
        "consent": "We store what you write.\n\nYou may leave.",
        "systems": [
            {"name": "secretly-good", "model": "companion", **bots},
            {"name": "secretly-bad", "model": "echo", "degraded": True, **bots},
        ],
        "criteria": [
            {"name": "fun", "statement": "It was fun.", **ends},
            {"name": "repetitive", "statement": "It repeated itself.", "direction": "negative", **ends},
        ],
        "chat": {"inputs_at_least": 3, "inputs_at_most": 4, "input_characters": 50},
        "limits": {"reply_seconds": 5},
        **changed,
    }


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


class ScriptedBot:
    """A system under test that counts, waits and fails as it is told to."""

    def __init__(self):
        self.asked = []
        self.status = 200
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def app(self):
        return Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])

    @property
    def transport(self):
        return httpx.ASGITransport(self.app)

    async def _answer(self, request):
        self.asked.append(await request.json())
        await self.gate.wait()
        message = {"role": "assistant", "content": f"reply {len(self.asked)}"}
        return JSONResponse({"choices": [{"message": message}]}, status_code=self.status)


class Served:
    """A study in this process, with a client that speaks as its page does."""

    def __init__(self, database, study, app, clock):
        self.database, self.study, self.clock = database, study, clock
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url=ORIGIN)

    def invite(self, count=1):
        return self.database.run_here(invite_workers, self.database.study_id, count, self.clock())

    async def get(self, link):
        return await self.http.get("/api/standing", headers={"Authorization": f"Bearer {link}"})

    async def post(self, link, act, **fields):
        headers = {"Authorization": f"Bearer {link}", "Origin": ORIGIN, "Content-Type": "application/json"}
        return await self.http.post(f"/api/{act}", content=json.dumps(fields), headers=headers)

    async def agree(self, link):
        """The first dialogue's standing, after agreeing and beginning."""
        seen = (await self.get(link)).json()
        await self.post(link, "agreement", consent_hash=seen["study"]["consent_hash"])
        return (await self.post(link, "begin")).json()

    async def talk(self, link, dialogue, inputs=3):
        """So many messages and their replies."""
        said = [
            await self.post(link, "message", dialogue=dialogue, number=number, text=f"hello {number}")
            for number in range(inputs)
        ]
        return [answer.json()["reply"] for answer in said]


def code_of(answer):
    """The status and the code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]


async def begin(served):
    """A new worker's link, and the dialogue that the worker has begun."""
    [link] = served.invite()
    return link, (await served.agree(link))["dialogue"]["id"]


@asynccontextmanager
async def served_study(folder, bots=None, database=None, **changed):
    """The study of `plan_fields`, its systems the demo chatbots unless `bots` says otherwise."""
    plan = StudyPlan.model_validate(plan_fields(database=database or str(folder / "study.sqlite3"), **changed))
    opened = open_database(plan)
    clock = Clock()
    chatbots = Chatbots(plan, bots or httpx.ASGITransport(create_demo_app()))
    study = RunningStudy(plan, opened, chatbots, read_recordings(plan), now=clock, generator=random.Random(7))
    served = Served(opened, study, create_study_app(study, [ORIGIN]), clock)
    try:
        yield served
    finally:
        await served.http.aclose()
        await chatbots.close()
        opened.close()


def published_row(system, worker="w", **ratings):
    """A conversation in the form in which the published ratings lie."""
    names = ("interesting", "fun", "consistent", "fluent", "topic", "robotic", "repetitive")
    row = {"worker": worker, "hit": "h", "position": 0, "model": system}
    row["topic"] = [{"round": 0, "topic": "dogs", "attitude": "like"}]
    row["turns"] = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]
    return {**row, "ratings": {name: ratings.get(name, 50) for name in names}}


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def scored(ids, value=0.25):
    """What an integration hands to a writer."""
    said = {"percentile": 12.0, "label": "low", "details": {}, "warnings": ["repeats_user"]}
    tokens = TokenCount(used=3, dropped=0)
    score = Score(value=value, model="quality:1.0.0", tokens=tokens, cached=False, **said)
    timing = Timing(total=1, tokenize=0, queue=0, inference=1)
    return Scored(ids, ScoreReply(request_id="a", scores={"quality": score}, timing_ms=timing), None)


AGGREGATES = {
    "quality": DialogueAggregate(
        mean=0.5, min=0.25, max=0.75, turns=2, percentile_mean=40.0, percentile_min=12.0, percentile_max=68.0
    )
}

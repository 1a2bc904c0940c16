"""Callers: a bot that can be made worse, callers of one turn at a time, and a crowd that never waits for its turn."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import httpx

from turnscore_load.programs import Replica
from turnscore_load.raw_http import RawReply, open_connection, post_bytes
from turnscore_load.traffic import Traffic, TrafficSettings

Mood = Literal["usual", "broken", "foreign", "silent"]
_DIALOGUES = (
    ("i baked bread this morning", "That sounds lovely! What kind of bread was it?", "Was war das für ein Brot?"),
    ("my dog died yesterday", "I am so sorry. How long had you been together?", "Das tut mir sehr leid für dich."),
    ("do you like to travel?", "I love it. Where did you go last summer?", "Ja, ich war im Sommer in der Türkei."),
    ("i play the guitar in a band", "Cool, what music does your band play?", "Was für Musik macht ihr denn?"),
    ("what should i cook tonight?", "How about pasta with fresh tomatoes?", "Wie wäre es mit Nudeln und Tomaten?"),
    ("i have to work on sunday", "That is a pity. Do you get a day off instead?", "Das ist aber nicht so schön."),
    ("it rains all day here", "Then it is a good day for a book. Do you read?", "Dann ist das ein Tag für ein Buch."),
    ("my sister had a baby", "Congratulations! Is it a boy or a girl?", "Ist es ein Junge oder ein Mädchen?"),
    (
        "i am afraid of the dentist",
        "Many people are. Does it help to bring a friend?",
        "Das sind viele, auch ich.",
    ),
    ("we moved to a new house", "Exciting! Do you like the new neighbours?", "Wie sind denn die neuen Nachbarn?"),
)
"""What a user says, what a bot says to it, and what it says to it in another language."""
_UNFIT = "The train to Turin leaves from platform 4, you idiot."
"""Of a broken bot, whatever it is told."""
_BATCH_SECONDS = 0.5
_LONG_WORDS = 120
"""Of a turn of the crowd: as many as engagement reads, so that few calls are much work."""
_REFUSED_SECONDS = 1.0
"""A refused caller of the crowd asks again after that time. Chosen: a third of its calls are then refused."""


@dataclass(kw_only=True)
class Bot:
    """Sends its dialogues, twenty per second, one exchange each, and says what its mood is."""

    service: Replica
    key: str
    scorer: str = "quality"
    mood: Mood = "silent"

    async def talk(self) -> None:
        """Until it is cancelled."""
        async with httpx.AsyncClient(base_url=self.service.url, timeout=60, headers={"x-api-key": self.key}) as client:
            while True:
                if self.mood != "silent":
                    body = {"items": [self._exchange(*each) for each in _DIALOGUES]}
                    (await client.post("/v1/score_batch", json=body)).raise_for_status()
                await asyncio.sleep(_BATCH_SECONDS)

    def _exchange(self, user: str, fitting: str, foreign: str) -> dict[str, object]:
        reply = {"usual": fitting, "foreign": foreign}.get(self.mood, _UNFIT)
        return {"context": [{"speaker": "user", "text": user}], "response": reply, "scorers": [self.scorer]}


@asynccontextmanager
async def steady(service: Replica, key: str = "", turns: int = 10) -> AsyncIterator[None]:
    """A caller of so many new turns every half a second while the block runs; what he gets is his affair."""

    async def call() -> None:
        headers = {"x-api-key": key} if key else {}
        async with httpx.AsyncClient(base_url=service.url, timeout=60, headers=headers) as client:
            new = texts("steady")
            while True:
                items = [{"response": next(new), "scorers": ["engagement"]} for _ in range(turns)]
                with suppress(httpx.TransportError):  # the service has ended
                    await client.post("/v1/score_batch", json={"items": items})
                await asyncio.sleep(_BATCH_SECONDS)

    calling = asyncio.create_task(call())
    try:
        yield
    finally:
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


@asynccontextmanager
async def crowd(service: Replica, callers: int) -> AsyncIterator[None]:
    """So many callers at once, each with a new turn as soon as the last is answered, while the block runs."""
    connections = [await open_connection(service.port) for _ in range(callers)]
    tasks = []
    for number, connection in enumerate(connections):

        async def press(send: Callable[[bytes, Callable[[RawReply], None]], None], number: int = number) -> None:
            for text in texts(f"crowd {number}", _LONG_WORDS):
                replied: asyncio.Future[RawReply] = asyncio.get_running_loop().create_future()
                body = json.dumps({"response": text, "scorers": ["engagement"]}).encode()
                send(post_bytes("/v1/score", service.port, body), _resolver(replied))
                if (await replied).status != 200:
                    await asyncio.sleep(_REFUSED_SECONDS)

        tasks.append(asyncio.create_task(press(connection.send)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            connection.close()


def _resolver(future: "asyncio.Future[RawReply]") -> Callable[[RawReply], None]:
    def resolve(reply: RawReply) -> None:
        if not future.done():
            future.set_result(reply)

    return resolve


async def ask_hugely(service: Replica, turns: int, words: int) -> int:
    """The status of one batch of so many turns of so many words each."""
    chance = random.Random(7)
    known = " ".join(text for text, _ in zip(texts("huge"), range(200), strict=False)).split()
    items = [{"response": " ".join(chance.choices(known, k=words)), "scorers": ["engagement"]} for _ in range(turns)]
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        return (await client.post("/v1/score_batch", json={"items": items})).status_code


def texts(name: str, least_words: int = 1) -> Iterator[str]:
    """New turns without end, the same for the same name."""
    traffic = Traffic(TrafficSettings(seed=29), name)
    while True:
        words: list[str] = []
        while len(words) < least_words:
            words += str(traffic.next_ask().item["response"]).split()
        yield " ".join(words)

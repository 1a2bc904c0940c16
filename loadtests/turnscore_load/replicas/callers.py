"""Callers: one kind that never tries again, our client, and live conversations, all through one address."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import httpx
from turnscore_client import AsyncTurnScoreClient, TurnScoreError

from turnscore_load.traffic import Traffic, TrafficSettings

_TIMEOUT_SECONDS = 20.0
_OF_CALLS = 0.4
"""Share of the load that each of the two kinds makes that call. Chosen."""


@dataclass(kw_only=True)
class Heard:
    """What callers of one kind asked and got."""

    took_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    """Of the first turns, by their text: to be compared with those of one service alone."""


Ask = Callable[[str], Awaitable[float]]


@dataclass(kw_only=True)
class Crowd:
    """All callers of a run: two fifths of `per_second` from each of the kinds that make calls, the rest talks."""

    url: str
    per_second: float
    conversations: int
    raw: Heard = field(default_factory=Heard)
    client: Heard = field(default_factory=Heard)
    talk: Heard = field(default_factory=Heard)

    async def run(self, event: "asyncio.Task[None]") -> None:
        """Calls until the event is over."""
        plain = httpx.AsyncClient(base_url=self.url, timeout=_TIMEOUT_SECONDS)
        async with plain as raw, AsyncTurnScoreClient(self.url, timeout_seconds=_TIMEOUT_SECONDS) as client:

            async def ask_raw(text: str) -> float:
                answer = await raw.post("/v1/score", json={"response": text})
                answer.raise_for_status()
                return float(answer.json()["scores"]["engagement"]["value"])

            async def ask_client(text: str) -> float:
                return (await client.score(response=text)).scores["engagement"].value

            await asyncio.gather(
                self._call(ask_raw, self.raw, "raw", event),
                self._call(ask_client, self.client, "client", event),
                *(self._talk(client, number, event) for number in range(self.conversations)),
            )

    async def _call(self, ask: Ask, heard: Heard, name: str, event: "asyncio.Task[None]") -> None:
        """Open loop: a request is sent when it is due, whatever became of those before."""
        texts = (f"{text} {name}" for text in _texts(name))
        tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for number in count():
            await asyncio.sleep(max(0.0, begun + number / (_OF_CALLS * self.per_second) - loop.time()))
            if event.done():
                break
            tasks.append(asyncio.create_task(_one(ask, next(texts), heard)))
        await asyncio.gather(*tasks)

    async def _talk(self, client: AsyncTurnScoreClient, number: int, event: "asyncio.Task[None]") -> None:
        """A conversation after the other, of twelve exchanges each, faster than people talk so that more are hit."""
        texts, chance, loop = _texts(f"talk {number}"), random.Random(number), asyncio.get_running_loop()
        pause = self.conversations / ((1 - 2 * _OF_CALLS) * self.per_second)
        while not event.done():
            async with client.conversation() as conversation:
                for index in range(12):
                    if event.done():
                        return
                    begun = loop.time()
                    try:
                        await conversation.say("user", next(texts))
                        scored = await conversation.say("system", next(texts))
                    except TurnScoreError as error:
                        self.talk.failures.append(type(error).__name__)
                        break
                    counted = scored.dialogue["engagement"].turns
                    if (scored.index, counted) != (2 * index + 1, index + 1):  # one was lost, or counted twice
                        self.talk.failures.append(f"turn {index} came back as {scored.index}, {counted} scored")
                    self.talk.took_ms.append(1000 * (loop.time() - begun))
                    await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)


async def _one(ask: Ask, text: str, heard: Heard) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        value = await ask(text)
    except httpx.HTTPStatusError as error:
        heard.failures.append(f"status {error.response.status_code}")
    except (httpx.HTTPError, TurnScoreError) as error:
        heard.failures.append(type(error).__name__)
    else:
        heard.took_ms.append(1000 * (loop.time() - begun))
        if len(heard.values) < 200:
            heard.values[text] = value


def _texts(name: str) -> Iterator[str]:
    traffic = Traffic(TrafficSettings(seed=23), name)
    while True:
        yield str(traffic.next_ask().item["response"])

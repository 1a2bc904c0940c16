"""Measures the time that a framework's hook adds to a chatbot's replies: a running service, alternating replies."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from turnscore_client import BackgroundScorer, TurnScoreClient
from turnscore_client.integrations import QualityGate
from typer import Option

from turnscore_load.machine import ScenarioError
from turnscore_load.results import percentile, table
from turnscore_load.scenario import TargetScenario

_MESSAGES = [
    {"role": "system", "content": "you are a cheerful guide. " * 40},
    *[
        {"role": role, "content": f"{text} {place}"}
        for place in range(10)
        for role, text in (("user", "what did you do on day"), ("assistant", "i hiked up volcano number"))
    ],
    {"role": "user", "content": "and what did you do today?"},
]
# A chatbot's process at some fifty replies a second; the scores of one are computed while the next is made. Chosen.
_BETWEEN_SECONDS = 0.02


@dataclass(kw_only=True)
class Hooks(TargetScenario[dict[str, list[float]]]):
    """Measure the median and the 99th percentile of each way in milliseconds."""

    scorer: Annotated[str, Option(help="The scorer that is asked.")] = "engagement"
    replies: Annotated[int, Option(min=100)] = 1000

    def measure(self) -> dict[str, list[float]]:
        with self.target() as service:
            return asyncio.run(_measure(service.url, self.scorer, self.replies))

    def report(self, found: dict[str, list[float]]) -> Iterator[str]:
        rows = [[name, *(f"{percentile(took, each):.3f}" for each in (50, 99))] for name, took in found.items()]
        yield table(["hook", "p50 ms", "p99 ms"], rows, texts=1)


async def _measure(url: str, scorer: str, replies: int) -> dict[str, list[float]]:
    watch = BackgroundScorer(url=url, scorers=[scorer], on_scored=lambda _: None)
    gate = QualityGate("ask_again", min_quality=-1.0, scorer=scorer, url=url)  # every reply passes
    with TurnScoreClient(url) as client:

        async def nothing(_: str) -> None:
            await asyncio.sleep(0)

        async def behind(text: str) -> None:
            watch.submit([*_MESSAGES, {"role": "assistant", "content": text}])
            await asyncio.sleep(0)  # who is next on the loop pays for what the hook's threads do

        async def directly(text: str) -> None:
            await asyncio.to_thread(client.score, messages=_MESSAGES, response=text, scorers=[scorer])

        async def gated(text: str) -> None:
            await gate.achoose(_MESSAGES, text, ask=_never)

        ways: dict[str, Callable[[str], Awaitable[None]]] = {
            "nothing": nothing,
            "behind the back": behind,
            "the service itself": directly,
            "with a gate": gated,
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(replies):
            for name, way in ways.items():
                text = f"i hiked up volcano number {number} today, {name}! ever been on one?"  # never in the cache
                started_at = time.perf_counter()
                await way(text)
                took[name].append(1000 * (time.perf_counter() - started_at))
                await asyncio.sleep(_BETWEEN_SECONDS)
    watch.close(30)
    gate.close()
    if watch.scored != replies or gate.passed != replies:
        raise ScenarioError(f"only {watch.scored} of {replies} were scored, and {gate.passed} judged by the gate")
    return took


async def _never(_: object) -> None:
    raise AssertionError("every reply passes")

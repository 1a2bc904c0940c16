"""Measures the time that a framework's hook adds to a chatbot's replies: a running service, alternating replies."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles
from typing import Annotated

import typer
from turnscore_client import BackgroundScorer, TurnScoreClient
from turnscore_client.integrations import QualityGate
from turnscore_wire import Score

from turnscore_load.results import ScenarioResult, table

_MESSAGES = [
    {"role": "system", "content": "you are a cheerful guide. " * 40},
    *[
        {"role": role, "content": f"{text} {place}"}
        for place in range(10)
        for role, text in (("user", "what did you do on day"), ("assistant", "i hiked up volcano number"))
    ],
    {"role": "user", "content": "and what did you do today?"},
]
_BETWEEN_SECONDS = 0.02
"""A chatbot's process at some fifty replies a second; the scores of one are computed while the next is made. Chosen."""


async def _measure(url: str, scorer: str, replies: int) -> dict[str, list[float]]:
    watch = BackgroundScorer(url=url, scorers=[scorer], on_scored=lambda _: None)
    gate = QualityGate(-1.0, scorer=scorer, url=url)  # every reply passes
    with TurnScoreClient(url) as client:

        async def nothing(_: str) -> None:
            await asyncio.sleep(0)

        async def behind(text: str) -> None:
            watch.submit([*_MESSAGES, {"role": "assistant", "content": text}])
            await asyncio.sleep(0)  # who is next on the loop pays for what the hook's threads do

        async def directly(text: str) -> None:
            await asyncio.to_thread(client.score, messages=_MESSAGES, response=text, scorers=[scorer])

        async def gated(text: str) -> None:
            await gate.achoose(_MESSAGES, text, _never, str)

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
        raise SystemExit(f"only {watch.scored} of {replies} were scored, and {gate.passed} judged by the gate")
    return took


async def _never(_: Score) -> None:
    raise AssertionError("every reply passes")


def main(
    url: Annotated[str, typer.Option(help="The service.")] = "http://127.0.0.1:3000",
    scorer: Annotated[str, typer.Option(help="The scorer that is asked.")] = "engagement",
    replies: Annotated[int, typer.Option(min=100)] = 1000,
) -> ScenarioResult:
    """Measure the median and the 99th percentile of each way in milliseconds."""
    rows = []
    for name, times in asyncio.run(_measure(url, scorer, replies)).items():
        cuts = quantiles(times, n=100)
        rows.append([name, f"{cuts[49]:.3f}", f"{cuts[98]:.3f}"])
    return ScenarioResult(scenario="hooks", parts=[table(["hook", "p50 ms", "p99 ms"], rows, texts=1)])

"""Times a running service on this machine, one caller at a time: calls of each kind for each scorer and for all."""

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from turnscore_client import TurnScoreClient

from turnscore_load.results import ScenarioResult, table

CONTEXT = [
    ("user", "hi, what did you do today?"),
    ("system", "i went for a long walk by the river. how about you?"),
    ("user", "nothing much, i was at work until six and then watched a film with my sister"),
]
RESPONSES = [
    "ok.",
    "oh nice, which film was it? i have not been to the cinema since spring.",
    "i hiked up a volcano and nearly lost my hat. ever been on one?",
    "that sounds like a quiet evening. do the two of you often watch films together, or was it a special day?",
]
BATCH = 16


def time_calls(call: Callable[[int], object], requests: int) -> list[float]:
    """Milliseconds of each call, the first ten left out."""
    took = []
    for number in range(requests + 10):
        started_at = time.perf_counter()
        call(number)
        took.append(1000 * (time.perf_counter() - started_at))
    return took[10:]


def main(
    port: Annotated[int, typer.Option(help="Port of the service on 127.0.0.1.")] = 3000,
    requests: Annotated[int, typer.Option(min=20, max=5000, help="Calls of each kind.")] = 300,
) -> ScenarioResult:
    """Measure p50, p95 and turns per second of single requests, batches and rankings."""
    rows = []
    with TurnScoreClient(f"http://127.0.0.1:{port}") as client:
        names = [model.scorer for model in client.models().models]
        for chosen in [[name] for name in names] + ([names] if len(names) > 1 else []):
            options: dict[str, Any] = {"context": CONTEXT, "scorers": chosen}

            def texts(number: int) -> list[str]:
                return [RESPONSES[(number + each) % len(RESPONSES)] + f" {each}" for each in range(BATCH)]

            def single(number: int, options: dict[str, Any] = options) -> object:
                return client.score(response=RESPONSES[number % len(RESPONSES)], cache="bypass", **options)

            def batch(number: int, options: dict[str, Any] = options) -> object:
                return client.score_batch([{"response": text, **options} for text in texts(number)], cache="bypass")

            def rank(number: int, options: dict[str, Any] = options) -> object:
                return client.rank(texts(number), cache="bypass", **options)

            calls = (("single", single, 1), (f"batch of {BATCH}", batch, BATCH), (f"rank {BATCH}", rank, BATCH))
            for label, call, turns in calls:
                took = time_calls(call, requests if turns == 1 else max(20, requests // 5))
                p95, rate = statistics.quantiles(took, n=20)[-1], 1000 * turns / statistics.mean(took)
                figures = [f"{statistics.median(took):.1f}", f"{p95:.1f}", f"{rate:.0f}"]
                rows.append([", ".join(chosen), label, *figures])
    return ScenarioResult(scenario="latency", parts=[table(["scorers", "call", "p50 ms", "p95 ms", "turns/s"], rows)])

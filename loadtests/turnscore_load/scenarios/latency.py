"""Times a running service on this machine, one caller at a time: calls of each kind for each scorer and for all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from turnscore_client import TurnScoreClient
from typer import Option

from turnscore_load.results import percentile, seconds_of, table
from turnscore_load.scenario import TargetScenario

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


@dataclass(kw_only=True)
class Latency(TargetScenario[list[list[str]]]):
    """Measure p50, p95 and turns per second of single requests, batches and rankings."""

    requests: Annotated[int, Option(min=20, max=5000, help="Calls of each kind.")] = 300

    def measure(self) -> list[list[str]]:
        with self.target() as service, TurnScoreClient(service.url) as client:
            names = [model.scorer for model in client.models().models if model.speaker == "system"]
            chosen = [[name] for name in names] + ([names] if len(names) > 1 else [])
            return [row for scorers in chosen for row in self._time_scorers(client, scorers)]

    def report(self, found: list[list[str]]) -> Iterator[str]:
        yield table(["scorers", "call", "p50 ms", "p95 ms", "turns/s"], found)

    def _time_scorers(self, client: TurnScoreClient, scorers: list[str]) -> Iterator[list[str]]:
        options: dict[str, Any] = {"context": CONTEXT, "scorers": scorers}

        def texts(number: int) -> list[str]:
            return [RESPONSES[(number + each) % len(RESPONSES)] + f" {each}" for each in range(BATCH)]

        def batch(number: int) -> object:
            return client.score_batch([{"response": text, **options} for text in texts(number)], cache="bypass")

        calls: dict[str, tuple[int, Callable[[int], object]]] = {
            "single": (1, lambda at: client.score(response=RESPONSES[at % len(RESPONSES)], cache="bypass", **options)),
            f"batch of {BATCH}": (BATCH, batch),
            f"rank {BATCH}": (BATCH, lambda at: client.rank(texts(at), cache="bypass", **options)),
        }
        for label, (turns, call) in calls.items():
            took = time_calls(call, self.requests if turns == 1 else max(20, self.requests // 5))
            rate = 1000 * turns * len(took) / sum(took)
            figures = [f"{percentile(took, 50):.1f}", f"{percentile(took, 95):.1f}", f"{rate:.0f}"]
            yield [", ".join(scorers), label, *figures]


def time_calls(call: Callable[[int], object], requests: int) -> list[float]:
    """Milliseconds of each call, the first ten left out."""
    return [1000 * seconds_of(partial(call, number)) for number in range(requests + 10)][10:]

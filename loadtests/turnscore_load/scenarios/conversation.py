"""Measures what kept vectors save: conversations reply by reply, many at once, rankings in them, and mixed traffic."""

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Annotated, ClassVar

import typer
from typer import Option

from turnscore_load.fleet import STARTER
from turnscore_load.generator import Job, drive
from turnscore_load.processes import Process
from turnscore_load.results import Check, Cost, figures_of, in_turn, number, ratio, table
from turnscore_load.scenario import Scenario
from turnscore_load.traffic import SYSTEM_WORDS, USER_WORDS, Traffic, TrafficSettings

TURNS, RANK_TURNS, CANDIDATES, CLIENTS = 12, 8, 8, 32
WITH, WITHOUT = "kept", "not kept"
QUALITY = f"{STARTER / 'quality'}/"
FIGURES = ("cpu_ms", "p50_ms", "per_second")


@dataclass(kw_only=True)
class PairScenario(Scenario[Sequence[Cost]]):
    """One that compares two services of quality without a score cache, in alternating rounds."""

    rounds: Annotated[int, Option(min=1, help="Rounds of each service, in turns.")] = 5
    conversations: Annotated[int, Option(min=1, help="Conversations of a round.")] = 20

    services: ClassVar[tuple[str, str]]  # the names of both, of which the ratio is that of the first over the second

    def compare(self, settings: Mapping[str, Mapping[str, str]], ways: Iterable[str]) -> list[Cost]:
        """What each way costs each of these services."""
        own = {"TURNSCORE_MODELS": QUALITY, "TURNSCORE_CACHE__TTL_SECONDS": "0", "TURNSCORE_GRPC__ENABLED": "false"}
        costs: list[Cost] = []
        with ExitStack() as stack:
            services = {
                name: stack.enter_context(self.started(name.replace(" ", "-"), {**own, **more}))
                for name, more in settings.items()
            }
            for each in services.values():
                each.pause()
            for round_, name in in_turn(services, self.rounds + 1):
                typer.echo(f"round {round_} of {self.rounds}: {name}" if round_ else f"warming up: {name}")
                for way in ways:
                    cost = way, name, measure_way(services[name], way, round_, self.conversations)
                    costs += [cost] if round_ else []
        return costs

    def ratio(self, found: Sequence[Cost], way: str, figure: str) -> float:
        """Of the first service to the second."""
        return ratio(found, figure, *((way, name) for name in self.services)) or math.nan

    def report(self, found: Sequence[Cost]) -> Iterator[str]:
        rows = []
        for way in dict.fromkeys(way for way, _, _ in found):
            figures = {name: [median(figures_of(found, way, name, each)) for each in FIGURES] for name in self.services}
            figures["ratio"] = [self.ratio(found, way, each) for each in FIGURES]
            rows += [[way, name, *(number(each, 2) for each in own)] for name, own in figures.items()]
        yield table(["way", "service", "CPU ms per reply", "p50 ms", "per second"], rows, texts=2)


@dataclass(kw_only=True)
class Conversation(PairScenario):
    """Compare a service that keeps vectors with one that keeps none."""

    services = (WITH, WITHOUT)

    def measure(self) -> Sequence[Cost]:
        return self.compare({WITH: {}, WITHOUT: {"TURNSCORE_RUNTIME__KEPT_VECTOR_BYTES": "0"}}, WAYS)

    def checks(self, found: Sequence[Cost]) -> Iterator[Check]:
        cpu, speed = (self.ratio(found, *each) for each in ((REPLIES, "cpu_ms"), (MIXED, "per_second")))
        yield Check("a reply takes less CPU than without kept vectors", f"{cpu:.2f} times", cpu < 1)
        yield Check("throughput is not below that without", f"{speed:.2f} times", speed >= 1)


Said = list[dict[str, str]]


def converse(name: str, turns: int = TURNS) -> Said:
    """A conversation whose user begins, with lengths as in real ones; the same for the same name."""
    chance = random.Random(name)
    words = [(SYSTEM_WORDS if place % 2 else USER_WORDS).draw(chance) for place in range(turns)]
    item = Traffic(TrafficSettings(), name).item_of_length(words[:-1], words[-1])
    return [*item["context"], {"speaker": "system", "text": item["response"]}]


def _replies(said: Said) -> Iterator[str]:
    """A request to score each system turn, when it comes."""
    for place in range(1, len(said), 2):
        yield json.dumps({"context": said[:place], "response": said[place]["text"]})


def _one_by_one(name: str, count: int) -> list[str]:
    return [body for each in range(count) for body in _replies(converse(f"{name}/{each}"))]


def _at_once(name: str, count: int) -> list[str]:
    """One reply of each conversation in turn."""
    all_of = [_replies(converse(f"{name}/{each}")) for each in range(max(count, CLIENTS))]
    return [body for asked in zip(*all_of, strict=True) for body in asked]


def _rankings(name: str, count: int) -> list[str]:
    """Of each reply that is given, and others, when it comes."""
    asked = []
    for each in range(count):
        said = converse(f"{name}/{each}", RANK_TURNS)
        for place in range(1, RANK_TURNS, 2):
            others = [converse(f"{name}/{each}/{place}/{other}", 2)[1]["text"] for other in range(1, CANDIDATES)]
            asked.append(json.dumps({"context": said[:place], "candidates": [said[place]["text"], *others]}))
    return asked


def _mixed(name: str, count: int) -> list[str]:
    traffic = Traffic(TrafficSettings(), name)
    return [json.dumps(traffic.next_ask().item) for _ in range(count * TURNS)]


REPLIES, MIXED = f"conversations of {TURNS} turns, reply by reply", f"{CLIENTS} clients, mixed"
RANKED = f"rankings of {CANDIDATES} candidates in conversations of {RANK_TURNS} turns"
# Which requests, their path, the clients, and what each request asks for.
WAYS: Mapping[str, tuple[Callable[[str, int], list[str]], str, int, int]] = {
    REPLIES: (_one_by_one, "/v1/score", 1, 1),
    f"{CLIENTS} clients, such conversations at once": (_at_once, "/v1/score", CLIENTS, 1),
    RANKED: (_rankings, "/v1/rank", 1, CANDIDATES),
    MIXED: (_mixed, "/v1/score", CLIENTS, 1),
}


def measure_way(process: Process, way: str, round_: int, conversations: int) -> Mapping[str, float]:
    make, path, clients, size = WAYS[way]
    bodies = make(f"{way} {round_}", conversations)  # no way finds what another said
    done = drive(process, Job(port=process.port, path=path, bodies=bodies, clients=clients))
    asked = size * len(bodies)  # Replies or candidates.
    figures = (1000 * done["cpu_seconds"] / asked, median(done["latencies_ms"]), asked / done["wall_seconds"])
    return dict(zip(FIGURES, figures, strict=True))

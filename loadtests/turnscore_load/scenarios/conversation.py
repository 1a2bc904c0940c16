"""Measures what kept vectors save: conversations reply by reply, rankings, 1,000 conversations in turn, 32 clients."""

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from turnscore_client import TurnScoreClient
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import load_scorers
from turnscore_core.scorers.scorer import Scorer, TurnToScore
from turnscore_wire import Turn
from typer import Option

from turnscore_load.fleet import STARTER
from turnscore_load.generator import Job, drive
from turnscore_load.processes import Process
from turnscore_load.results import Check, in_turn, number, table
from turnscore_load.scenario import Scenario
from turnscore_load.scenarios.equal import read_dialogues
from turnscore_load.services import metric
from turnscore_load.traffic import SYSTEM_WORDS, USER_WORDS, Traffic, TrafficSettings

TURNS, LONG_TURNS, RANK_TURNS, CANDIDATES, CLIENTS = 12, 20, 8, 8, 32
READ_TURNS = 3  # Context turns that quality reads.
WITH, WITHOUT, ALONE = "kept", "not kept", "the reply read alone by the first graph, in this process"
SETTINGS: Mapping[str, Mapping[str, str]] = {WITH: {}, WITHOUT: {"TURNSCORE_RUNTIME__KEPT_VECTOR_BYTES": "0"}}
MOST_OF_CPU, LEAST_FOUND, MOST_MS_BEYOND = 0.55, 0.9, 1.0
_WRITING_SECONDS = 0.05  # In a live conversation, from a user's turn to the reply: a fast model's first words.
_SETTLE_SECONDS = 1.0  # Until a service has written out what it counted.

Said = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One way of asking one service in one round."""

    way: str
    service: str
    cpu_ms: float  # For each reply or candidate.
    p50_ms: float
    per_second: float  # Replies or candidates.


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was measured."""

    costs: Sequence[Cost]
    # By how a reply's score is asked and of which service, each round's median milliseconds; and of ALONE.
    latencies: Mapping[str, Sequence[float]]
    # By what was replayed, the share of earlier texts that was found, and the megabytes kept after it.
    replayed: Mapping[str, tuple[float, float]]


@dataclass(kw_only=True)
class Conversation(Scenario[Found]):
    """Compare a service that keeps vectors with one that keeps none; both without a score cache, of quality alone."""

    data: Annotated[Path | None, Option(help="JSON lines of dialogues to replay as well.")] = None
    rounds: Annotated[int, Option(min=1, help="Rounds of each service, in turns.")] = 5
    conversations: Annotated[int, Option(min=1, help="Conversations of a round.")] = 20
    live: Annotated[int, Option(min=1, help="Conversations that go on in turn.")] = 1000
    turns: Annotated[int, Option(min=2, help="System turns of the replayed dialogues, about.")] = 2000

    def measure(self) -> Found:
        own = {"TURNSCORE_MODELS": f"{STARTER / 'quality'}/", "TURNSCORE_CACHE__TTL_SECONDS": "0"}
        own["TURNSCORE_GRPC__ENABLED"] = "false"
        with (
            self.started("kept", {**own, **SETTINGS[WITH]}) as kept,
            self.started("not-kept", {**own, **SETTINGS[WITHOUT]}) as plain,
        ):
            services = {WITH: kept, WITHOUT: plain}
            for each in services.values():
                each.pause()
            scorer = load_scorers(LoadSettings(models=(own["TURNSCORE_MODELS"],), device="cpu"))["quality"].scorer
            costs: list[Cost] = []
            latencies = defaultdict[str, list[float]](list)
            for round_, name in in_turn(services, self.rounds + 1):
                typer.echo(f"round {round_} of {self.rounds}: {name}" if round_ else f"warming up: {name}")
                measured = [measure_way(services[name], name, way, round_, self.conversations) for way in WAYS]
                talked = _talk(services[name], round_, self.conversations)
                if round_:
                    costs += measured
                    latencies[f"over HTTP, {name}"].append(measured[0].p50_ms)
                    latencies[f"in a live conversation, {name}"].append(talked)
                if round_ and name == WITH:
                    latencies[ALONE].append(_read_alone(scorer, round_, self.conversations))
            name = f"{self.live:,} conversations of {LONG_TURNS} turns in turn"
            replayed = {name: _replay(kept, list(_interleave("live", self.live, LONG_TURNS)))}
            if self.data is not None:
                dialogues = read_dialogues(self.data, self.turns)
                said = [[turn.model_dump(include={"speaker", "text"}) for turn in each] for each in dialogues]
                asked = [body for each in said for body in replies(each)]
                replayed[f"{len(said)} dialogues of {self.data.name}"] = _replay(kept, asked)
        return Found(costs=costs, latencies=dict(latencies), replayed=replayed)

    def report(self, found: Found) -> Iterator[str]:
        yield _cost_table(found.costs)
        latencies = found.latencies
        rows = [[how, number(median(latencies[how]), 2), number(_beyond(latencies, how), 2)] for how in latencies]
        yield table(["a reply's score", "p50 ms", "more than the reply read alone"], rows, texts=1)
        yield _found_table(found.replayed)

    def checks(self, found: Found) -> Iterator[Check]:
        cpu, speed = _ratio(found.costs, REPLIES, "cpu_ms"), _ratio(found.costs, MIXED, "per_second")
        share, _ = next(iter(found.replayed.values()))
        claim = f"CPU per reply is at most {MOST_OF_CPU} of that without kept vectors"
        yield Check(claim, f"{cpu:.2f}", cpu <= MOST_OF_CPU)
        yield Check(f"at least {LEAST_FOUND:.0%} of earlier texts are found", f"{share:.1%}", share >= LEAST_FOUND)
        yield Check("throughput is not below that without", f"{speed:.2f} times", speed >= 1)
        for how in (each for each in found.latencies if each.endswith(f", {WITH}")):
            more = _beyond(found.latencies, how)
            claim = f"{how}: a reply's score takes at most {MOST_MS_BEYOND} ms more than the reply read alone"
            yield Check(claim, f"{more:.2f} ms", more <= MOST_MS_BEYOND)


def converse(name: str, turns: int) -> Said:
    """A conversation whose user begins, with lengths as in real ones; the same for the same name."""
    chance = random.Random(name)
    words = [(SYSTEM_WORDS if place % 2 else USER_WORDS).draw(chance) for place in range(turns)]
    item = Traffic(TrafficSettings(), name).item_of_length(words[:-1], words[-1])
    return [*item["context"], {"speaker": "system", "text": item["response"]}]


def replies(said: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A request to score each system turn, when it comes."""
    for place, turn in enumerate(said):
        if turn["speaker"] == "system" and place:
            yield json.dumps({"context": said[:place], "response": turn["text"]})


def _interleave(name: str, count: int, turns: int = TURNS) -> Iterator[str]:
    """The replies of so many conversations, one of each in turn."""
    all_of = [list(replies(converse(f"{name}/{each}", turns))) for each in range(count)]
    for asked in zip(*all_of, strict=True):
        yield from asked


def _rankings(name: str, count: int) -> list[str]:
    """Of each reply that is given, and others, when it comes."""
    asked = []
    for each in range(count):
        said = converse(f"{name}/{each}", RANK_TURNS)
        for place in range(1, RANK_TURNS, 2):
            others = [converse(f"{name}/{each}/{place}/{other}", 2)[1]["text"] for other in range(1, CANDIDATES)]
            asked.append(json.dumps({"context": said[:place], "candidates": [said[place]["text"], *others]}))
    return asked


def _one_by_one(name: str, count: int) -> list[str]:
    return [body for each in range(count) for body in replies(converse(f"{name}/{each}", TURNS))]


def _at_once(name: str, count: int) -> list[str]:
    return list(_interleave(name, max(count, CLIENTS)))


def _mixed(name: str, count: int) -> list[str]:
    traffic = Traffic(TrafficSettings(), name)
    return [json.dumps(traffic.next_ask().item) for _ in range(count * TURNS)]


REPLIES, MIXED = f"conversations of {TURNS} turns, reply by reply", f"{CLIENTS} clients, mixed"
# Which requests, their path, the clients, and what each request asks for.
WAYS: Mapping[str, tuple[Any, str, int, int]] = {
    REPLIES: (_one_by_one, "/v1/score", 1, 1),
    f"{CLIENTS} clients, such conversations at once": (_at_once, "/v1/score", CLIENTS, 1),
    f"rankings of {CANDIDATES} candidates in conversations of {RANK_TURNS} turns": (
        _rankings,
        "/v1/rank",
        1,
        CANDIDATES,
    ),
    MIXED: (_mixed, "/v1/score", CLIENTS, 1),
}


def measure_way(process: Process, name: str, way: str, round_: int, conversations: int) -> Cost:
    make, path, clients, size = WAYS[way]
    bodies = make(f"{way} {round_}", conversations)  # no way finds what another said
    done = drive(process, Job(port=process.port, path=path, bodies=bodies, clients=clients))
    asked = size * len(bodies)
    return Cost(
        way=way,
        service=name,
        cpu_ms=1000 * done["cpu_seconds"] / asked,
        p50_ms=median(done["latencies_ms"]),
        per_second=asked / done["wall_seconds"],
    )


def _talk(process: Process, round_: int, conversations: int) -> float:
    """Median milliseconds to the score of a reply that follows its user's turn after _WRITING_SECONDS."""
    took = []
    process.resume()
    with TurnScoreClient(f"http://127.0.0.1:{process.port}") as client:
        for each in range(conversations):
            with client.conversation() as conversation:
                for turn in converse(f"talk {round_}/{each}", TURNS):
                    if turn["speaker"] == "user":
                        conversation.say("user", turn["text"])
                        time.sleep(_WRITING_SECONDS)
                        continue
                    began = time.perf_counter()
                    conversation.say("system", turn["text"])
                    took.append(time.perf_counter() - began)
    process.pause()
    return 1000 * median(took)


def _read_alone(scorer: Scorer, round_: int, conversations: int) -> float:
    """Median milliseconds of the first graph for the row of a reply, of those that `_talk` scores."""
    took = []
    for each in range(conversations):
        for turn in converse(f"talk {round_}/{each}", TURNS)[1::2]:
            if (pack := scorer.read_ahead(TurnToScore([Turn(speaker="user", text=turn["text"])], ""))) is None:
                continue  # it was said before
            began = time.perf_counter()
            scorer.score([pack])
            took.append(time.perf_counter() - began)
    return 1000 * median(took)


def _replay(process: Process, bodies: Sequence[str]) -> tuple[float, float]:
    """Of the texts said before the user's last one the share that was found, and megabytes that are kept after it."""
    before = _read(process, "hits_total", role="context")
    drive(process, Job(port=process.port, path="/v1/score", bodies=list(bodies)), _SETTLE_SECONDS)
    hits, kept = _read(process, "hits_total", role="context") - before, _read(process, "bytes")
    repeats, earlier = _count_texts(bodies)
    return (hits - repeats) / max(1, earlier), kept / 1024**2


def _count_texts(bodies: Sequence[str]) -> tuple[int, int]:
    """How many of the last turns were said before, and are found for that; and how many other texts a model reads."""
    seen: set[str] = set()
    repeats = others = 0
    for body in bodies:
        item = json.loads(body)
        texts = [turn["text"] for turn in item["context"]]
        repeats += texts[-1] in seen
        others += len({*texts[-READ_TURNS:]} - {texts[-1]})
        seen.update([*texts, item["response"]])
    return repeats, others


def _read(process: Process, what: str, **labels: str) -> float:
    process.resume()
    found = metric(process.port, f"turnscore_kept_vector_{what}", **labels)
    process.pause()
    return found


def figures_of(costs: Sequence[Cost], way: str, service: str, figure: str) -> list[float]:
    return [getattr(each, figure) for each in costs if (each.way, each.service) == (way, service)]


def _ratio(costs: Sequence[Cost], way: str, figure: str) -> float:
    with_, without = (figures_of(costs, way, name, figure) for name in SETTINGS)
    return median(one / other for one, other in zip(with_, without, strict=True))


def _beyond(latencies: Mapping[str, Sequence[float]], how: str) -> float:
    return median(one - alone for one, alone in zip(latencies[how], latencies[ALONE], strict=True))


def _cost_table(costs: Sequence[Cost]) -> str:
    figures = ("cpu_ms", "p50_ms", "per_second")
    rows = []
    for way in WAYS:
        for name in SETTINGS:
            medians = [median(figures_of(costs, way, name, each)) for each in figures]
            rows.append([way, name, *(number(each, 2) for each in medians)])
        rows.append([way, "ratio", *(number(_ratio(costs, way, each), 2) for each in figures)])
    return table(["way", "vectors", "CPU ms per reply", "p50 ms", "per second"], rows, texts=2)


def _found_table(found: Mapping[str, tuple[float, float]]) -> str:
    rows = [[name, f"{share:.1%}", number(megabytes, 1)] for name, (share, megabytes) in found.items()]
    return table(["replayed", "earlier texts found at reply time", "MB kept"], rows, texts=1)

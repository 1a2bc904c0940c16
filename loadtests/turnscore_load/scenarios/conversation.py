"""Measures what kept vectors save: conversations reply by reply, rankings, 1,000 conversations in turn, 32 clients."""

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import sub
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

import typer
from turnscore_client import TurnScoreClient
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import load_scorers
from turnscore_core.scorers.scorer import Scorer, TurnToScore
from turnscore_wire import Turn
from typer import Option

from turnscore_load.fleet import STARTER
from turnscore_load.generator import Job, drive
from turnscore_load.machine import LOOPBACK
from turnscore_load.processes import Process, StartError
from turnscore_load.results import Check, Cost, figures_of, in_turn, number, ratio, rotate, seconds_of, table
from turnscore_load.scenario import Scenario
from turnscore_load.scenarios.equal import read_dialogues
from turnscore_load.services import metric
from turnscore_load.traffic import SYSTEM_WORDS, USER_WORDS, Traffic, TrafficSettings

TURNS, LONG_TURNS, RANK_TURNS, CANDIDATES, CLIENTS = 12, 20, 8, 8, 32
WITH, WITHOUT = "kept", "not kept"
QUALITY = f"{STARTER / 'quality'}/"
FIGURES = ("cpu_ms", "p50_ms", "per_second")
LIVE, ALONE = "in a live conversation", "the reply read alone by the first graph, in this process"
PACED = f"{ALONE}, at the pace of a live conversation"
MOST_OF_CPU, LEAST_FOUND, MOST_MS_BEYOND = 0.55, 0.9, 1.0
_OWN = {"TURNSCORE_MODELS": QUALITY, "TURNSCORE_CACHE__TTL_SECONDS": "0", "TURNSCORE_GRPC__ENABLED": "false"}
_READ_TURNS = 3  # Context turns that quality reads.
_WRITING_SECONDS = 0.05  # In a live conversation, from a user's turn to the reply: a fast model's first words.
_SETTLE_SECONDS = 1.0  # Until a service has written out what it counted.


@dataclass(kw_only=True)
class PairScenario(Scenario[Sequence[Cost]]):
    """One that compares two services of quality without a score cache, in alternating rounds."""

    starts: Annotated[int, Option(min=1, help="Times that both services are started, the other one first.")] = 4
    rounds: Annotated[int, Option(min=1, help="Rounds of each service after a start, in turns.")] = 2
    conversations: Annotated[int, Option(min=1, help="Conversations of a round.")] = 20

    services: ClassVar[tuple[str, str]]  # the names of both, of which the ratio is that of the first over the second

    def compare(self, settings: Mapping[str, Mapping[str, str]], ways: Iterable[str]) -> list[Cost]:
        """What each way costs each of these services.

        Both are started several times, in either order: a process keeps the speed it happened to start with. Measured:
        the ratio of the same code moved by up to 8 % with which of the two was started first.
        """
        costs: list[Cost] = []
        for start in range(self.starts):
            with ExitStack() as stack:
                services = {
                    name: stack.enter_context(self.started(name.replace(" ", "-"), {**_OWN, **settings[name]}))
                    for name in rotate(settings, start)
                }
                for each in services.values():
                    each.pause()
                for lap, name in in_turn(settings, self.rounds + 1):
                    typer.echo(f"start {start + 1} of {self.starts}, {f'round {lap}' if lap else 'warm-up'}: {name}")
                    round_ = start * (self.rounds + 1) + lap  # no start finds what another said
                    measured = [
                        (way, name, measure_way(services[name], way, round_, self.conversations)) for way in ways
                    ]
                    measured += self.measure_more(services[name], name, round_)
                    costs += measured if lap else []
                costs += self.measure_last(services) if start + 1 == self.starts else ()
        return costs

    def measure_more(self, service: Process, name: str, round_: int) -> Iterable[Cost]:
        """Whatever else is measured of a service in each round."""
        return ()

    def measure_last(self, services: Mapping[str, Process]) -> Iterable[Cost]:
        """Whatever else is measured after the last round."""
        return ()

    def ratio(self, found: Sequence[Cost], way: str, figure: str) -> float:
        """Of the first service to the second."""
        return ratio(found, figure, *((way, name) for name in self.services)) or math.nan

    def report(self, found: Sequence[Cost]) -> Iterator[str]:
        rows = []
        for way in dict.fromkeys(way for way, _, figures in found if FIGURES[0] in figures):
            figures = {name: [median(figures_of(found, way, name, each)) for each in FIGURES] for name in self.services}
            figures["ratio"] = [self.ratio(found, way, each) for each in FIGURES]
            rows += [[way, name, *(number(each, 2) for each in own)] for name, own in figures.items()]
        yield table(["way", "service", "CPU ms per reply", "p50 ms", "per second"], rows, texts=2)


@dataclass(kw_only=True)
class KeptConversations(PairScenario):
    """Compare a service that keeps vectors with one that keeps none."""

    services = (WITH, WITHOUT)

    data: Annotated[Path | None, Option(help="JSON lines of dialogues to replay as well.")] = None
    live: Annotated[int, Option(min=1, help="Conversations that go on in turn.")] = 1000
    turns: Annotated[int, Option(min=2, help="System turns of the replayed dialogues, about.")] = 2000

    def measure(self) -> Sequence[Cost]:
        self._scorer = load_scorers(LoadSettings(models=(QUALITY,), device="cpu"))["quality"].scorer
        return self.compare({WITH: {}, WITHOUT: {"TURNSCORE_RUNTIME__KEPT_VECTOR_BYTES": "0"}}, WAYS)

    def measure_more(self, service: Process, name: str, round_: int) -> Iterable[Cost]:
        yield LIVE, name, {"p50_ms": _talk(service, round_, self.conversations)}
        if name == WITH:
            for way, pause in ((ALONE, 0.0), (PACED, _WRITING_SECONDS)):
                yield way, name, {"p50_ms": _read_alone(self._scorer, round_, self.conversations, pause)}

    def measure_last(self, services: Mapping[str, Process]) -> Iterable[Cost]:
        name = f"{self.live:,} conversations of {LONG_TURNS} turns in turn"
        yield name, WITH, _replay(services[WITH], _in_turn("live", self.live, LONG_TURNS))
        if self.data is not None:
            dialogues = read_dialogues(self.data, self.turns)
            said = [[turn.model_dump(include={"speaker", "text"}) for turn in each] for each in dialogues]
            asked = [body for each in said for body in _replies(each)]
            yield f"{len(said)} dialogues of {self.data.name}", WITH, _replay(services[WITH], asked)

    def report(self, found: Sequence[Cost]) -> Iterator[str]:
        yield from super().report(found)
        rows = []
        for way, name in (*product((REPLIES, LIVE), self.services), (ALONE, WITH), (PACED, WITH)):
            took, more = median(figures_of(found, way, name, "p50_ms")), self._beyond(found, way, name)
            rows.append([way, name, number(took, 2), number(more, 2)])
        yield table(["a reply's score", "service", "p50 ms", "more than the reply read alone"], rows, texts=2)
        rows = [[way, f"{row['found']:.1%}", number(row["megabytes"], 1)] for way, _, row in found if "found" in row]
        yield table(["replayed", "earlier texts found at reply time", "MB kept"], rows, texts=1)

    def checks(self, found: Sequence[Cost]) -> Iterator[Check]:
        cpu, speed = (self.ratio(found, *each) for each in ((REPLIES, "cpu_ms"), (MIXED, "per_second")))
        share = next(row["found"] for _, _, row in found if "found" in row)
        claim = f"CPU per reply is at most {MOST_OF_CPU} of that without kept vectors"
        yield Check(claim, f"{cpu:.2f}", cpu <= MOST_OF_CPU)
        yield Check(f"at least {LEAST_FOUND:.0%} of earlier texts are found", f"{share:.1%}", share >= LEAST_FOUND)
        yield Check("throughput is not below that without", f"{speed:.2f} times", speed >= 1)
        for way in (REPLIES, LIVE):
            more = self._beyond(found, way, WITH)
            claim = f"{way}: a reply's score takes at most {MOST_MS_BEYOND} ms more than the reply read alone"
            yield Check(claim, f"{more:.2f} ms", more <= MOST_MS_BEYOND)

    def _beyond(self, found: Sequence[Cost], way: str, name: str) -> float:
        reading = PACED if way in (LIVE, PACED) else ALONE
        took, alone = figures_of(found, way, name, "p50_ms"), figures_of(found, reading, WITH, "p50_ms")
        return float(median(map(sub, took, alone)))


Said = list[dict[str, str]]


def converse(name: str, turns: int = TURNS) -> Said:
    """A conversation whose user begins, with lengths as in real ones; the same for the same name."""
    chance = random.Random(name)
    words = [(SYSTEM_WORDS if place % 2 else USER_WORDS).draw(chance) for place in range(turns)]
    item = Traffic(TrafficSettings(), name).item_of_length(words[:-1], words[-1])
    return [*item["context"], {"speaker": "system", "text": item["response"]}]


def _replies(said: Said) -> Iterator[str]:
    """A request to score each system turn, when it comes."""
    for place, turn in enumerate(said):
        if turn["speaker"] == "system" and place:
            yield json.dumps({"context": said[:place], "response": turn["text"]})


def _one_by_one(name: str, count: int) -> list[str]:
    return [body for each in range(count) for body in _replies(converse(f"{name}/{each}"))]


def _in_turn(name: str, count: int, turns: int) -> list[str]:
    """One reply of each of so many conversations in turn."""
    all_of = [_replies(converse(f"{name}/{each}", turns)) for each in range(count)]
    return [body for asked in zip(*all_of, strict=True) for body in asked]


def _at_once(name: str, count: int) -> list[str]:
    return _in_turn(name, max(count, CLIENTS), TURNS)


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
    done = _ask_all(process, Job(port=process.port, path=path, bodies=bodies, clients=clients))
    asked = size * len(bodies)  # Replies or candidates.
    figures = (1000 * done["cpu_seconds"] / asked, median(done["latencies_ms"]), asked / done["wall_seconds"])
    return dict(zip(FIGURES, figures, strict=True))


def _ask_all(process: Process, job: Job, *settle: float) -> dict[str, Any]:
    """Raises StartError where one is not answered: the figures would be of something else."""
    done = drive(process, job, *settle)
    if done["failed"] or done["refused"]:
        raise StartError(f"{done['failed']} failed, {done['refused']} refused: {done['first_error']}")
    return done


def _talk(process: Process, round_: int, conversations: int) -> float:
    """Median milliseconds to the score of a reply that follows its user's turn after _WRITING_SECONDS."""
    took = []
    process.resume()
    with TurnScoreClient(f"http://{LOOPBACK}:{process.port}") as client:
        for each in range(conversations):
            with client.conversation() as conversation:
                for turn in converse(f"talk {round_}/{each}"):
                    if turn["speaker"] == "user":
                        conversation.say("user", turn["text"])
                        time.sleep(_WRITING_SECONDS)
                        continue
                    took.append(seconds_of(partial(conversation.say, "system", turn["text"])))
    process.pause()
    return 1000 * median(took)


def _read_alone(scorer: Scorer, round_: int, conversations: int, pause: float) -> float:
    """Median milliseconds of the first graph for the row of a reply, of lengths as `_talk` scores.

    After so many seconds each: its weights are no longer in the processor's caches then, as in a live conversation.
    """
    took = []
    for each in range(conversations):
        for turn in converse(f"read after {pause} {round_}/{each}")[1::2]:
            if (pack := scorer.read_ahead(TurnToScore([Turn(speaker="user", text=turn["text"])], ""))) is None:
                continue  # it was said before
            time.sleep(pause)
            took.append(seconds_of(partial(scorer.score, [pack])))
    return 1000 * median(took)


def _replay(process: Process, bodies: Sequence[str]) -> Mapping[str, float]:
    """Of the texts said before the user's last one the share that was found, and megabytes that are kept after it."""
    before = _read(process, "hits_total", role="context")
    _ask_all(process, Job(port=process.port, path="/v1/score", bodies=list(bodies)), _SETTLE_SECONDS)
    hits, kept = _read(process, "hits_total", role="context") - before, _read(process, "bytes")
    # How many of the last turns were said before, and are found for that; and how many other texts a model reads.
    seen: set[str] = set()
    repeats = others = 0
    for body in bodies:
        item = json.loads(body)
        texts = [turn["text"] for turn in item["context"]]
        repeats += texts[-1] in seen
        others += len({*texts[-_READ_TURNS:]} - {texts[-1]})
        seen.update([*texts, item["response"]])
    return {"found": (hits - repeats) / max(1, others), "megabytes": kept / 1024**2}


def _read(process: Process, what: str, **labels: str) -> float:
    process.resume()
    found = metric(process.port, f"turnscore_kept_vector_{what}", **labels)
    process.pause()
    return found

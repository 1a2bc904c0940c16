"""Scores the same turns in every way a service can be asked, and compares by how much their scores differ.

The first way is each turn by itself, one after the other, without a cache; every other is compared with it.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from turnscore_client import TurnScoreClient
from turnscore_wire import Score, ScoreReply, Turn
from typer import Argument, Option

from turnscore_load.machine import ScenarioError
from turnscore_load.results import Check, table
from turnscore_load.scenario import Scenario

Scores = Mapping[str, Score]  # one turn's scores by scorer
Item = Mapping[str, Any]  # one system turn: the `context` before it, and the `response`

# Turns of one batch, responses of one ranking and callers at once: chosen, as chatbots ask.
BATCH = 16
CANDIDATES = 4
CALLERS = 16
_TIMEOUT_SECONDS = 300.0
_PERCENTILE = "percentile"

# How far a value, or a detail that is no percentile, may lie from the one of the turn by itself: what the documents
# promise for the starter bundles. Chosen: above what was measured over 500 turns, docs/api.md.
BOUNDS = {"engagement": 1e-6, "quality": 1e-6, "sentiment_stop": 1e-6, "fed": 0.02}


class UnequalScoresError(ScenarioError):
    """A way gave other scores than the bound allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one scorer's scores, asked in one way, differ from those of each turn by itself."""

    way: str
    scorer: str
    turns: int
    differing: int  # turns of which any number is another
    detail: float  # the largest difference of a value or a detail that is no percentile,
    percentile: float  # and of a percentile, in points


@dataclass(kw_only=True)
class Equal(Scenario[list[Difference]]):
    """Start the service twice, and ask each way. DATA: lines of `{"turns": [{"speaker", "text"}]}`."""

    data: Annotated[Path, Argument(help="JSON lines of dialogues; may be gzipped.")]
    turns: Annotated[int, Option(min=2, max=5000, help="System turns to score, about.")] = 500

    def measure(self) -> list[Difference]:
        dialogues = read_dialogues(self.data, self.turns)
        with (
            self.started("first", clean=False) as first,
            self.started("second", clean=False) as second,
            TurnScoreClient(first.url, timeout_seconds=_TIMEOUT_SECONDS) as client,
            TurnScoreClient(second.url, timeout_seconds=_TIMEOUT_SECONDS) as again,
        ):
            return compare_ways(client, again, dialogues)

    def report(self, found: list[Difference]) -> Iterator[str]:
        rows = []
        for each in sorted(found, key=lambda each: each.scorer):
            figures = [f"{number:.1e}" if number else "0" for number in (each.detail, each.percentile)]
            rows.append([each.scorer, each.way, f"{each.differing} of {each.turns}", *figures])
        head = ["scorer", "asked", "turns that differ", "value, quality or head", "percentile points"]
        yield table(head, rows)

    def checks(self, found: list[Difference]) -> list[Check]:
        return check_bounds(found)


def read_dialogues(file: Path, most_turns: int) -> list[list[Turn]]:
    """Dialogues of the JSON lines, `turns` with `speaker` and `text`, until they have that many system turns."""
    found: list[list[Turn]] = []
    count = 0
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        for line in lines:
            turns = [Turn(speaker=each["speaker"], text=each["text"]) for each in json.loads(line)["turns"]]
            turns = [turn for turn in turns if turn.text.strip()]
            if any(turn.speaker == "system" for turn in turns):
                found.append(turns)
                count += sum(turn.speaker == "system" for turn in turns)
            if count >= most_turns:
                break
    return found


def compare_ways(
    client: TurnScoreClient, again: TurnScoreClient, dialogues: Sequence[Sequence[Turn]]
) -> list[Difference]:
    """Asks each way; `again` is a second service, or the same one, for what is asked after a restart."""
    said: list[Item] = [
        {"context": turns[:place], "response": turn.text}
        for turns in dialogues
        for place, turn in enumerate(turns)
        if turn.speaker == "system"
    ]
    alone = _one_by_one(client, said)
    ways: dict[str, Callable[[], list[Scores]]] = {
        "again": lambda: _one_by_one(client, said),
        f"in a batch of {BATCH}": lambda: _in_batches(client, said),
        "in its dialogue": lambda: [
            turn.scores for each in dialogues for turn in client.score_dialogue(turns=each, cache="bypass").turns
        ],
        f"in a ranking of {CANDIDATES}": lambda: _in_rankings(client, said),
        "in a live conversation": lambda: _in_conversations(client, dialogues),
        f"with {CALLERS - 1} other callers": lambda: _one_by_one(client, said, callers=CALLERS),
        "after a restart": lambda: _one_by_one(again, said),
    }
    found = []
    for way, ask in ways.items():
        scores = ask()
        found += [_difference(way, name, alone, scores) for name in alone[0] if name in scores[0]]
    return found


def check_bounds(differences: Sequence[Difference], bounds: Mapping[str, float] = BOUNDS) -> list[Check]:
    """Whether each scorer stays within its bound in every way; a scorer without one has 0."""
    found = []
    for name in dict.fromkeys(each.scorer for each in differences):
        bound = bounds.get(name, 0.0)
        worst = max((each for each in differences if each.scorer == name), key=lambda each: each.detail)
        beyond = [f"{e.way}: {e.detail:.2e}" for e in differences if e.scorer == name and not e.detail <= bound]
        told = "; ".join(beyond) or f"{worst.detail:.2e} {worst.way}"
        found.append(Check(f"{name} differs by at most {bound:.0e}", told, not beyond))
    return found


def _one_by_one(client: TurnScoreClient, said: Sequence[Item], callers: int = 1) -> list[Scores]:
    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(lambda each: client.score(**each, cache="bypass").scores, said))


def _in_batches(client: TurnScoreClient, said: Sequence[Item]) -> list[Scores]:
    """Turns that have nothing to do with each other, of all lengths."""
    order = random.Random(1).sample(range(len(said)), len(said))
    found: dict[int, Scores] = {}
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        reply = client.score_batch([said[place] for place in places], cache="bypass")
        for place, result in zip(places, reply.results, strict=True):
            if not isinstance(result, ScoreReply):
                raise UnequalScoresError(f"a turn of a batch was not scored: {result.error.message}")
            found[place] = result.scores
    return [found[place] for place in range(len(said))]


def _in_rankings(client: TurnScoreClient, said: Sequence[Item]) -> list[Scores]:
    """Each response before the three that are said next somewhere."""
    found: list[Scores] = []
    for place, each in enumerate(said):
        others = [said[(place + step) % len(said)]["response"] for step in range(1, CANDIDATES)]
        ranked = client.rank([each["response"], *others], context=each["context"], cache="bypass").candidates
        found.append(next(candidate.scores for candidate in ranked if candidate.index == 0))
    return found


def _in_conversations(client: TurnScoreClient, dialogues: Sequence[Sequence[Turn]]) -> list[Scores]:
    found: list[Scores] = []
    for turns in dialogues:
        with client.conversation(cache="bypass") as conversation:
            for turn in turns:
                scored = conversation.say(turn.speaker, turn.text)
                if scored is not None:
                    found.append(scored.scores)
    return found


def _difference(way: str, scorer: str, alone: Sequence[Scores], asked: Sequence[Scores]) -> Difference:
    pairs = [(_numbers(one[scorer]), _numbers(other[scorer])) for one, other in zip(alone, asked, strict=True)]
    largest = {True: 0.0, False: 0.0}  # by whether it is of a percentile
    for first, second in pairs:
        for name, number in first.items():
            is_percentile = name.endswith(_PERCENTILE)
            largest[is_percentile] = max(largest[is_percentile], abs(number - second[name]))
    return Difference(
        way=way, scorer=scorer, turns=len(alone), differing=sum(first != second for first, second in pairs),
        detail=largest[False], percentile=largest[True],
    )  # fmt: skip


def _numbers(score: Score) -> dict[str, float]:
    return {**score.details, "value": score.value, _PERCENTILE: score.percentile or 0.0}

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
from typing import Annotated

import typer
from turnscore_client import TurnScoreClient
from turnscore_wire import Score, ScoreReply, Turn

from turnscore_load.processes import started
from turnscore_load.results import Check, ScenarioResult, table
from turnscore_load.scenarios.steady import REPORTS, Program, Reports
from turnscore_load.services import BENTOML, service_process

Scores = Mapping[str, Score]
"""One turn's scores by scorer."""

BATCH = 16
CANDIDATES = 4
CALLERS = 16
"""Turns of one batch, responses of one ranking and callers at once: chosen, as chatbots ask."""
_TIMEOUT_SECONDS = 300.0
_PERCENTILE = "percentile"

BOUNDS = {"engagement": 1e-6, "quality": 1e-6, "sentiment_stop": 1e-6, "fed": 0.02}
"""How far a value, or a detail that is no percentile, may lie from the one of the turn by itself: what the documents
promise for the starter bundles. Chosen: above what was measured over 500 turns, docs/api.md."""


class UnequalScoresError(Exception):
    """A way gave other scores than the bound allows."""


@dataclass(frozen=True, slots=True)
class Said:
    """One system turn: what was said before it, and what follows it in the dialogue."""

    dialogue: int
    context: Sequence[Turn]
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one scorer's scores, asked in one way, differ from those of each turn by itself."""

    way: str
    scorer: str
    turns: int
    differing: int
    """Turns of which any number is another."""
    value: float
    detail: float
    """The largest difference of a value, and of a value or a detail that is no percentile."""
    percentile: float
    """The largest difference of a percentile, in points."""


def main(
    data: Annotated[Path, typer.Argument(help="JSON lines of dialogues; may be gzipped.")],
    turns: Annotated[int, typer.Option(min=2, max=5000, help="System turns to score, about.")] = 500,
    bentoml: Program = BENTOML,
    reports: Reports = REPORTS,
) -> ScenarioResult:
    """Start the service twice, and ask each way. DATA: lines of `{"turns": [{"speaker", "text"}]}`."""
    dialogues, folder = read_dialogues(data, turns), reports.absolute() / "equal"
    with (
        started(service_process(bentoml, folder / "first")) as first,
        started(service_process(bentoml, folder / "second")) as second,
        TurnScoreClient(first.url, timeout_seconds=_TIMEOUT_SECONDS) as client,
        TurnScoreClient(second.url, timeout_seconds=_TIMEOUT_SECONDS) as again,
    ):
        differences = compare_ways(client, again, dialogues)
    return ScenarioResult(scenario="equal", parts=[difference_table(differences)], checks=check_bounds(differences))


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
    said = list(_system_turns(dialogues))
    alone = [_score(client, each) for each in said]
    ways: dict[str, Callable[[], list[Scores]]] = {
        "again": lambda: [_score(client, each) for each in said],
        f"in a batch of {BATCH}": lambda: _in_batches(client, said),
        "in its dialogue": lambda: _in_dialogues(client, dialogues),
        f"in a ranking of {CANDIDATES}": lambda: _in_rankings(client, said),
        "in a live conversation": lambda: _in_conversations(client, dialogues),
        f"with {CALLERS - 1} other callers": lambda: _with_others(client, said),
        "after a restart": lambda: [_score(again, each) for each in said],
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


def difference_table(differences: Sequence[Difference]) -> str:
    """The differences in Markdown."""
    rows = []
    for each in sorted(differences, key=lambda each: each.scorer):
        figures = [f"{number:.1e}" if number else "0" for number in (each.value, each.detail, each.percentile)]
        rows.append([each.scorer, each.way, f"{each.differing} of {each.turns}", *figures])
    head = ["scorer", "asked", "turns that differ", "value", "any quality or head", "percentile points"]
    return table(head, rows)


def _system_turns(dialogues: Sequence[Sequence[Turn]]) -> Iterator[Said]:
    for number, turns in enumerate(dialogues):
        for place, turn in enumerate(turns):
            if turn.speaker == "system":
                yield Said(number, turns[:place], turn.text)


def _score(client: TurnScoreClient, said: Said) -> Scores:
    return client.score(context=said.context, response=said.response, cache="bypass").scores


def _in_batches(client: TurnScoreClient, said: Sequence[Said]) -> list[Scores]:
    """Turns that have nothing to do with each other, of all lengths."""
    order = random.Random(1).sample(range(len(said)), len(said))
    found: dict[int, Scores] = {}
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        items = [{"context": said[place].context, "response": said[place].response} for place in places]
        reply = client.score_batch(items, cache="bypass")
        for place, result in zip(places, reply.results, strict=True):
            if not isinstance(result, ScoreReply):
                raise UnequalScoresError(f"a turn of a batch was not scored: {result.error.message}")
            found[place] = result.scores
    return [found[place] for place in range(len(said))]


def _in_dialogues(client: TurnScoreClient, dialogues: Sequence[Sequence[Turn]]) -> list[Scores]:
    return [turn.scores for turns in dialogues for turn in client.score_dialogue(turns=turns, cache="bypass").turns]


def _in_rankings(client: TurnScoreClient, said: Sequence[Said]) -> list[Scores]:
    """Each response before the three that are said next somewhere."""
    found: list[Scores] = []
    for place, each in enumerate(said):
        others = [said[(place + step) % len(said)].response for step in range(1, CANDIDATES)]
        ranked = client.rank([each.response, *others], context=each.context, cache="bypass").candidates
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


def _with_others(client: TurnScoreClient, said: Sequence[Said]) -> list[Scores]:
    with ThreadPoolExecutor(CALLERS) as callers:
        return list(callers.map(lambda each: _score(client, each), said))


def _difference(way: str, scorer: str, alone: Sequence[Scores], asked: Sequence[Scores]) -> Difference:
    values, details, percentiles, differing = 0.0, 0.0, 0.0, 0
    for one, other in zip(alone, asked, strict=True):
        first, second = _numbers(one[scorer]), _numbers(other[scorer])
        differing += first != second
        values = max(values, abs(first["value"] - second["value"]))
        for name, number in first.items():
            if name.endswith(_PERCENTILE):
                percentiles = max(percentiles, abs(number - second[name]))
            else:
                details = max(details, abs(number - second[name]))
    return Difference(
        way=way, scorer=scorer, turns=len(alone), differing=differing, value=values, detail=details,
        percentile=percentiles,
    )  # fmt: skip


def _numbers(score: Score) -> dict[str, float]:
    return {**score.details, "value": score.value, _PERCENTILE: score.percentile or 0.0}

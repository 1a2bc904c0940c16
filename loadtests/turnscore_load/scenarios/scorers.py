"""Measures what a turn costs each scorer and several together: one process, one thread, no service around them."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models import read_bundle, starter_bundles
from turnscore_wire import Turn

from turnscore_load.results import ScenarioResult, rotate, table
from turnscore_load.scenarios.equal import read_dialogues

BEFORE = ("engagement", "sentiment_stop")
SETS: list[tuple[str, ...]] = [("sentiment_stop",), ("engagement",), ("quality",), BEFORE, (*BEFORE, "quality")]

TOGETHER = 16
"""Turns, each of another dialogue, in one batch at most: what a busy service makes of its callers' requests."""

Dialogue = Sequence[Turn]
Work = Sequence[Sequence[TurnToScore]]
"""Turns by batch."""


@dataclass(frozen=True, kw_only=True)
class ScorerCost:
    """What one set of scorers took for one way of asking, in every round."""

    way: str
    scorers: tuple[str, ...]
    milliseconds: Sequence[float]
    """CPU milliseconds per turn, by round."""

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)


def main(
    data: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSON lines of dialogues; may be gzipped.")],
    turns: Annotated[int, typer.Option(min=2, max=5000, help="System turns to score, about.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each is run, alternating.")] = 5,
) -> ScenarioResult:
    """Measure the CPU time of a turn by scorer, and its ratio to sentiment_stop's."""
    bundles = [read_bundle(folder) for folder in starter_bundles() if folder.name in SETS[-1]]
    scorers = {each.manifest.kind: load_scorer(each, choose_variant(each), threads=1) for each in bundles}
    ways = plan_ways(read_dialogues(data, turns))
    costs = measure_costs(scorers, SETS, ways, rounds)
    count = sum(map(len, next(iter(ways.values()))))
    served = ", ".join(f"`{each.manifest.reference}`" for each in bundles)
    told = f"{served}; {count} system turns of {data.name}, one thread, medians of {rounds} alternating rounds."
    return ScenarioResult(scenario="scorers", parts=[told, format_costs(costs)], data=costs)


def plan_ways(dialogues: Sequence[Dialogue]) -> dict[str, Work]:
    """The same turns asked alone, in batches of other dialogues' turns, and a dialogue at a time."""
    by_dialogue = [_system_turns(dialogue) for dialogue in dialogues]
    batches: list[list[TurnToScore]] = []
    for place in range(max(map(len, by_dialogue))):
        at_place = [turns[place] for turns in by_dialogue if place < len(turns)]
        batches += [at_place[start : start + TOGETHER] for start in range(0, len(at_place), TOGETHER)]
    return {
        "each turn alone": [[turn] for turns in by_dialogue for turn in turns],
        f"up to {TOGETHER} turns of as many dialogues in a batch": batches,
        "all turns of a dialogue in a batch": [turns for turns in by_dialogue if turns],
    }


def _system_turns(dialogue: Dialogue) -> list[TurnToScore]:
    return [TurnToScore(dialogue[:place], turn.text) for place, turn in enumerate(dialogue) if turn.speaker == "system"]


def measure_costs(
    scorers: Mapping[str, LoadedScorer], sets: Sequence[tuple[str, ...]], ways: Mapping[str, Work], rounds: int
) -> list[ScorerCost]:
    """Every way with every set of scorers, `rounds` times in turns, so that what else the machine does hits all alike.

    The first round of each, which finds memory, is run before and not counted.
    """
    taken: dict[tuple[str, tuple[str, ...]], list[float]] = {(way, names): [] for way in ways for names in sets}
    for number in range(rounds + 1):
        for way, work in ways.items():
            for names in rotate(sets, number):
                took = _measure([scorers[name] for name in names], work)
                if number:
                    taken[way, names].append(took)
    return [ScorerCost(way=way, scorers=names, milliseconds=took) for (way, names), took in taken.items()]


def _measure(scorers: Sequence[LoadedScorer], work: Work) -> float:
    """CPU milliseconds per turn: trimming, tokenizing, the graph, and the score with its percentile and label."""
    started_at = time.process_time()
    for turns in work:
        for loaded in scorers:
            for raw in loaded.scorer.score(loaded.scorer.encode([loaded.trim(turn) for turn in turns])):
                loaded.percentile(raw), loaded.label(raw)
    return 1000 * (time.process_time() - started_at) / sum(map(len, work))


def format_costs(costs: Sequence[ScorerCost]) -> str:
    """A row for each set of scorers; in every cell the milliseconds and the ratio to the first set's in the same way.

    In brackets stand the least and the largest ratio of any round.
    """
    ways = list(dict.fromkeys(each.way for each in costs))
    by_key = {(each.way, each.scorers): each for each in costs}
    base = costs[0].scorers
    rows = []
    for names in dict.fromkeys(each.scorers for each in costs):
        cells = [_cell(by_key[way, names], by_key[way, base]) for way in ways]
        rows.append([" + ".join(names), *cells])
    return table(["CPU ms per turn", *ways], rows, texts=1 + len(ways))


def _cell(cost: ScorerCost, base: ScorerCost) -> str:
    if cost is base:
        return f"{cost.median:.2f}"
    ratios = [own / other for own, other in zip(cost.milliseconds, base.milliseconds, strict=True)]
    return f"{cost.median:.2f}; {cost.median / base.median:.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]"

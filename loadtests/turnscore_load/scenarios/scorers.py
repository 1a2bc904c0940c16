"""Measures what a turn costs each scorer and several together: one process, one thread, no service around them."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models import read_bundle, starter_bundles
from turnscore_wire import Turn
from typer import Argument, Option

from turnscore_load.results import rotate, table
from turnscore_load.scenario import Scenario
from turnscore_load.scenarios.equal import read_dialogues

BEFORE = ("engagement", "sentiment_stop")
SETS: list[tuple[str, ...]] = [("sentiment_stop",), ("engagement",), ("quality",), BEFORE, (*BEFORE, "quality")]

# Turns, each of another dialogue, in one batch at most: what a busy service makes of its callers' requests.
TOGETHER = 16

Dialogue = Sequence[Turn]
Work = Sequence[Sequence[TurnToScore]]  # turns by batch


@dataclass(frozen=True, kw_only=True)
class ScorerCost:
    """What one set of scorers took for one way of asking, in every round."""

    way: str
    scorers: tuple[str, ...]
    milliseconds: Sequence[float]  # of CPU per turn, by round

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)


@dataclass(kw_only=True)
class Scorers(Scenario[list[ScorerCost]]):
    """Measure the CPU time of a turn by scorer, and its ratio to sentiment_stop's."""

    data: Annotated[Path, Argument(exists=True, dir_okay=False, help="JSON lines of dialogues; may be gzipped.")]
    turns: Annotated[int, Option(min=2, max=5000, help="System turns to score, about.")] = 300
    rounds: Annotated[int, Option(min=1, help="Times that each is run, alternating.")] = 5

    def measure(self) -> list[ScorerCost]:
        bundles = [read_bundle(folder) for folder in starter_bundles() if folder.name in SETS[-1]]
        scorers = {each.manifest.kind: load_scorer(each, choose_variant(each), threads=1) for each in bundles}
        return measure_costs(scorers, SETS, plan_ways(read_dialogues(self.data, self.turns)), self.rounds)

    def report(self, found: list[ScorerCost]) -> Iterator[str]:
        """A row for each set of scorers; in every cell the milliseconds and the ratio to the first set's.

        In brackets stand the least and the largest ratio of any round.
        """
        yield f"About {self.turns} system turns of {self.data.name}, one thread, medians of {self.rounds} rounds."
        ways = list(dict.fromkeys(each.way for each in found))
        by_key = {(each.way, each.scorers): each for each in found}
        rows = []
        for names in dict.fromkeys(each.scorers for each in found):
            cells = [_cell(by_key[way, names], by_key[way, found[0].scorers]) for way in ways]
            rows.append([" + ".join(names), *cells])
        yield table(["CPU ms per turn", *ways], rows, texts=1 + len(ways))


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


def _cell(cost: ScorerCost, base: ScorerCost) -> str:
    if cost is base:
        return f"{cost.median:.2f}"
    ratios = [own / other for own, other in zip(cost.milliseconds, base.milliseconds, strict=True)]
    return f"{cost.median:.2f}; {cost.median / base.median:.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]"

"""Measures what a turn costs each scorer and several together: one process, one thread, no service around them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models.bundle import read_bundle, starter_bundles
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


# CPU milliseconds per turn by round: of what one set of scorers took for one way of asking.
Costs = dict[str, dict[str, list[float]]]


@dataclass(kw_only=True)
class Scorers(Scenario[Costs]):
    """Measure the CPU time of a turn by scorer, and its ratio to sentiment_stop's."""

    data: Annotated[Path, Argument(exists=True, dir_okay=False, help="JSON lines of dialogues; may be gzipped.")]
    turns: Annotated[int, Option(min=2, max=5000, help="System turns to score, about.")] = 300
    rounds: Annotated[int, Option(min=1, help="Times that each is run, alternating.")] = 5

    def measure(self) -> Costs:
        """Every way with every set of scorers, in turns, so that what else the machine does hits all alike.

        The first round of each, which finds memory, is run before and not counted.
        """
        bundles = [read_bundle(folder) for folder in starter_bundles() if folder.name in SETS[-1]]
        scorers = {each.manifest.kind: load_scorer(each, choose_variant(each), threads=1) for each in bundles}
        # The same turns asked alone, in batches of other dialogues' turns, and a dialogue at a time.
        by_dialogue = [_system_turns(dialogue) for dialogue in read_dialogues(self.data, self.turns)]
        batches: list[list[TurnToScore]] = []
        for place in range(max(map(len, by_dialogue))):
            at_place = [turns[place] for turns in by_dialogue if place < len(turns)]
            batches += [at_place[start : start + TOGETHER] for start in range(0, len(at_place), TOGETHER)]
        ways = {
            "each turn alone": [[turn] for turns in by_dialogue for turn in turns],
            f"up to {TOGETHER} turns of as many dialogues in a batch": batches,
            "all turns of a dialogue in a batch": [turns for turns in by_dialogue if turns],
        }
        found: Costs = {" + ".join(names): {way: [] for way in ways} for names in SETS}
        for number in range(self.rounds + 1):
            for way, work in ways.items():
                for names in rotate(SETS, number):
                    took = _measure([scorers[name] for name in names], work)
                    if number:
                        found[" + ".join(names)][way].append(took)
        return found

    def report(self, found: Costs) -> Iterator[str]:
        """A row for each set of scorers; in every cell the milliseconds and the ratio to the first set's.

        In brackets stand the least and the largest ratio of any round.
        """
        yield f"About {self.turns} system turns of {self.data.name}, one thread, medians of {self.rounds} rounds."
        base = next(iter(found.values()))
        rows = [[names, *(_cell(took, base[way]) for way, took in by_way.items())] for names, by_way in found.items()]
        yield table(["CPU ms per turn", *base], rows, texts=1 + len(base))


def _system_turns(dialogue: Dialogue) -> list[TurnToScore]:
    return [TurnToScore(dialogue[:place], turn.text) for place, turn in enumerate(dialogue) if turn.speaker == "system"]


def _measure(scorers: Sequence[LoadedScorer], work: Work) -> float:
    """CPU milliseconds per turn: trimming, tokenizing, the graph, and the score with its percentile and label."""
    started_at = time.process_time()
    for turns in work:
        for loaded in scorers:
            for raw in loaded.scorer.score(loaded.scorer.encode([loaded.scorer.trim(turn) for turn in turns])):
                loaded.percentile(raw), loaded.label(raw)
    return 1000 * (time.process_time() - started_at) / sum(map(len, work))


def _cell(took: Sequence[float], base: Sequence[float]) -> str:
    if took is base:
        return f"{median(took):.2f}"
    ratios = [own / other for own, other in zip(took, base, strict=True)]
    ratio = median(took) / median(base)
    return f"{median(took):.2f}; {ratio:.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]"

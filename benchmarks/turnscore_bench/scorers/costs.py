"""CPU seconds per turn of each set of scorers, in one process, one thread, without a service around them."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_wire import Turn

TOGETHER = 16
"""Turns, each of another dialogue, in one batch at most: what a busy service makes of its callers' requests."""

Dialogue = Sequence[Turn]
Work = Sequence[Sequence[TurnToScore]]
"""Turns by batch."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one set of scorers took for one way of asking, in every round."""

    way: str
    scorers: tuple[str, ...]
    milliseconds: Sequence[float]
    """CPU milliseconds per turn, by round."""

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)


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
) -> list[Cost]:
    """Every way with every set of scorers, `rounds` times in turns, so that what else the machine does hits all alike.

    The first round of each, which finds memory, is run before and not counted.
    """
    taken: dict[tuple[str, tuple[str, ...]], list[float]] = {(way, names): [] for way in ways for names in sets}
    for number in range(rounds + 1):
        for way, work in ways.items():
            for names in [*sets[number % len(sets) :], *sets[: number % len(sets)]]:
                took = _measure([scorers[name] for name in names], work)
                if number:
                    taken[way, names].append(took)
    return [Cost(way=way, scorers=names, milliseconds=took) for (way, names), took in taken.items()]


def _measure(scorers: Sequence[LoadedScorer], work: Work) -> float:
    """CPU milliseconds per turn: trimming, tokenizing, the graph, and the score with its percentile and label."""
    started_at = time.process_time()
    for turns in work:
        for loaded in scorers:
            for raw in loaded.scorer.score(loaded.scorer.encode([loaded.trim(turn) for turn in turns])):
                loaded.percentile(raw), loaded.label(raw)
    return 1000 * (time.process_time() - started_at) / sum(map(len, work))

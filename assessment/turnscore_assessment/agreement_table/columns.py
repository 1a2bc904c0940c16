"""Columns: each scorer's, part's and sum's numbers for the items of a set, and the trivial baselines."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import PERCENTILE_SUFFIX, RawScore, TurnToScore

from turnscore_assessment.agreement.bundles import score_turns
from turnscore_assessment.agreement.judged_dialogues import VALUE, average_parts
from turnscore_assessment.agreement_table.judged_sets import DIALOGUES, JudgedItem, JudgedSet, draw_places
from turnscore_assessment.figures import Floats

SLOW = "fed"
"""The scorer that takes ten times as long as the others, so it scores fewer turns."""
SUMMED = ("engagement", "sentiment_stop")
MIXED = ("quality", *SUMMED)
LENGTH = "length in characters"
POSITION: Mapping[str, str] = {"turns": "position in the dialogue", DIALOGUES: "system turns in the dialogue"}
_PERCENTILE = "percentile"

Parts = Mapping[str, float]
"""One scorer's numbers of one turn: `value`, `percentile` and its details."""
TurnKey = tuple[tuple[str, ...], str]
Say = Callable[[str], None]


@dataclass(frozen=True)
class ScoredSet:
    """A set with a column of numbers for each score, NaN where a scorer was not asked or does not count the turn."""

    judged: JudgedSet
    scores: Mapping[str, Floats]
    baselines: Mapping[str, Floats]

    @property
    def columns(self) -> dict[str, Floats]:
        """Scores first."""
        return {**self.scores, **self.baselines}


def score_sets(
    sets: Sequence[JudgedSet], scorers: Mapping[str, LoadedScorer], slow_turns: int, seed: int, say: Say
) -> list[ScoredSet]:
    """The columns of every set. Equal turns of several sets are scored once."""
    parts: dict[str, list[list[Parts]]] = {}
    for name, loaded in scorers.items():
        known: dict[TurnKey, tuple[Parts, bool]] = {}
        parts[name] = []
        for judged in sets:
            places = draw_places(judged.items, slow_turns, seed) if name == SLOW else range(len(judged.items))
            asked = set(places)
            _score_into(known, loaded, [judged.items[place] for place in places])
            say(f"{name}: {judged.name}")
            parts[name].append(
                [_item_parts(each, known) if place in asked else {} for place, each in enumerate(judged.items)]
            )
    return [
        ScoredSet(
            judged,
            _score_columns({name: each[number] for name, each in parts.items()}),
            length_and_position(judged),
        )
        for number, judged in enumerate(sets)
    ]


def score_parts(loaded: LoadedScorer, turns: Sequence[TurnToScore]) -> list[RawScore]:
    return score_turns(loaded, [loaded.trim(turn) for turn in turns])


def _score_into(known: dict[TurnKey, tuple[Parts, bool]], loaded: LoadedScorer, items: Sequence[JudgedItem]) -> None:
    fresh = {key_of(turn): turn for item in items for turn in item.turns if key_of(turn) not in known}
    for (key, turn), raw in zip(fresh.items(), score_parts(loaded, list(fresh.values())), strict=True):
        details = {} if loaded.name == SLOW else raw.details
        percentile = loaded.percentile(raw)
        parts = {name: value for name, value in details.items() if not name.endswith(PERCENTILE_SUFFIX)}
        parts |= {VALUE: raw.value, _PERCENTILE: math.nan if percentile is None else percentile}
        known[key] = parts, loaded.scorer.counts_in_dialogue(turn)


def key_of(turn: TurnToScore) -> TurnKey:
    """A turn's identity for every scorer: all but who spoke."""
    return tuple(f"{each.speaker}:{each.text}" for each in turn.context), turn.response


def _item_parts(item: JudgedItem, known: Mapping[TurnKey, tuple[Parts, bool]]) -> Parts:
    """A turn's numbers; a dialogue's are the means over the turns that count."""
    found = [known[key_of(turn)] for turn in item.turns]
    if len(found) == 1:
        return found[0][0]
    return average_parts([parts for parts, counts in found if counts])


def _score_columns(of_scorer: Mapping[str, Sequence[Parts]]) -> dict[str, Floats]:
    columns: dict[str, Floats] = {}
    for name, items in of_scorer.items():
        columns[name] = _column(items, VALUE)
        details = sorted({part for parts in items for part in parts} - {VALUE, _PERCENTILE})
        columns |= {f"{name}: {part}": _column(items, part) for part in details}
    if set(SUMMED) <= of_scorer.keys():
        columns[" + ".join(SUMMED)] = np.sum([columns[name] for name in SUMMED], axis=0)
    for mixed in (SUMMED, MIXED):
        if set(mixed) <= of_scorer.keys():
            columns[f"mean of percentiles: {', '.join(mixed)}"] = np.mean(
                [_column(of_scorer[name], _PERCENTILE) for name in mixed], axis=0
            )
    return columns


def _column(items: Sequence[Parts], part: str) -> Floats:
    return np.array([parts.get(part, math.nan) for parts in items], dtype=np.float64)


def length_and_position(judged: JudgedSet) -> dict[str, Floats]:
    """The baselines: how long each item is and where it stands."""
    lengths = [np.mean([len(turn.response) for turn in item.turns]) for item in judged.items]
    positions = [
        len(item.turns) if judged.unit == DIALOGUES else len(item.turns[0].context) + 1 for item in judged.items
    ]
    return {
        LENGTH: np.array(lengths, dtype=np.float64),
        POSITION[judged.unit]: np.array(positions, dtype=np.float64),
    }

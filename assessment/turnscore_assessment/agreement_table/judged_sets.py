"""The development sets as the page measures them: judged turns, judged dialogues. Reads and samples; scores nothing."""

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnscore_core.scorers.scorer import TurnToScore

from turnscore_assessment.agreement.bundles import make_turn
from turnscore_assessment.data.dialogue_sets import SET_NAME, read_population, read_sets
from turnscore_assessment.data.dialogues import SYSTEM, RecordedDialogue, read_dialogues
from turnscore_assessment.data.labelled_turns import RatedTurn, read_development_sets

DBDC3 = "dbdc3"
TURNS, DIALOGUES = "turns", "dialogues"
PASSED = "_pass"
"""Ends the name of a file whose raters passed the published quality control."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedItem:
    """A judged turn, or a judged dialogue with all its system turns."""

    dialogue: str
    system: str
    rating: float
    turns: Sequence[TurnToScore]


@dataclass(frozen=True, kw_only=True)
class JudgedSet:
    """Items that people judged in one way."""

    name: str
    unit: str
    items: Sequence[JudgedItem]
    system_ratings: Mapping[str, float] = field(default_factory=dict)
    """What people said of each system on average; empty where the set does not compare systems."""
    note: str = ""

    @property
    def is_binary(self) -> bool:
        """Whether people answered good or bad, so that the AUC is measured."""
        return {each.rating for each in self.items} <= {0.0, 1.0}

    @property
    def turns(self) -> int:
        return sum(len(each.turns) for each in self.items)


def read_judged_sets(folder: Path, most_turns: int, seed: int) -> list[JudgedSet]:
    """Every development set in the folder; of a larger one, whole dialogues of about `most_turns` turns."""
    found = []
    for name, rated in read_development_sets(folder).items():
        found.append(JudgedSet(name=name, unit=TURNS, items=[_make_item([turn]) for turn in rated]))
        if name == DBDC3:
            found.append(_gather_dialogues(rated))
    if (folder / SET_NAME).exists():
        found.append(_read_assessed(folder))
    return [_sample(each, most_turns, seed) for each in found]


def _make_item(turns: Sequence[RatedTurn]) -> JudgedItem:
    """The turns of one dialogue; its rating is their mean."""
    first = turns[0]
    return JudgedItem(
        dialogue=first.dialogue,
        system=first.system,
        rating=average([turn.rating for turn in turns]),
        turns=[make_turn(turn.context, turn.response) for turn in turns],
    )


def _gather_dialogues(rated: Sequence[RatedTurn]) -> JudgedSet:
    dialogues = group_by((turn.dialogue, turn) for turn in rated)
    ratings = group_by((turn.system, turn.rating) for turn in rated)
    return JudgedSet(
        name=f"{DBDC3} dialogues",
        unit=DIALOGUES,
        items=[_make_item(turns) for turns in dialogues.values()],
        system_ratings={system: average(given) for system, given in ratings.items()},
        note="A dialogue's rating is the mean of its turns'.",
    )


def _read_assessed(folder: Path) -> JudgedSet:
    """The dialogues that no model was trained on; a system's rating is over all dialogues of its raters."""
    described = next(each for each in read_sets() if each.name == SET_NAME)
    unseen = read_population(folder).dialogues
    items: list[JudgedItem] = []
    ratings: list[tuple[str, float]] = []
    for file in described.files:
        if PASSED not in file or not (folder / file).exists():
            continue
        for dialogue in read_dialogues(folder / file):
            if dialogue.system in described.left_out_systems:
                continue
            rating = average([float(each) for each in dialogue.ratings.values()])
            ratings.append((dialogue.system, rating))
            name = f"{file} {dialogue.id} {dialogue.order}"
            if name in unseen:
                items.append(
                    JudgedItem(dialogue=name, system=dialogue.system, rating=rating, turns=_system_turns(dialogue))
                )
    return JudgedSet(
        name=f"{SET_NAME} dialogues",
        unit=DIALOGUES,
        items=items,
        system_ratings={system: average(given) for system, given in group_by(ratings).items()},
        note="Dialogues that no shipped model was trained on, of raters who passed the quality control; a dialogue's "
        "rating is the mean of its ratings, a system's that over all dialogues of these raters.",
    )


def _system_turns(dialogue: RecordedDialogue) -> list[TurnToScore]:
    said = [(turn.speaker, turn.text) for turn in dialogue.turns]
    return [
        make_turn(said[:place], text)
        for place, (speaker, text) in enumerate(said)
        if speaker == SYSTEM and text.strip()
    ]


def _sample(each: JudgedSet, most_turns: int, seed: int) -> JudgedSet:
    drawn = draw_places(each.items, most_turns, seed)
    if len(drawn) == len(each.items):
        return each
    note = f"A sample of {len(drawn)} of {len(each.items)}. {each.note}".strip()
    return dataclasses.replace(each, items=[each.items[place] for place in drawn], note=note)


def draw_places(items: Sequence[JudgedItem], most_turns: int, seed: int) -> list[int]:
    """The places of the items of dialogues drawn at random, until they hold `most_turns` turns or are all."""
    if sum(len(each.turns) for each in items) <= most_turns:
        return list(range(len(items)))
    of_dialogue = group_by((each.dialogue, place) for place, each in enumerate(items))
    names = sorted(of_dialogue)
    random.Random(seed).shuffle(names)  # noqa: S311
    drawn: list[int] = []
    turns = 0
    for name in names:
        if turns >= most_turns:
            break
        drawn += of_dialogue[name]
        turns += sum(len(items[place].turns) for place in of_dialogue[name])
    return sorted(drawn)


def group_by(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """The second of each pair, grouped by the first, in order."""
    groups: dict[str, list[Any]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values)

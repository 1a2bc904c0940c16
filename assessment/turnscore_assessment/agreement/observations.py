"""Observations: judged turns or dialogues, their scores, and trivial baselines. Correlates nothing."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnscore_assessment.agreement.bootstrap import LEAST_OBSERVATIONS, Integers
from turnscore_assessment.agreement.data import JudgedDialogue
from turnscore_assessment.agreement.scores import VALUE, DialogueScores, ScoredFile
from turnscore_assessment.agreement.statistics import Floats
from turnscore_assessment.errors import AgreementError

Level = Literal["turn", "dialogue"]

CHARACTERS, WORDS = "length in characters", "length in words"
POSITION: Mapping[Level, str] = {"turn": "position in the dialogue", "dialogue": "turns in the dialogue"}

JUDGED_TURNS = "people's judgements of turns"
JUDGED_DIALOGUES = "people's judgements of dialogues"
AVERAGED_TURNS = "means of people's judgements of turns, as the file judges no dialogue"


@dataclass(frozen=True)
class Column:
    """A scorer's part or a baseline: one number per observation, NaN where there is none."""

    name: str
    values: Floats
    is_baseline: bool


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The columns and judgements of one level."""

    level: Level
    against: str
    qualities: Floats
    dialogue_of: Integers
    """The number of each observation's dialogue."""
    systems: Sequence[str | None]
    columns: Sequence[Column]

    @property
    def baselines(self) -> list[Column]:
        """The columns of the baselines: those without a scorer."""
        return [column for column in self.columns if column.is_baseline]


def find_levels(dialogues: Sequence[JudgedDialogue], asked: str) -> tuple[list[Level], list[str]]:
    """The levels to measure: `turn`, `dialogue`, or with `both` those that the file has judgements for.

    Also the sentences that say why a level is left out. Raises AgreementError with them where none can be measured.
    """
    levels: tuple[Level, ...] = ("turn", "dialogue")
    wanted = [level for level in levels if asked in (level, "both")]
    problems = {level: _find_problem(list(_judge(dialogues, level).values()), level) for level in wanted}
    possible = [level for level, problem in problems.items() if problem is None]
    reasons = [problem for problem in problems.values() if problem is not None]
    if not possible:
        raise AgreementError(f"cannot measure: {'; '.join(reasons)}")
    return possible, reasons


def choose_parts(scored: Sequence[ScoredFile], parts: Sequence[str]) -> list[tuple[ScoredFile, str]]:
    """Each scorer with each of its parts that was asked for; AgreementError for a part or scorer without a match."""
    for part in parts:
        if not any(part in file.parts for file in scored):
            known = "; ".join(f"{file.scorer} has {', '.join(file.parts)}" for file in scored)
            raise AgreementError(f"no scorer has a part {part!r}; {known}")
    for file in scored:
        if not set(parts) & set(file.parts):
            raise AgreementError(f"{file.scorer} has none of these parts: {', '.join(parts)}")
    return [(file, part) for file in scored for part in parts if part in file.parts]


def observe(
    dialogues: Sequence[JudgedDialogue], chosen: Sequence[tuple[ScoredFile, str]], level: Level
) -> Observations:
    """Scores, baselines and judgements of one level; `chosen` holds scores of these dialogues in their order."""
    qualities = _judge(dialogues, level)
    columns = [
        Column(
            file.scorer if part == VALUE else f"{file.scorer}: {part}",
            _floats(_find_score(file.dialogues[number], place, part) for number, place in qualities),
            is_baseline=False,
        )
        for file, part in chosen
    ]
    measures = [_measure(dialogues[number], place) for number, place in qualities]
    columns += [
        Column(name, _floats(column), is_baseline=True)
        for name, column in zip((CHARACTERS, WORDS, POSITION[level]), zip(*measures, strict=True), strict=True)
    ]
    judged = JUDGED_TURNS if level == "turn" else JUDGED_DIALOGUES
    is_averaged = level == "dialogue" and all(dialogue.quality is None for dialogue in dialogues)
    return Observations(
        level=level,
        against=AVERAGED_TURNS if is_averaged else judged,
        qualities=_floats(qualities.values()),
        dialogue_of=np.array([number for number, _ in qualities], dtype=np.intp),
        systems=[dialogues[number].system for number, _ in qualities],
        columns=columns,
    )


def _find_problem(qualities: Sequence[float], level: Level) -> str | None:
    if len(qualities) < LEAST_OBSERVATIONS:
        return f"{level} level, as {len(qualities)} {level}s have a `quality` and {LEAST_OBSERVATIONS} are needed"
    if len(set(qualities)) == 1:
        return f"{level} level, as the `quality` of all {len(qualities)} {level}s is {qualities[0]:g}"
    return None


_Places = dict[tuple[int, int | None], float]


def _judge(dialogues: Sequence[JudgedDialogue], level: Level) -> _Places:
    """People's judgements by dialogue's index and turn's place; None stands for the whole dialogue.

    Dialogues are never judged on two scales at once: the turns' judgements stand in only where no dialogue is judged.
    """
    numbered = list(enumerate(dialogues))
    if level == "turn":
        return {(number, place): found for number, each in numbered for place, found in each.turn_qualities.items()}
    judged: _Places = {(number, None): each.quality for number, each in numbered if each.quality is not None}
    return judged or {
        (number, None): math.fsum(each.turn_qualities.values()) / len(each.turn_qualities)
        for number, each in numbered
        if each.turn_qualities
    }


def _find_score(scores: DialogueScores, place: int | None, part: str) -> float:
    parts = scores.dialogue if place is None else scores.turns[place]
    return parts.get(part, math.nan)


def _measure(dialogue: JudgedDialogue, place: int | None) -> tuple[float, float, float]:
    """A turn's characters, words and position; a dialogue's means over its system turns, and its number of turns."""
    places = dialogue.system_places if place is None else [place]
    texts = [dialogue.turns[each].text for each in places]
    characters = sum(len(text) for text in texts) / len(texts)
    words = sum(len(text.split()) for text in texts) / len(texts)
    return characters, words, float(len(dialogue.turns) if place is None else place + 1)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64)

"""Correlations of scores and of trivial baselines with people's judgements of the same turns, by system."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turnscore_assessment.agreement.judged_dialogues import DialogueScores, JudgedDialogue, ScoredFile
from turnscore_assessment.correlations import LEAST_OBSERVATIONS, Correlations, correlate_clustered
from turnscore_assessment.errors import AgreementError
from turnscore_assessment.figures import Floats, Integers

Level = Literal["turn", "dialogue"]

CHARACTERS, WORDS = "length in characters", "length in words"
POSITION: Mapping[Level, str] = {"turn": "position in the dialogue", "dialogue": "turns in the dialogue"}

JUDGED_TURNS = "people's judgements of turns"
JUDGED_DIALOGUES = "people's judgements of dialogues"
AVERAGED_TURNS = "means of people's judgements of turns, as the file judges no dialogue"


@dataclass(frozen=True)
class ScoreColumn:
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
    columns: Sequence[ScoreColumn]

    @property
    def baselines(self) -> list[ScoreColumn]:
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
        ScoreColumn(
            file.name_of(part),
            _floats(_find_score(file.dialogues[number], place, part) for number, place in qualities),
            is_baseline=False,
        )
        for file, part in chosen
    ]
    measures = [_measure(dialogues[number], place) for number, place in qualities]
    columns += [
        ScoreColumn(name, _floats(column), is_baseline=True)
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


ALL_SYSTEMS = "all"


@dataclass(frozen=True, kw_only=True)
class MeasuredColumn(Correlations):
    """One column's correlations; baselines have nothing in `given`."""

    name: str
    is_baseline: bool
    observations: int
    """The observations with both a judgement and a score."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """One system's dialogues, or those of all."""

    system: str
    observations: int
    dialogues: int
    rows: Sequence[MeasuredColumn]


def measure(observations: Observations, rounds: int, seed: int) -> list[Group]:
    """All figures of one level: all systems together first, then each where the file names more than one."""
    systems = np.array([system or "" for system in observations.systems])
    groups = [_measure_group(observations, ALL_SYSTEMS, np.full(len(systems), True), rounds, seed)]
    names = np.unique(systems)
    if len(names) > 1:
        groups += [
            _measure_group(observations, str(name) or "(unnamed)", systems == name, rounds, seed) for name in names
        ]
    return groups


def _measure_group(observations: Observations, system: str, chosen: NDArray[np.bool_], rounds: int, seed: int) -> Group:
    dialogues = len(np.unique(observations.dialogue_of[chosen]))
    rows = [_measure_row(observations, column, chosen, rounds, seed) for column in observations.columns]
    return Group(system=system, observations=int(chosen.sum()), dialogues=dialogues, rows=rows)


def _measure_row(
    observations: Observations, column: ScoreColumn, chosen: NDArray[np.bool_], rounds: int, seed: int
) -> MeasuredColumn:
    kept = chosen & ~np.isnan(column.values)
    baselines = {} if column.is_baseline else {each.name: each.values for each in observations.baselines}
    figures = correlate_clustered(
        column.values[kept],
        observations.qualities[kept],
        {name: values[kept] for name, values in baselines.items()},
        observations.dialogue_of[kept],
        rounds,
        seed,
    )
    return MeasuredColumn(
        name=column.name, is_baseline=column.is_baseline, observations=int(kept.sum()), **vars(figures)
    )

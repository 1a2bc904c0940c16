"""Dialogues with people's judgements of turns or of the whole, and scorers' scores of them.

docs/agreement.md describes the form.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from turnscore_wire import Turn

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import check_row, read_rows, write_rows
from turnscore_assessment.ratings.rating_file import build_table, read_ratings, standardize
from turnscore_assessment.ratings.scoring import choose_rows, control_quality, find_passing

Record = dict[str, Any]


class FormName(StrEnum):
    """The forms that can be read: docs/agreement.md's, the challenge's, and ratings files (docs/studies.md)."""

    JUDGED = "judged"
    DBDC3 = "dbdc3"
    STUDY = "study"


BREAKDOWN_WEIGHTS = {"O": 1.0, "T": 0.5, "X": 0.0}
"""Values of no breakdown, a possible one, a breakdown: a turn's quality is the mean over annotators. Specified."""


def convert_dbdc3(record: Record, refuse: Callable[[str], BadFileError]) -> Record:
    """A row of the Dialogue Breakdown Detection Challenge 3: each system turn's `breakdown_votes` become its quality.

    `refuse` makes the error where the votes are none, of a sentence that begins with the field's path.
    """
    turns = record.get("turns")
    if not isinstance(turns, list):
        raise refuse("turns: must be a list")
    converted = [
        {**turn, "quality": _count_votes(turn["breakdown_votes"], f"turns.{index}.breakdown_votes", refuse)}
        if isinstance(turn, dict) and "breakdown_votes" in turn
        else turn
        for index, turn in enumerate(turns)
    ]
    return {**record, "turns": converted}


def _count_votes(votes: object, field: str, refuse: Callable[[str], BadFileError]) -> float:
    if not isinstance(votes, dict) or set(votes) != set(BREAKDOWN_WEIGHTS):
        raise refuse(f"{field}: must be an object with O, T and X")
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in votes.values()):
        raise refuse(f"{field}: must hold whole numbers from 0 on")
    if not sum(votes.values()):
        raise refuse(f"{field}: holds no vote")
    return float(sum(BREAKDOWN_WEIGHTS[name] * count for name, count in votes.items()) / sum(votes.values()))


FIRST_LINE = 2
"""Line of a ratings file's first dialogue."""


def read_study(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, row in docs/agreement.md's form) of the dialogues with ordinary systems by workers who pass.

    A dialogue that several judged comes once, with their mean; where dialogues of several systems have one name, the
    system's stands before it. Those without a system turn with text are left out. Raises BadFileError for the
    file, TooFewError where no worker passes.
    """
    ratings = read_ratings(path)
    table = build_table(ratings)
    chosen = choose_rows(table, find_passing(control_quality(table)))
    means = standardize(table).mean(axis=1)
    judged: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero(chosen).tolist():
        dialogue = ratings.dialogues[row]
        if any(turn.speaker == "system" and turn.text.strip() for turn in dialogue.turns):
            name = dialogue.dialogue or f"line {row + FIRST_LINE}"
            judged.setdefault((dialogue.system, name), []).append(row)
    if not judged:
        raise BadFileError(path, 0, "turns: no dialogue of a passing worker has any")
    systems = Counter(name for _, name in judged)
    for (system, name), rows in judged.items():
        first = ratings.dialogues[rows[0]]
        turns = [turn.model_dump() for turn in first.turns]
        quality = fmean(float(mean) for mean in means[rows])
        own = name if systems[name] == 1 else f"{system}: {name}"
        yield rows[0] + FIRST_LINE, {"id": own, "system": system, "turns": turns, "quality": quality}


Quality = Annotated[float, Field(allow_inf_nan=False)]


class JudgedTurn(Turn):
    """A turn; `quality` is people's judgement of it, on any scale that rises with quality."""

    model_config = ConfigDict(extra="ignore")

    quality: Quality | None = None


class JudgedDialogue(BaseModel):
    """A dialogue, oldest turn first; `quality` is people's judgement of the whole."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    id: Annotated[str, Field(min_length=1)]
    system: Annotated[str, Field(min_length=1)] | None = None
    turns: Annotated[list[JudgedTurn], Field(min_length=1)]
    quality: Quality | None = None

    @property
    def system_places(self) -> list[int]:
        """The places of the turns that are scored."""
        return [place for place, turn in enumerate(self.turns) if turn.speaker == "system"]

    @property
    def is_judged(self) -> bool:
        """Whether people judged the dialogue or a turn of it."""
        return self.quality is not None or bool(self.turn_qualities)

    @property
    def turn_qualities(self) -> dict[int, float]:
        """The judged turns' qualities by their place."""
        return {place: turn.quality for place, turn in enumerate(self.turns) if turn.quality is not None}


def drop_empty_turns(dialogue: JudgedDialogue) -> JudgedDialogue:
    """The dialogue without the system turns that have no text: the service scores none."""
    kept = [turn for turn in dialogue.turns if turn.speaker == "user" or turn.text.strip()]
    return dialogue.model_copy(update={"turns": kept})


def read_judged_dialogues(path: Path, form: str = FormName.JUDGED) -> list[JudgedDialogue]:
    """The dialogues of a `.jsonl` or `.jsonl.gz` file in a form.

    Raises BadFileError naming the file, the line and the field.
    """
    dialogues: dict[str, JudgedDialogue] = {}
    for row, record in read_study(path) if form == FormName.STUDY else read_rows(path):
        dialogue = _build_dialogue(record, path, row, form)
        if dialogue.id in dialogues:
            raise BadFileError(path, row, f"id: {dialogue.id!r} was already used; give each dialogue its own")
        dialogues[dialogue.id] = dialogue
    if not dialogues:
        raise BadFileError(path, 0, "has no dialogue")
    return list(dialogues.values())


def write_judged_dialogues(path: Path, dialogues: Iterable[JudgedDialogue]) -> None:
    """Writes the dialogues, one per line; gzipped, byte for byte the same each time, where the name ends in `.gz`."""
    write_rows(path, dialogues)


def _build_dialogue(record: Record, path: Path, row: int, form: str) -> JudgedDialogue:
    fields = convert_dbdc3(record, partial(BadFileError, path, row)) if form == FormName.DBDC3 else record
    dialogue = check_row(JudgedDialogue.model_validate, path, row, fields)
    if not drop_empty_turns(dialogue).system_places:
        raise BadFileError(path, row, "turns: there is no system turn to score")
    for place, turn in enumerate(dialogue.turns):
        if turn.speaker == "user" and turn.quality is not None:
            raise BadFileError(path, row, f"turns.{place}.quality: only system turns are judged")
    return dialogue


VALUE = "value"
"""The part of a score that is its value; the other parts are its details."""

Advance = Callable[[int], None]
"""Called with the number of dialogues scored since the last call."""


@dataclass(frozen=True)
class DialogueScores:
    """One scorer's scores of one dialogue."""

    turns: Mapping[int, Mapping[str, float]]
    """`value` and details by the system turn's place."""
    dialogue: Mapping[str, float]
    """Their means over the turns that count; a part without such a turn is left out."""


@dataclass(frozen=True, kw_only=True)
class ScoredFile:
    """One scorer's scores of every dialogue, in the file's order."""

    scorer: str
    model: str
    digest: str
    graph: str
    dialogues: Sequence[DialogueScores]

    @property
    def parts(self) -> list[str]:
        found = {part for dialogue in self.dialogues for parts in dialogue.turns.values() for part in parts}
        return [VALUE, *sorted(found - {VALUE})]

    def name_of(self, part: str) -> str:
        return self.scorer if part == VALUE else f"{self.scorer}: {part}"


def average_parts(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each part that all turns have."""
    shared = set.intersection(*(set(turn) for turn in turns)) if turns else set()
    return {part: sum(turn[part] for turn in turns) / len(turns) for part in sorted(shared)}

"""Metric columns: one number per dialogue or system, from scorers, CSV, or the ratings file; people's judgements."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from turnscore_assessment.agreement.judged_dialogues import JudgedDialogue, JudgedTurn, ScoredFile
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import Floats, Integers
from turnscore_assessment.files import CsvTable, read_csv, unguard
from turnscore_assessment.ratings.rating_file import RatedDialogue, RatingFile
from turnscore_assessment.ratings.scoring import JudgedStudy


def draw_rows(study: JudgedStudy, per_system: int | None, seed: int) -> Integers:
    """The rows that count, or so many of each system's drawn at random."""
    rows = np.flatnonzero(study.chosen)
    if per_system is None:
        return rows
    generator = np.random.default_rng(seed)
    systems = study.table.system_of[rows]
    drawn = [generator.permutation(rows[systems == each])[:per_system] for each in range(len(study.table.systems))]
    return np.sort(np.concatenate(drawn))


LINE, DIALOGUE, SYSTEM = "line", "dialogue", "system"
KEYS = (LINE, DIALOGUE, SYSTEM)
"""The columns that may name a CSV's rows; the first that it has does."""
FIRST_LINE = 2
"""Line of a ratings file's first dialogue."""
MOST_COLUMNS = 100
"""Most columns. Chosen: every two are compared."""

SYSTEM_WORDS, USER_WORDS, TURNS = "words per system turn", "words per user turn", "turns in the dialogue"


@dataclass(frozen=True, kw_only=True)
class MetricColumn:
    """One metric: a number by row of the ratings file, NaN for none, or by system alone."""

    name: str
    source: str
    values: Floats | None = None
    systems: Mapping[str, float] | None = None
    is_baseline: bool = False


def measure_baselines(ratings: RatingFile) -> list[MetricColumn]:
    """The lengths, which need no scorer. None where the file holds no turns."""
    if not any(row.turns for row in ratings.dialogues):
        return []

    def count(row: RatedDialogue, speaker: str) -> float:
        counts = [len(turn.text.split()) for turn in row.turns if turn.speaker == speaker]
        return fmean(counts) if counts else math.nan

    rows = ratings.dialogues
    columns = {
        SYSTEM_WORDS: [count(row, "system") for row in rows],
        USER_WORDS: [count(row, "user") for row in rows],
        TURNS: [float(len(row.turns)) if row.turns else math.nan for row in rows],
    }
    return [
        MetricColumn(name=name, source="baseline", values=np.array(values), is_baseline=True)
        for name, values in columns.items()
    ]


def gather_recorded(ratings: RatingFile) -> list[MetricColumn]:
    """The scores that the study recorded with its ratings."""
    names = sorted({name for row in ratings.dialogues for name in row.scores})
    return [
        MetricColumn(
            name=name, source="recorded", values=np.array([row.scores.get(name, math.nan) for row in ratings.dialogues])
        )
        for name in names
    ]


def gather_scored(chosen: Sequence[tuple[ScoredFile, str]], rows: Integers, count: int) -> list[MetricColumn]:
    """Scorers' values, or other parts of their scores; `rows` are the scored ones, of so many in all."""
    columns = []
    for file, part in chosen:
        values = np.full(count, np.nan)
        values[rows] = [dialogue.dialogue.get(part, math.nan) for dialogue in file.dialogues]
        columns.append(MetricColumn(name=file.name_of(part), source=f"{file.model} ({file.graph})", values=values))
    return columns


def to_judged(ratings: RatingFile, rows: Integers) -> list[JudgedDialogue]:
    """The dialogues in the scorers' form, in order: without system turns that have no text."""
    return [
        JudgedDialogue(
            id=f"line {row + FIRST_LINE}",
            system=ratings.dialogues[row].system,
            turns=[
                JudgedTurn(speaker=turn.speaker, text=turn.text)
                for turn in ratings.dialogues[row].turns
                if turn.speaker == "user" or turn.text.strip()
            ],
        )
        for row in rows
    ]


def read_columns(path: Path, ratings: RatingFile) -> list[MetricColumn]:
    """The numeric columns of a CSV whose rows are about lines of the ratings file, dialogues or systems.

    BadFileError names the line and the column.
    """
    key, names, found = _read_cells(path, read_csv(path))
    _check_keys(path, key, found, ratings)
    return [_place(path, key, column, found, ratings) for column in names]


def _read_cells(path: Path, table: CsvTable) -> tuple[str, list[str], dict[str, dict[str, float]]]:
    """Which column the rows are known by, the others, and their numbers by row."""
    key = next((name for name in KEYS if name in table.columns), None)
    if key is None:
        raise BadFileError(path, 1, f"has none of the columns {', '.join(KEYS)}")
    names = [name for name in table.columns if name not in KEYS]
    if not names or len(names) > MOST_COLUMNS:
        raise BadFileError(path, 1, f"must have 1 to {MOST_COLUMNS} columns of numbers, not {len(names)}")
    found: dict[str, dict[str, float]] = {}
    for number, row in table.rows:
        name = unguard(str(row[key]))
        if name in found:
            raise BadFileError(path, number, f"{key}: {name!r} was already used")
        found[name] = {column: _read_number(path, number, column, row[column]) for column in names}
    return key, names, found


def _read_number(path: Path, number: int, column: str, text: str | None) -> float:
    """The number in a cell; NaN for an empty one."""
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise BadFileError(path, number, f"{column}: {text!r} is not a number")
    return value


def _check_keys(path: Path, key: str, found: Mapping[str, Mapping[str, float]], ratings: RatingFile) -> None:
    known = set(_list_keys(key, ratings))
    unknown = next((name for name in found if name not in known), None)
    if unknown is not None:
        raise BadFileError(path, 0, f"{key}: the ratings have no {unknown!r}")
    named = {(row.dialogue, row.system) for row in ratings.dialogues} if key == DIALOGUE else set()
    shared = next(
        (name for name, times in Counter(name for name, _ in named).items() if times > 1 and name in found), ""
    )
    if shared:
        raise BadFileError(path, 0, f"{key}: {shared!r} is the name of several systems' dialogues; name them by `line`")


def _list_keys(key: str, ratings: RatingFile) -> list[str | None]:
    """The keys by row of the ratings."""
    if key == LINE:
        return [str(row + FIRST_LINE) for row in range(len(ratings.dialogues))]
    return [row.system if key == SYSTEM else row.dialogue for row in ratings.dialogues]


def _place(
    path: Path, key: str, column: str, found: Mapping[str, Mapping[str, float]], ratings: RatingFile
) -> MetricColumn:
    if key == SYSTEM:
        return MetricColumn(name=column, source=path.name, systems={name: row[column] for name, row in found.items()})
    nothing: Mapping[str, float] = {}
    values = [found.get(name or "", nothing).get(column, math.nan) for name in _list_keys(key, ratings)]
    return MetricColumn(name=column, source=path.name, values=np.array(values))

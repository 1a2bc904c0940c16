"""Ratings files: their form, reading, writing, and conversion from the published ratings of Ji et al. (ACL 2022).

JSON lines, gzipped where the name ends in `.gz`: the first line describes the study, every other line is one rated
dialogue. docs/studies.md shows both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator, model_validator

from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.figures import Flags, Floats, Integers
from turnscore_assessment.files import StrictForm, check_row, read_rows, write_rows

Name = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[float, Field(allow_inf_nan=False)]

OVERALL = "overall"  # What reports call the mean over criteria.
MOST_CRITERIA = 50  # Most criteria. Chosen: three times what any published study asks.
MOST_TURNS = 2000  # Most turns of one dialogue. Chosen: a hundred times a chat of ten inputs.


class Criterion(StrictForm):
    """One question that raters answer with a number."""

    name: Name
    # `negative` where a higher rating is worse, as in "the chatbot was repetitive"; such ratings are reversed.
    direction: Literal["positive", "negative"] = "positive"
    low: Number = 0.0
    high: Number = 100.0
    in_quality_control: bool | None = None  # Whether the quality control uses it; by default it uses the positive ones.
    statement: str = ""  # What raters read.
    low_end: str = ""
    high_end: str = ""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name == OVERALL:
            raise ValueError(f"{OVERALL!r} is the mean over criteria in reports; call this criterion otherwise")
        return name

    @model_validator(mode="after")
    def _check_range(self) -> "Criterion":
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        return self

    @property
    def is_controlling(self) -> bool:
        """Whether the quality control uses it."""
        return self.direction == "positive" if self.in_quality_control is None else self.in_quality_control


class StudyDescription(StrictForm):
    """The first line of a ratings file."""

    study: Name
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=MOST_CRITERIA)]
    # p below which a worker's ratings of the degraded system count as lower. The published value.
    quality_control_p: Annotated[float, Field(gt=0, lt=1)] = 0.05

    @model_validator(mode="after")
    def _check_names(self) -> "StudyDescription":
        names = [criterion.name for criterion in self.criteria]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two criteria are called {twice[0]!r}")
        return self

    @property
    def names(self) -> list[str]:
        return [criterion.name for criterion in self.criteria]


class RatedDialogueTurn(BaseModel):
    """One turn of a rated dialogue."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    speaker: Literal["user", "system"]
    text: Annotated[str, Field(max_length=100_000)]


class RatedDialogue(StrictForm):
    """Every other line of a ratings file: one worker's ratings of one dialogue, as given, nothing reversed."""

    study: Name | None = None
    worker: Name
    hit: Name  # The task that it belongs to; a worker's dialogues of one HIT are one assignment.
    position: Annotated[int, Field(ge=0)] | None = None  # Its place in the HIT, from 0.
    system: Name
    # Whether the system is the degraded one, which only the quality control and the worker's statistics use.
    degraded: bool = False
    ratings: Mapping[str, Number]
    dialogue: Name | None = None  # The name of a recorded dialogue that several workers judge.
    submitted_at: AwareDatetime | None = None
    # The duration of the dialogue and its rating.
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    topic: str | None = None
    scores: Mapping[str, Number] = Field(default_factory=dict)  # Scorers' scores of the dialogue, unseen by the worker.
    turns: Annotated[tuple[RatedDialogueTurn, ...], Field(max_length=MOST_TURNS)] = ()


MOST_DIALOGUES = 200_000  # Most dialogues. Chosen: a hundred times the published study, and still in memory at once.


@dataclass(frozen=True)
class RatingFile:
    """A study and its rated dialogues, in the file's order."""

    description: StudyDescription
    dialogues: Sequence[RatedDialogue]


def read_ratings(path: Path) -> RatingFile:
    """The study of a `.jsonl` or `.jsonl.gz` file. BadFileError names the file, the line and the field."""
    lines = read_rows(path)
    first = next(lines, None)
    if first is None:
        raise BadFileError(path, 0, "is empty")
    try:
        description = check_row(StudyDescription.model_validate, path, *first)
    except BadFileError as error:
        raise BadFileError(path, error.line, f"{error.reason} (the first line must describe the study)") from None
    dialogues: list[RatedDialogue] = []
    seen: dict[tuple[str, str, int], int] = {}
    for number, record in lines:
        if len(dialogues) == MOST_DIALOGUES:
            raise BadFileError(path, number, f"there are more than {MOST_DIALOGUES} dialogues")
        dialogue = check_row(RatedDialogue.model_validate, path, number, record)
        reason = _find_misfit(description, dialogue) or _find_repetition(dialogue, seen, number)
        if reason:
            raise BadFileError(path, number, reason)
        dialogues.append(dialogue)
    if not dialogues:
        raise BadFileError(path, 0, "has no rated dialogue")
    _check_degraded(path, dialogues)
    return RatingFile(description, dialogues)


def write_ratings(path: Path, ratings: RatingFile) -> None:
    """Writes the file; gzipped, byte for byte the same each time, where the name ends in `.gz`."""
    write_rows(path, [ratings.description, *ratings.dialogues])


def _find_misfit(description: StudyDescription, dialogue: RatedDialogue) -> str | None:
    """Why the dialogue does not fit its study; None where it does."""
    if dialogue.study not in (None, description.study):
        return f"study: is {dialogue.study!r}, but the first line describes {description.study!r}"
    return find_misrating(description, dialogue.ratings)


def find_misrating(description: StudyDescription, ratings: Mapping[str, float]) -> str | None:
    """Why these are not the ratings of one dialogue by the study's criteria; None where they are."""
    unknown = sorted(set(ratings) - set(description.names))
    if unknown:
        return f"ratings.{unknown[0]}: is not a criterion of the study, which has {', '.join(description.names)}"
    for criterion in description.criteria:
        rating = ratings.get(criterion.name)
        if rating is None:
            return f"ratings.{criterion.name}: is missing"
        if not criterion.low <= rating <= criterion.high:
            return f"ratings.{criterion.name}: {rating:g} is not within {criterion.low:g} and {criterion.high:g}"
    return None


def _find_repetition(dialogue: RatedDialogue, seen: dict[tuple[str, str, int], int], number: int) -> str | None:
    if dialogue.position is None:
        return None
    earlier = seen.setdefault((dialogue.worker, dialogue.hit, dialogue.position), number)
    if earlier == number:
        return None
    return f"position: this worker's HIT has a dialogue at position {dialogue.position} already, in line {earlier}"


def _check_degraded(path: Path, dialogues: Sequence[RatedDialogue]) -> None:
    degraded = {dialogue.system for dialogue in dialogues if dialogue.degraded}
    ordinary = {dialogue.system for dialogue in dialogues if not dialogue.degraded}
    both = sorted(degraded & ordinary)
    if both:
        raise BadFileError(path, 0, f"degraded: system {both[0]!r} is degraded in some lines and not in others")
    if not ordinary:
        raise BadFileError(path, 0, "degraded: every system is")


LARGEST = 100.0

# What each criterion is about, in our words; the published interface has its own.
STATEMENTS = {
    "interesting": "The chatbot was interesting.",
    "fun": "The chatbot was fun.",
    "consistent": "The chatbot was consistent.",
    "fluent": "The chatbot was fluent.",
    "topic": "The chatbot stayed on topic.",
    "robotic": "The chatbot was robotic.",
    "repetitive": "The chatbot was repetitive.",
}
NEGATIVE = {"robotic", "repetitive"}

CRITERIA = tuple(
    Criterion(
        name=name,
        direction="negative" if name in NEGATIVE else "positive",
        statement=statement,
        low_end="strongly disagree",
        high_end="strongly agree",
    )
    for name, statement in STATEMENTS.items()
)


def read_published(paths: Sequence[Path], study: str) -> RatingFile:
    """The conversations of all files, those of workers who passed and who failed, as one study.

    BadFileError names the file, the line and the field.
    """
    dialogues = [_convert(path, *each) for path in paths for each in read_rows(path)]
    if not dialogues:
        raise BadFileError(paths[0], 0, "has no conversation")
    return RatingFile(StudyDescription(study=study, criteria=CRITERIA), dialogues)


def _convert(path: Path, number: int, record: dict[str, Any]) -> RatedDialogue:
    ratings = record.get("ratings")
    if not isinstance(ratings, dict) or set(ratings) != set(STATEMENTS):
        raise BadFileError(path, number, f"ratings: must have {', '.join(STATEMENTS)}")
    for name, rating in ratings.items():
        if isinstance(rating, bool) or not isinstance(rating, int | float) or not 0 <= rating <= LARGEST:
            raise BadFileError(path, number, f"ratings.{name}: must be a number from 0 to {LARGEST:g}")
    fields = {
        "worker": record.get("worker"),
        "hit": record.get("hit"),
        "position": record.get("position"),
        "system": record.get("model"),
        "degraded": record.get("model") == "QualityControl",
        "ratings": {name: LARGEST - given if name in NEGATIVE else given for name, given in ratings.items()},
        "topic": _find_topic(record.get("topic")),
        "turns": record.get("turns", ()),
    }
    return check_row(RatedDialogue.model_validate, path, number, fields)


def _find_topic(topics: object) -> str | None:
    if isinstance(topics, list) and topics and isinstance(topics[0], dict):
        return str(topics[0].get("topic", "")) or None
    return None


RatingUnit = Literal["z", "raw"]  # Of ratings: z-scores of their rater, or as they are.
COMMON_LOW, COMMON_HIGH = 0.0, 100.0  # The range of all ratings where criteria have different ones.

MOST_SYSTEMS = 200  # Most systems. Chosen: ten times a large shared task; every two of them are compared.
MOST_CELLS = 50_000_000  # Most workers times systems times criteria, which are in memory at once. Chosen: 400 MB.


@dataclass(frozen=True, kw_only=True)
class RatingTable:
    """Rows are rated dialogues in the file's order, columns are criteria."""

    description: StudyDescription
    # Reversed for negative criteria (low + high - x), so that more is better everywhere. On the criteria's range where
    # all have the same, otherwise on 0 to 100.
    ratings: Floats
    workers: Sequence[str]
    systems: Sequence[str]  # The systems under test, sorted; without the degraded ones.
    worker_of: Integers
    assignment_of: Integers  # Numbers a worker's HIT.
    system_of: Integers  # -1 for a degraded system.

    @property
    def is_degraded(self) -> Flags:
        """Which rows are about a degraded system."""
        return np.asarray(self.system_of < 0)

    @property
    def controlling(self) -> Integers:
        """The columns that the quality control looks at."""
        return np.array(
            [place for place, criterion in enumerate(self.description.criteria) if criterion.is_controlling],
            dtype=np.intp,
        )


def build_table(ratings: RatingFile) -> RatingTable:
    """The table of a study. AssessmentError where it is larger than can be computed with."""
    rows = ratings.dialogues
    criteria = ratings.description.criteria
    given = np.array([[row.ratings[name] for name in ratings.description.names] for row in rows], dtype=np.float64)
    workers = sorted({row.worker for row in rows})
    systems = sorted({row.system for row in rows if not row.degraded})
    _check_size(len(workers), len(systems), len(criteria))
    assignments = {pair: number for number, pair in enumerate(dict.fromkeys((row.worker, row.hit) for row in rows))}
    number_of_worker = {name: number for number, name in enumerate(workers)}
    number_of_system = {name: number for number, name in enumerate(systems)}
    return RatingTable(
        description=ratings.description,
        ratings=_bring_to_one_direction(given, criteria),
        workers=workers,
        systems=systems,
        worker_of=np.array([number_of_worker[row.worker] for row in rows], dtype=np.intp),
        assignment_of=np.array([assignments[row.worker, row.hit] for row in rows], dtype=np.intp),
        system_of=np.array([-1 if row.degraded else number_of_system[row.system] for row in rows], dtype=np.intp),
    )


def group_rows(number_of: Integers, count: int) -> list[Integers]:
    """The indices at which each number below `count` occurs, in order."""
    order = np.argsort(number_of, kind="stable")
    return np.split(order, np.searchsorted(number_of[order], np.arange(1, count)))


def _check_size(workers: int, systems: int, criteria: int) -> None:
    if systems > MOST_SYSTEMS:
        raise AssessmentError(f"there are {systems} systems; at most {MOST_SYSTEMS} can be compared")
    if workers * systems * criteria > MOST_CELLS:
        raise AssessmentError(
            f"{workers} workers, {systems} systems and {criteria} criteria are too many for one study; split it"
        )


def _bring_to_one_direction(given: Floats, criteria: Sequence[Criterion]) -> Floats:
    low = np.array([criterion.low for criterion in criteria])
    high = np.array([criterion.high for criterion in criteria])
    is_negative = np.array([criterion.direction == "negative" for criterion in criteria])
    turned = np.where(is_negative, low + high - given, given)
    if len({(criterion.low, criterion.high) for criterion in criteria}) == 1:
        return np.asarray(turned)
    return np.asarray(COMMON_LOW + (turned - low) / (high - low) * (COMMON_HIGH - COMMON_LOW))


SMALLEST_DEVIATION = 1e-6  # Added to every deviation, as in the published code.


def measure_workers(table: RatingTable) -> tuple[Floats, Floats]:
    """Mean and deviation by worker's number (Ji et al. 2022, section 3.3).

    Each is over all criteria and dialogues of that worker, degraded ones included. The deviation has n - 1; it is 0 for
    a single rating.
    """
    workers, criteria = len(table.workers), table.ratings.shape[1]
    counts = np.bincount(table.worker_of, minlength=workers) * criteria
    mean = np.bincount(table.worker_of, table.ratings.sum(axis=1), minlength=workers) / counts
    spread = ((table.ratings - mean[table.worker_of, None]) ** 2).sum(axis=1)
    squares = np.bincount(table.worker_of, spread, minlength=workers)
    return mean, np.sqrt(squares / np.maximum(counts - 1, 1))


def standardize(table: RatingTable) -> Floats:
    """Every rating as a z-score of its worker; the same rows and columns."""
    means, deviations = (each[table.worker_of, None] for each in measure_workers(table))
    return np.asarray((table.ratings - means) / (deviations + SMALLEST_DEVIATION))

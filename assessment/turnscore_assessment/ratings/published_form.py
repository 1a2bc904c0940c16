"""Converts the published ratings of Ji et al. (ACL 2022) to a study's. Only reads files.

A row holds one conversation; `robotic` and `repetitive` are already reversed there, and are turned back.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnscore_assessment.errors import BadRatingsError
from turnscore_assessment.ratings.form import Criterion, RatedDialogue, StudyDescription
from turnscore_assessment.ratings.rating_file import RatingFile, describe_problem, read_lines

DEGRADED_SYSTEM = "QualityControl"
LARGEST = 100.0

STATEMENTS = {
    "interesting": "The chatbot was interesting.",
    "fun": "The chatbot was fun.",
    "consistent": "The chatbot was consistent.",
    "fluent": "The chatbot was fluent.",
    "topic": "The chatbot stayed on topic.",
    "robotic": "The chatbot was robotic.",
    "repetitive": "The chatbot was repetitive.",
}
"""What each criterion is about, in our words; the published interface has its own."""
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

    BadRatingsError names the file, the line and the field.
    """
    dialogues = [_convert(path, *each) for path in paths for each in read_lines(path)]
    if not dialogues:
        raise BadRatingsError(paths[0], 0, "has no conversation")
    return RatingFile(StudyDescription(study=study, criteria=CRITERIA), dialogues)


def _convert(path: Path, number: int, record: dict[str, Any]) -> RatedDialogue:
    ratings = record.get("ratings")
    if not isinstance(ratings, dict) or set(ratings) != set(STATEMENTS):
        raise BadRatingsError(path, number, f"ratings: must have {', '.join(STATEMENTS)}")
    for name, rating in ratings.items():
        if isinstance(rating, bool) or not isinstance(rating, int | float) or not 0 <= rating <= LARGEST:
            raise BadRatingsError(path, number, f"ratings.{name}: must be a number from 0 to {LARGEST:g}")
    try:
        return RatedDialogue.model_validate(
            {
                "worker": record.get("worker"),
                "hit": record.get("hit"),
                "position": record.get("position"),
                "system": record.get("model"),
                "degraded": record.get("model") == DEGRADED_SYSTEM,
                "ratings": {name: LARGEST - given if name in NEGATIVE else given for name, given in ratings.items()},
                "topic": _find_topic(record.get("topic")),
                "turns": record.get("turns", ()),
            }
        )
    except ValidationError as error:
        raise BadRatingsError(path, number, describe_problem(error)) from None


def _find_topic(topics: object) -> str | None:
    if isinstance(topics, list) and topics and isinstance(topics[0], dict):
        return str(topics[0].get("topic", "")) or None
    return None

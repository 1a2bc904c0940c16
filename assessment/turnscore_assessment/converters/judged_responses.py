"""Responses that people judged or wrote: DailyDialog++, GRADE, Zhao et al. and multi-reference DailyDialog."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from turnscore_assessment.converters.original_files import Record, field, read_csv, read_json_list
from turnscore_assessment.errors import BadDataError

KINDS = {
    "relevant": "positive_responses",
    "adversarial": "adversarial_negative_responses",
    "random": "random_negative_responses",
}
ZHAO_SETS = ("persona-zhao", "dailydialog-zhao")
FIVE_POINTS = (1, 5)
_TURN, _REFERENCE = "||||", "\t"


def read_adversarial(paths: Sequence[Path]) -> Iterator[Record]:
    """Contexts with relevant, adversarial and random responses; the file's name gives the split."""
    for path in paths:
        split = next((part for part in ("train", "dev", "test") if part in path.name), "")
        for place, record in read_json_list(path):
            texts = {kind: field(record, name, list, path, place) for kind, name in KINDS.items()}
            yield {"split": split, "context": field(record, "context", list, path, place), **texts}


def read_several(paths: Sequence[Path]) -> Iterator[Record]:
    """Contexts with several relevant responses."""
    for path in paths:
        for place, record in read_json_list(path):
            relevant = field(record, KINDS["relevant"], list, path, place)
            yield {"context": field(record, "context", list, path, place), "relevant": relevant}


def read_grade(paths: Sequence[Path]) -> Iterator[Record]:
    """Responses with each rater's relevance from 1 to 5."""
    for path in paths:
        for place, record in read_json_list(path):
            ratings = _read_ratings(field(record, "HumanScores", str, path, place), path, place)
            yield {
                "set": f"{record.get('Dataset')}-grade",
                "question": "relevance",
                "scale": [1, 5],
                "system": record.get("DialogModel"),
                "context": field(record, "Context", str, path, place).split("|||"),
                "response": field(record, "Response", str, path, place),
                "rating": sum(ratings) / len(ratings),
                "ratings": ratings,
            }


def _read_ratings(text: str, path: Path, place: int) -> list[int]:
    try:
        ratings = json.loads(text)
    except json.JSONDecodeError:
        ratings = None
    if not isinstance(ratings, list) or not ratings or not all(isinstance(each, int) for each in ratings):
        raise BadDataError(path, place, f"`HumanScores` is {text[:40]!r}, expected a list of whole numbers")
    return ratings


def read_zhao(paths: Sequence[Path]) -> Iterator[Record]:
    """Responses with the mean of what people said of them in all, from 1 to 5 (Zhao et al. 2020).

    The form is xDial-Eval's: a context's texts are the lines of a cell, and the file's name is the set's.
    """
    for path in paths:
        name = next((each for each in ZHAO_SETS if each in path.name), None)
        if name is None:
            raise BadDataError(path, 0, f"is not named after its set, as {ZHAO_SETS[0]}.csv is")
        for place, record in read_csv(path):
            yield {
                "set": name,
                "question": "overall",
                "scale": list(FIVE_POINTS),
                "context": field(record, "english_ctx", str, path, place).split("\n"),
                "response": field(record, "english_res", str, path, place),
                "rating": _read_rating(record, "ratings", FIVE_POINTS, path, place),
            }


def read_multiref_ratings(paths: Sequence[Path]) -> Iterator[Record]:
    """Rated responses of five systems with their references."""
    for path in paths:
        for place, record in read_csv(path):
            rating = _read_rating(record, "human_average_rating", FIVE_POINTS, path, place)
            yield {
                "system": record.get("model"),
                "context_id": record.get("context_id"),
                "context": field(record, "context", str, path, place).split(_TURN),
                "response": field(record, "response", str, path, place),
                "reference": record.get("prevgt"),
                "references": field(record, "all_references", str, path, place).split(_REFERENCE),
                "rating": rating,
            }


def _read_rating(record: Record, name: str, scale: tuple[float, float], path: Path, place: int) -> float:
    text = field(record, name, str, path, place)
    try:
        value = float(text)
    except ValueError:
        raise BadDataError(path, place, f"`{name}` is {text!r}, expected a number") from None
    if not scale[0] <= value <= scale[1]:
        raise BadDataError(path, place, f"`{name}` is {text}, expected {scale[0]} to {scale[1]}")
    return value


def read_multiref_test(paths: Sequence[Path]) -> Iterator[Record]:
    """Test dialogues with several references for each turn."""
    for path in paths:
        for place, record in read_json_list(path):
            turns = field(record, "dialogue", list, path, place)
            yield {
                "topic": record.get("topic"),
                "turns": [{"text": each["text"], "references": each.get("responses", [])} for each in turns],
            }

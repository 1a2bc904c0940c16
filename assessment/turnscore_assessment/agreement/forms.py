"""Forms of judged dialogues: converts rows of other forms to docs/agreement.md's. Checks only what it changes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Record = dict[str, Any]

STUDY = "study"
"""The form of a ratings file (docs/assessment.md); `study_form` converts it."""

BREAKDOWN_WEIGHTS = {"O": 1.0, "T": 0.5, "X": 0.0}
"""Values of no breakdown, a possible one, a breakdown: a turn's quality is the mean over annotators. Specified."""


class BadFieldError(ValueError):
    """A field of a row cannot be converted; the message begins with the field's path."""


def keep_judged(record: Record) -> Record:
    """The row unchanged."""
    return record


def convert_dbdc3(record: Record) -> Record:
    """A row of the Dialogue Breakdown Detection Challenge 3: each system turn's `breakdown_votes` become its quality.

    Raises BadFieldError where the votes are none.
    """
    turns = record.get("turns")
    if not isinstance(turns, list):
        raise BadFieldError("turns: must be a list")
    return {**record, "turns": [_convert_votes(turn, index) for index, turn in enumerate(turns)]}


def _convert_votes(turn: object, index: int) -> object:
    if not isinstance(turn, dict) or "breakdown_votes" not in turn:
        return turn
    kept = {name: value for name, value in turn.items() if name != "breakdown_votes"}
    return {**kept, "quality": _count_votes(turn["breakdown_votes"], f"turns.{index}.breakdown_votes")}


def _count_votes(votes: object, field: str) -> float:
    if not isinstance(votes, dict) or set(votes) != set(BREAKDOWN_WEIGHTS):
        raise BadFieldError(f"{field}: must be an object with O, T and X")
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in votes.values()):
        raise BadFieldError(f"{field}: must hold whole numbers from 0 on")
    if not sum(votes.values()):
        raise BadFieldError(f"{field}: holds no vote")
    return float(sum(BREAKDOWN_WEIGHTS[name] * count for name, count in votes.items()) / sum(votes.values()))


FORMS: Mapping[str, Callable[[Record], Record]] = MappingProxyType(
    {"judged": keep_judged, "dbdc3": convert_dbdc3, STUDY: keep_judged}
)
"""The forms that can be read, by the name that `--form` takes."""

"""Files of rated turns: one JSON line each, with a label or a rating. Reads and checks them; scores nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import read_rows
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_wire import ScoreRequest, describe_refusal

LABELS = {"good": True, "bad": False}
_SAID = ("context", "response", "messages")
_SHARED_WORDS = 5
"""Words of a context's first text by which two turns without an id count as one dialogue's. Chosen."""


@dataclass(frozen=True)
class RatedTurns:
    """Turns, whether people called each good, and each turn's dialogue."""

    turns: Sequence[TurnToScore]
    good: Sequence[bool]
    dialogues: Sequence[str]

    @property
    def sharing(self) -> int:
        """How many turns share a dialogue with an earlier one."""
        return len(self.dialogues) - len(set(self.dialogues))


def read_rated_turns(path: Path, good_from: float | None = None) -> RatedTurns:
    """Rows of `context` and `response`, or `messages`, as requests have them, with a `label` or a `rating`.

    `label` is "good" or "bad"; a turn whose `rating` is at least `good_from` is good. `dialogue` names the dialogue;
    without it, turns whose contexts begin with the same text of five words or more count as one dialogue's. Raises
    BadFileError naming the row.
    """
    turns: list[TurnToScore] = []
    good: list[bool] = []
    dialogues: list[str] = []
    for number, row in read_rows(path):
        turns.append(_read_turn(path, number, row))
        good.append(_is_good(path, number, row, good_from))
        dialogues.append(_dialogue_of(number, row, turns[-1]))
    return RatedTurns(turns, good, dialogues)


def _read_turn(path: Path, number: int, row: dict[str, Any]) -> TurnToScore:
    if row.get("options"):
        raise BadFileError(path, number, "has `options`; remove them: the turns are scored without any")
    try:
        request = ScoreRequest.model_validate({name: row[name] for name in _SAID if name in row})
    except ValidationError as error:
        field, message = describe_refusal(error)
        raise BadFileError(path, number, f"{field}: {message}") from error
    return TurnToScore(request.context, request.response)


def _is_good(path: Path, number: int, row: dict[str, Any], good_from: float | None) -> bool:
    label, rating = row.get("label"), row.get("rating")
    if label is not None:
        if not isinstance(label, str) or label not in LABELS:
            raise BadFileError(path, number, "`label` must be good or bad")
        return LABELS[label]
    if isinstance(rating, bool) or not isinstance(rating, int | float) or not math.isfinite(rating):
        raise BadFileError(path, number, "must have a `label`, or a number as `rating`")
    if good_from is None:
        raise BadFileError(
            path, number, "has a `rating` and no `label`: give --good-from, the rating from which a turn is good"
        )
    return rating >= good_from


def _dialogue_of(number: int, row: dict[str, Any], turn: TurnToScore) -> str:
    if row.get("dialogue") is not None:
        return f"named {row['dialogue']}"
    opening = turn.context[0].text.split() if turn.context else []
    return f"begins {' '.join(opening)}" if len(opening) >= _SHARED_WORDS else f"row {number}"

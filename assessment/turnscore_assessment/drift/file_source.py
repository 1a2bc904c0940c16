"""Live values from a file of scores that `turnscore score` wrote. Skips and keeps no text."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from turnscore_wire import Score

from turnscore_assessment.data.dialogues import read_rows
from turnscore_assessment.drift.live_values import Collection, LiveValues
from turnscore_assessment.drift.stability import BINS
from turnscore_assessment.errors import BadDataError

_SCORES = TypeAdapter(dict[str, Score])
_FOREIGN = "not_in_language"
_SYSTEM = ("system", "assistant")


def read_file(path: Path) -> list[LiveValues]:
    """The values of all rows. Raises BadDataError where a row's scores are wrong, or no row has any."""
    found = Collection()
    for row, record in read_rows(path):
        dialogue = Collection()
        begun: set[tuple[str, str]] = set()
        for place, sent in enumerate(_scored_of(record)):
            try:
                scores = _SCORES.validate_python(sent["scores"])
            except ValidationError as error:
                where = ".".join(map(str, error.errors()[0]["loc"]))
                raise BadDataError(path, row, f"scores.{where} of scored turn {place + 1} is wrong") from error
            for name, score in scores.items():
                values = dialogue.of(name, score.model)
                _count(values, score)
                if _begins(sent) and (name, score.model) not in begun:
                    begun.add((name, score.model))
                    values.dialogues += 1
        for values in dialogue.all():
            # A row of a single turn does not say which other rows are of its dialogue.
            if "scores" not in record:
                values.products = np.outer(values.bins, values.bins).tolist()
            found.of(values.scorer, values.model).add(values)
    if not found.all():
        raise BadDataError(path, 1, "has no scores: give a file that `turnscore score` wrote")
    return found.all()


def _scored_of(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The scored turns of a row, which is a dialogue or a turn."""
    turns = next((record[key] for key in ("turns", "messages") if isinstance(record.get(key), list)), None)
    for each in [record] if turns is None or "scores" in record else turns:
        if isinstance(each, dict) and each.get("scores"):
            yield each


def _begins(sent: Mapping[str, Any]) -> bool:
    """Whether the row has no system text before the turn."""
    before = sent.get("context", sent.get("messages"))
    if not isinstance(before, Sequence):
        return True
    earlier = before[:-1] if "context" not in sent else before
    return not any(isinstance(turn, dict) and turn.get("speaker", turn.get("role")) in _SYSTEM for turn in earlier)


def _count(values: LiveValues, score: Score) -> None:
    values.turns += 1
    if score.percentile is not None:
        values.bins[max(0, ceil(score.percentile * BINS / 100) - 1)] += 1
    if score.label is not None:
        values.labelled += 1
        values.low += score.label == "low"
    values.cut += score.tokens.dropped > 0 or score.tokens.truncated
    values.foreign += _FOREIGN in score.warnings

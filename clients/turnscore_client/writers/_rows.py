"""Rows: takes what `turnscore score` writes to a tool, by the ids that its input carried.

A turn's line names its place by `trace_id`, `span_id` and `session_id`; a dialogue's by `session_id`, and each of its
turns or messages by a `trace_id` and `span_id` of its own.
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from turnscore_wire import DialogueAggregate, Score

from turnscore_client._errors import InvalidRequestError
from turnscore_client._files.rows import turns_in
from turnscore_client._files.scoring import UndeliveredError
from turnscore_client.integrations._options import TurnIds
from turnscore_client.writers._entries import ScoreEntry, dialogue_entries, turn_entries
from turnscore_client.writers._writer import ScoreWriter

_REASON_CHARS = 200  # chosen: the first sentence of a tool's error


class RowWriter:
    """Writes each row's scores to a tool before the row is written to the output. `written` counts them."""

    def __init__(self, name: str, writer: ScoreWriter) -> None:
        self.written = 0
        self._name = name
        self._writer = writer

    async def deliver(self, row: Mapping[str, Any]) -> None:
        """Raises UndeliveredError where the tool does not take them, InvalidRequestError for ids that are none."""
        try:
            entries = list(row_entries(row))
        except InvalidRequestError as error:
            raise InvalidRequestError(f"line {row.get('line')}: {error.message}", error.field) from None
        try:
            await asyncio.to_thread(self._write, entries)
        except Exception as error:
            raise UndeliveredError(f"{self._name}: {str(error)[:_REASON_CHARS] or type(error).__name__}") from error

    def close(self) -> None:
        """Returns when the tool has what was written."""
        self._writer.close()

    def _write(self, entries: list[ScoreEntry]) -> None:
        for entry in entries:
            self._writer.write(entry)
            self.written += 1


def row_entries(row: Mapping[str, Any]) -> Iterator[ScoreEntry]:
    """The entries of a row; none for what failed or names no place. Raises InvalidRequestError for wrong ids."""
    ids = _ids_of(row, "")
    if "dialogue" not in row:
        return turn_entries(_scores_of(row), ids)
    kind = "messages" if "messages" in row else "turns"
    turns = [
        turn_entries(_scores_of(turn), _ids_of(turn, f"{kind}.{place}.", ids.session_id))
        for place, turn in enumerate(turns_in(row))
        if isinstance(turn, Mapping) and "scores" in turn
    ]
    aggregates = {name: DialogueAggregate.model_validate(each) for name, each in row["dialogue"].items()}
    return chain(*turns, dialogue_entries(aggregates, ids))


def _scores_of(scored: Mapping[str, Any]) -> dict[str, Score]:
    return {name: Score.model_validate(score) for name, score in (scored.get("scores") or {}).items()}


def _ids_of(fields: Mapping[str, Any], place: str, session_id: str | None = None) -> TurnIds:
    found: dict[str, str | None] = {"trace_id": None, "span_id": None, "session_id": None}
    for name in found:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidRequestError("must be a text", f"{place}{name}")
        found[name] = value or None
    found["session_id"] = found["session_id"] or session_id
    return TurnIds(**found)

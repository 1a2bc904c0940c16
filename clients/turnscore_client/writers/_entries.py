"""Scores as the entries that evaluation tools keep, and the writers of them."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from typing import Any, Protocol

from turnscore_wire import DialogueAggregate, Score

from turnscore_client._background import Scored, TurnIds
from turnscore_client._errors import InvalidRequestError
from turnscore_client._files.rows import turns_in
from turnscore_client._files.scoring import UndeliveredError

PREFIX = "turnscore."


@dataclass(frozen=True, kw_only=True)
class ScoreEntry:
    """One score with a name, for one place. It holds no text of the dialogue."""

    # `turnscore.` and the scorer's.
    name: str
    value: float
    label: str | None
    # What the value means, in a sentence.
    explanation: str
    ids: TurnIds
    # Whether it is the mean over a dialogue, for the session of `ids`.
    is_session: bool = False
    # What else is known: the model, the percentile, warnings, signals.
    metadata: Mapping[str, str | float | int | bool] = field(default_factory=dict)

    @property
    def labelled(self) -> dict[str, str | float | int | bool]:
        """The metadata with the label, for tools that have no place of its own for it."""
        return {**self.metadata, **({"label": self.label} if self.label else {})}

    @property
    def key(self) -> str:
        """The same for the same scorer and place, so that who writes twice changes, and does not add."""
        place = (self.ids.session_id,) if self.is_session else (self.ids.trace_id, self.ids.span_id)
        return hashlib.sha256(repr((self.name, self.is_session, place)).encode()).hexdigest()[:32]


def turn_entries(scores: Mapping[str, Score], ids: TurnIds) -> Iterator[ScoreEntry]:
    """The entries of one turn; none where the ids name no place for it."""
    if ids.trace_id is None and ids.span_id is None:
        return
    for name, score in scores.items():
        known = {
            "turnscore.model": score.model,
            "turnscore.percentile": score.percentile,
            "turnscore.warnings": ",".join(score.warnings) or None,
            "turnscore.signals": ",".join(score.signals) or None,
            "turnscore.stand_in": score.stand_in or None,
        }
        yield ScoreEntry(
            name=PREFIX + name,
            value=score.value,
            label=score.label,
            explanation=_explain(score.percentile),
            ids=ids,
            metadata={key: value for key, value in known.items() if value is not None},
        )


def dialogue_entries(aggregates: Mapping[str, DialogueAggregate], ids: TurnIds) -> Iterator[ScoreEntry]:
    """The entries of a whole dialogue; none where no session is named."""
    if ids.session_id is None:
        return
    for name, whole in aggregates.items():
        known = {
            "turnscore.min": whole.min,
            "turnscore.max": whole.max,
            "turnscore.turns": whole.turns,
            "turnscore.percentile_mean": whole.percentile_mean,
        }
        yield ScoreEntry(
            name=PREFIX + name,
            value=whole.mean,
            label=None,
            explanation=f"mean of {whole.turns} turns, the lowest {whole.min:.4g}",
            ids=ids,
            is_session=True,
            metadata={key: value for key, value in known.items() if value is not None},
        )


def _explain(percentile: float | None) -> str:
    return "" if percentile is None else f"{percentile:.0f} of 100 reference turns score lower"


WRITERS = {
    "langfuse": "langfuse_writer:LangfuseWriter",
    "langsmith": "langsmith_writer:LangSmithWriter",
    "mlflow": "mlflow_writer:MlflowWriter",
    "opik": "opik_writer:OpikWriter",
    "phoenix": "phoenix_writer:PhoenixWriter",
}


class ScoreWriter(Protocol):
    """Writes entries to a tool. An integration calls it with each outcome; one that failed writes nothing."""

    def write(self, entry: ScoreEntry) -> None:
        """Writes one entry, or raises what the tool's client raises; an entry without a place in the tool is left."""

    def close(self) -> None:
        """Returns when the tool has what was written."""

    def __call__(self, scored: Scored) -> None:
        ids = scored.tag if isinstance(scored.tag, TurnIds) else TurnIds()
        for entry in turn_entries(scored.reply.scores, ids) if scored.reply is not None else ():
            self.write(entry)


def open_writer(name: str) -> ScoreWriter:
    """The writer with that name, set up by its tool's environment variables.

    Raises ValueError for a name that there is not, ImportError, naming the extra, where its tool is not installed.
    """
    if name not in WRITERS:
        raise ValueError(f"there is no writer {name!r}; there are {', '.join(sorted(WRITERS))}")
    module, _, kind = WRITERS[name].partition(":")
    opened: ScoreWriter = getattr(import_module(f"turnscore_client.writers.{module}"), kind)()
    return opened


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
            # chosen: the first sentence of a tool's error
            raise UndeliveredError(f"{self._name}: {str(error)[:200] or type(error).__name__}") from error

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

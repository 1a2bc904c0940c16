"""The tables that a run writes: their columns, and a block's rows. docs/corpora.md lists the columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from turnscore_core.dialogues import DialogueResult, ModelIdentity, TurnResult
from turnscore_wire import DialogueAggregate, ErrorCode, Score

from turnscore_corpus.inputs.dialogues import InputDialogue, SetAside

TABLES = ("turns", "dialogues", "set_aside")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `<scorer>_` stands before the name of a column that each scorer has."""

    name: str
    type: Any
    meaning: str


PLACE = (
    Column("dialogue", pa.string(), "the dialogue's name in the input, or `row N` where it has none"),
    Column("file", pa.string(), "the input file: an absolute path or a URI"),
    Column("row", pa.int64(), "the row in that file, from 1: a line, a record behind the header, a row of a table"),
)
CARRIED = (
    Column("system", pa.string(), "what `--system-column` held"),
    Column("day", pa.string(), "what `--day-column` held"),
)
TURN = (
    *PLACE,
    Column("index", pa.int32(), "the turn's place in its dialogue, from 0; of messages that of its last text"),
    *CARRIED,
)
TURN_SCORES = (
    Column("value", pa.float64(), "the score; null where this scorer gave none"),
    Column("percentile", pa.float64(), "share of the bundle's reference turns that score lower"),
    Column("label", pa.string(), "`low`, `fair` or `good`; null without a threshold"),
    Column("details", pa.map_(pa.string(), pa.float64()), "the parts that the value is made of"),
    Column("warnings", pa.list_(pa.string()), "what to know before the score is believed"),
    Column("tokens_used", pa.int32(), "tokens that the model saw"),
    Column("tokens_dropped", pa.int32(), "tokens that were cut"),
    Column("truncated", pa.bool_(), "whether text was left out before it became tokens"),
    Column("model", pa.string(), "the bundle, as `name:version`"),
    Column("digest", pa.string(), "SHA-256 of what in the bundle can change a score"),
)
DIALOGUE = (
    *PLACE,
    *CARRIED,
    Column("turns", pa.int32(), "turns, or messages, in the input"),
    Column("scored", pa.int32(), "system turns that have a score of at least one scorer"),
)
DIALOGUE_SCORES = (
    Column("mean", pa.float64(), "mean of the values: the dialogue's score as the papers define it"),
    Column("min", pa.float64(), "least value"),
    Column("max", pa.float64(), "greatest value"),
    Column("turns", pa.int32(), "turns that count for this scorer; null where there is none"),
    Column("percentile_mean", pa.float64(), "mean of the percentiles; null if one has none"),
    Column("percentile_min", pa.float64(), "least percentile"),
    Column("percentile_max", pa.float64(), "greatest percentile"),
)
SET_ASIDE = (
    *PLACE,
    Column("turn", pa.int32(), "the turn's place in its dialogue; null where the whole row was set aside"),
    Column("scorer", pa.string(), "the scorer that gave no score; null where none was asked"),
    Column("code", pa.string(), "`invalid_request`, `too_large` or `internal`, as in the service's errors"),
    Column("field", pa.string(), "the field at fault, such as `turns.3.text`"),
    Column("reason", pa.string(), "why; never holds a text of the input"),
)


def schema_of(table: str, scorers: Iterable[str]) -> Any:
    """The Arrow schema of a table for these scorers, in their order."""
    if table == "set_aside":
        return _schema(SET_ASIDE)
    own, of_scorers = (TURN, TURN_SCORES) if table == "turns" else (DIALOGUE, DIALOGUE_SCORES)
    named = [Column(f"{scorer}_{each.name}", each.type, each.meaning) for scorer in scorers for each in of_scorers]
    return _schema((*own, *named))


def _schema(columns: Iterable[Column]) -> Any:
    return pa.schema([pa.field(each.name, each.type) for each in columns])


Row = dict[str, Any]


class BlockRows:
    """The rows of one block's three tables, in the order of the input."""

    def __init__(self, file: str, models: Mapping[str, ModelIdentity]) -> None:
        self._file = file
        self._models = models
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.turns_scored = 0

    def set_aside(self, each: SetAside) -> None:
        """Adds something that was not scored."""
        place = {"dialogue": each.dialogue, "file": self._file, "row": each.row, "turn": each.turn}
        why = {"scorer": each.scorer, "code": each.code, "field": each.field, "reason": each.reason}
        self._rows["set_aside"].append({**place, **why})

    def add(self, dialogue: InputDialogue, result: DialogueResult) -> None:
        """Adds a scored dialogue, or what the engine refused of it."""
        if result.error is not None:
            self.set_aside(
                SetAside(row=dialogue.row, dialogue=dialogue.id, code=ErrorCode.INTERNAL.value, reason=result.error)
            )
            return
        scored = sum(self._add_turn(dialogue, turn) for turn in result.turns)
        self.turns_scored += scored
        place = {"dialogue": dialogue.id, "file": self._file, "row": dialogue.row}
        row = {**place, "system": dialogue.system, "day": dialogue.day, "turns": dialogue.turns_given, "scored": scored}
        for name in self._models:
            row |= _aggregate_cells(name, result.aggregates.get(name))
        self._rows["dialogues"].append(row)

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        return {name: len(rows) for name, rows in self._rows.items()}

    def tables(self) -> dict[str, Any]:
        """The tables that have rows."""
        return {
            name: pa.Table.from_pylist(rows, schema=schema_of(name, self._models))
            for name, rows in self._rows.items()
            if rows
        }

    def _add_turn(self, dialogue: InputDialogue, turn: TurnResult) -> bool:
        place = dialogue.places[turn.index]
        for name, error in turn.errors.items():
            self.set_aside(
                SetAside(
                    row=dialogue.rows[turn.index], dialogue=dialogue.id, turn=place, scorer=name,
                    code=error.code.value, field=error.field, reason=error.message,
                )
            )  # fmt: skip
        if not turn.scores:
            return False
        row = {
            "dialogue": dialogue.id, "file": self._file, "row": dialogue.rows[turn.index], "index": place,
            "system": dialogue.system, "day": dialogue.day,
        }  # fmt: skip
        for name, model in self._models.items():
            row |= _score_cells(name, model, turn.scores.get(name))
        self._rows["turns"].append(row)
        return True


def _score_cells(name: str, model: ModelIdentity, score: Score | None) -> Row:
    if score is None:
        return dict.fromkeys(f"{name}_{each.name}" for each in TURN_SCORES)
    cells: Sequence[object] = (
        score.value, score.percentile, score.label, list(score.details.items()), score.warnings,
        score.tokens.used, score.tokens.dropped, score.tokens.truncated, score.model, model.digest,
    )  # fmt: skip
    return {f"{name}_{each.name}": cell for each, cell in zip(TURN_SCORES, cells, strict=True)}


def _aggregate_cells(name: str, found: DialogueAggregate | None) -> Row:
    return {f"{name}_{each.name}": None if found is None else getattr(found, each.name) for each in DIALOGUE_SCORES}

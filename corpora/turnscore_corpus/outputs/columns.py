"""The columns of the tables that a run writes; docs/corpora.md lists the same. Decides names and types alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

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

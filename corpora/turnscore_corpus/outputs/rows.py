"""Rows: the scores of a block as rows of its tables. Holds no text of a dialogue."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from turnscore_core.dialogues import DialogueResult, ModelIdentity, TurnResult
from turnscore_wire import DialogueAggregate, ErrorCode, Score

from turnscore_corpus.inputs.dialogues import InputDialogue, SetAside
from turnscore_corpus.outputs.columns import DIALOGUE_SCORES, TABLES, TURN_SCORES, schema_of

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
        row = {**place, "system": dialogue.system, "day": dialogue.day, "turns": dialogue.said, "scored": scored}
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

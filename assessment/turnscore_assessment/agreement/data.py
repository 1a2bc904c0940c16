"""Judged dialogues: dialogues with people's judgements of turns or of the whole. Reads and checks; scores nothing.

docs/agreement.md describes the form.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from turnscore_wire import Turn

from turnscore_assessment.agreement.forms import FORMS, STUDY, BadFieldError, Record
from turnscore_assessment.agreement.study_form import read_study
from turnscore_assessment.data.dialogues import read_rows
from turnscore_assessment.errors import BadDataError
from turnscore_assessment.files import write_packed

Quality = Annotated[float, Field(allow_inf_nan=False)]


class JudgedTurn(Turn):
    """A turn; `quality` is people's judgement of it, on any scale that rises with quality."""

    model_config = ConfigDict(extra="ignore")

    quality: Quality | None = None


class JudgedDialogue(BaseModel):
    """A dialogue, oldest turn first; `quality` is people's judgement of the whole."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    id: Annotated[str, Field(min_length=1)]
    system: Annotated[str, Field(min_length=1)] | None = None
    turns: Annotated[list[JudgedTurn], Field(min_length=1)]
    quality: Quality | None = None

    @property
    def system_places(self) -> list[int]:
        """The places of the turns that are scored."""
        return [place for place, turn in enumerate(self.turns) if turn.speaker == "system"]

    @property
    def is_judged(self) -> bool:
        """Whether people judged the dialogue or a turn of it."""
        return self.quality is not None or bool(self.turn_qualities)

    @property
    def turn_qualities(self) -> dict[int, float]:
        """The judged turns' qualities by their place."""
        return {place: turn.quality for place, turn in enumerate(self.turns) if turn.quality is not None}


def drop_empty_turns(dialogue: JudgedDialogue) -> JudgedDialogue:
    """The dialogue without the system turns that have no text: the service scores none."""
    kept = [turn for turn in dialogue.turns if turn.speaker == "user" or turn.text.strip()]
    return dialogue.model_copy(update={"turns": kept})


def read_judged_dialogues(path: Path, form: str = "judged") -> list[JudgedDialogue]:
    """The dialogues of a `.jsonl` or `.jsonl.gz` file in one of FORMS.

    Raises BadDataError naming the file, the line and the field.
    """
    dialogues: dict[str, JudgedDialogue] = {}
    for row, record in read_study(path) if form == STUDY else read_rows(path):
        dialogue = _build_dialogue(record, path, row, form)
        if dialogue.id in dialogues:
            raise BadDataError(path, row, f"id: {dialogue.id!r} was already used; give each dialogue its own")
        dialogues[dialogue.id] = dialogue
    if not dialogues:
        raise BadDataError(path, 0, "has no dialogue")
    return list(dialogues.values())


def write_judged_dialogues(path: Path, dialogues: Iterable[JudgedDialogue]) -> None:
    """Writes the dialogues, one per line; gzipped, byte for byte the same each time, where the name ends in `.gz`."""
    lines = "".join(dialogue.model_dump_json(exclude_none=True) + "\n" for dialogue in dialogues)
    write_packed(path, lines)


def _build_dialogue(record: Record, path: Path, row: int, form: str) -> JudgedDialogue:
    try:
        dialogue = JudgedDialogue.model_validate(FORMS[form](record))
    except ValidationError as error:
        raise BadDataError(path, row, _describe(error)) from None
    except BadFieldError as error:
        raise BadDataError(path, row, str(error)) from None
    if not drop_empty_turns(dialogue).system_places:
        raise BadDataError(path, row, "turns: there is no system turn to score")
    for place, turn in enumerate(dialogue.turns):
        if turn.speaker == "user" and turn.quality is not None:
            raise BadDataError(path, row, f"turns.{place}.quality: only system turns are judged")
    return dialogue


def _describe(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{'.'.join(map(str, first['loc']))}: {message}"

"""Columns: which columns of a table, or fields of a line, hold what. Reads no file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turnscore_wire import Speaker

from turnscore_corpus.errors import BadColumnsError

RowHolds = Literal["dialogue", "turn"]
DIALOGUE_FIELDS = ("turns", "messages")
"""The columns tried for a row's dialogue where none is named: our form, and OpenAI's chat form."""
DEFAULT_ID = "id"
DEFAULT_DIALOGUE = "dialogue"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns' names; None for one that was not named: its usual name is looked for, or it is left out."""

    row: RowHolds = "dialogue"
    """What a row holds: a whole dialogue, or one turn of it."""
    id: str | None = None
    """The dialogue's name: `id` where a row is a dialogue, `dialogue` where it is a turn."""
    turns: str | None = None
    messages: str | None = None
    speaker: str = "speaker"
    text: str = "text"
    order: str | None = None
    """The column that orders a dialogue's turns; None keeps the order of the rows."""
    speakers: tuple[tuple[str, Speaker], ...] = ()
    """Names of speakers besides `user` and `system`, with the one that each stands for."""
    system: str | None = None
    day: str | None = None

    def speaker_of(self, name: object) -> object:
        """The wire's word for a speaker; other names stay as they are."""
        return dict(self.speakers).get(name, name) if isinstance(name, str) else name

    @property
    def id_column(self) -> str:
        """The column of the dialogue's name, if there is one."""
        return self.id or (DEFAULT_DIALOGUE if self.row == "turn" else DEFAULT_ID)

    def needed(self, file: str, known: Sequence[str]) -> list[str]:
        """The columns to read of a file that has those. Raises BadColumnsError for one that is missing."""
        named = self._named() if self.row == "dialogue" else self._named_of_turns()
        for option, column in named.items():
            if column not in known:
                raise BadColumnsError(option, column, file, known)
        found = list(named.values())
        if self.row == "dialogue":
            if self.turns is None and self.messages is None:
                dialogue = [each for each in DIALOGUE_FIELDS if each in known][:1]
                if not dialogue:
                    raise BadColumnsError("--turns-column or --messages-column", "turns", file, known)
                found += dialogue
            if self.id is None and DEFAULT_ID in known:
                found.append(DEFAULT_ID)
        return list(dict.fromkeys(found))

    def dialogue_field(self, fields: Mapping[str, object]) -> tuple[str, bool] | None:
        """The field that holds a row's dialogue, and whether it holds messages; None where there is none."""
        if self.turns is not None:
            return (self.turns, False) if self.turns in fields else None
        if self.messages is not None:
            return (self.messages, True) if self.messages in fields else None
        return next(((each, each == "messages") for each in DIALOGUE_FIELDS if fields.get(each) is not None), None)

    def _named(self) -> dict[str, str]:
        given = {
            "--turns-column": self.turns,
            "--messages-column": self.messages,
            "--id-column": self.id,
            "--system-column": self.system,
            "--day-column": self.day,
        }
        return {option: column for option, column in given.items() if column is not None}

    def _named_of_turns(self) -> dict[str, str]:
        named = self._named() | {"--id-column": self.id_column}
        named |= {"--speaker-column": self.speaker, "--text-column": self.text}
        return named if self.order is None else {**named, "--order-column": self.order}

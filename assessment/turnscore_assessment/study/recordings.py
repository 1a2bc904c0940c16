"""Recorded dialogues that workers read and rate: JSON lines with `id` (or `dialogue`) and `turns`.

The files are read whole, once, at the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.ratings.form import Name, SpokenTurn
from turnscore_assessment.ratings.rating_file import describe_problem, read_lines
from turnscore_assessment.study.plan import StudyPlan, SystemPlan

MOST_DIALOGUES = 20_000
"""Most dialogues of one system. Chosen: more than people rate."""
MOST_TURNS = 200
"""Most turns of one dialogue. Chosen: nobody reads more."""


class _Line(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True, extra="ignore")

    id: Annotated[Name, Field(validation_alias=AliasChoices("id", "dialogue"))]
    turns: Annotated[tuple[SpokenTurn, ...], Field(min_length=1, max_length=MOST_TURNS)]


@dataclass(frozen=True)
class Recordings:
    """Recorded dialogues by system and name."""

    turns: Mapping[str, Mapping[str, Sequence[SpokenTurn]]]

    @property
    def names(self) -> dict[str, list[str]]:
        """The dialogues' names, by system."""
        return {system: list(dialogues) for system, dialogues in self.turns.items()}

    def find(self, system: str, name: str | None) -> Sequence[SpokenTurn] | None:
        """The turns of a dialogue; None where the files no longer have it."""
        return self.turns.get(system, {}).get(name) if name is not None else None


def read_recordings(plan: StudyPlan) -> Recordings:
    """The recorded dialogues of all systems; BadFileError names the file, the line and the field."""
    return Recordings({system.name: _read(plan, system) for system in plan.systems if system.dialogues is not None})


def _read(plan: StudyPlan, system: SystemPlan) -> dict[str, Sequence[SpokenTurn]]:
    path = system.dialogues
    assert path is not None
    found: dict[str, Sequence[SpokenTurn]] = {}
    for number, fields in read_lines(path):
        try:
            line = _Line.model_validate(fields)
        except ValidationError as error:
            raise BadFileError(path, number, describe_problem(error)) from None
        if line.id in found:
            raise BadFileError(path, number, f"id: {line.id!r} was already used")
        if not any(turn.speaker == "system" and turn.text.strip() for turn in line.turns):
            raise BadFileError(path, number, "turns: the system says nothing")
        if len(found) == MOST_DIALOGUES:
            raise BadFileError(path, number, f"the file holds more than {MOST_DIALOGUES:,} dialogues")
        found[line.id] = line.turns
    if len(found) < plan.dialogues_per_system:
        raise BadFileError(path, 0, f"has {len(found)} dialogues, fewer than dialogues_per_system")
    return found

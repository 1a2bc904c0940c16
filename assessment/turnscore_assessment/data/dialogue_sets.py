"""Sets of dialogues for the sentiment/stop model: descriptions, system turns, and the reference population."""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError

from turnscore_assessment.data.dialogues import SYSTEM, USER, RecordedDialogue, Spoken, read_dialogues
from turnscore_assessment.data.labelled_turns import LabelledTurn
from turnscore_assessment.errors import BadFileError

DEFAULT_SETS = Path(__file__).with_name("dialogue_sets.json")
_GOODBYE = re.compile(
    r"\b(good ?bye|bye+|gotta go|got to go|have to go|need to go|time to go|going to go|end (the )?(conversation|chat)"
    r"|talk to you later|see you|see ya|i'?m done|im done|ttyl|have a (good|nice|great) (day|night|evening|one))\b",
    re.IGNORECASE,
)


class DialogueSet(BaseModel):
    """One set of dialogues in the shared form: its file, who the system is, and what its ends mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    files: list[str] = Field(min_length=1, description="The file, below the data folder.")
    roles: Literal["speaker", "participants", "alternate"] = Field(
        description="`speaker`: the turns say user or system. `participants`: the row says who is human and who bot; "
        "other pairings are left out. `alternate`: every second turn is the system's, the first one of odd dialogues."
    )
    goes_on: Literal["observed", "answered", "unknown"] = Field(
        description="`observed`: a user turn follows, or the user stopped. `answered`: only turns that were answered. "
        "`unknown`: neither means anything; the turns carry a sentiment alone."
    )
    reason: str = Field(description="Why `goes_on` is what it is.")
    licence: str
    left_out_systems: list[str] = []
    every: dict[str, PositiveInt] = Field({}, description="Rows of this source are thinned: one in so many is read.")
    most_turns: PositiveInt | None = Field(None, description="A random draw of this many turns.")


def read_sets(path: Path = DEFAULT_SETS) -> list[DialogueSet]:
    """The descriptions in a JSON file; BadFileError naming the first field that is wrong."""
    try:
        return TypeAdapter(list[DialogueSet]).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError) as error:
        raise BadFileError(path, 0, f"cannot be read ({error})") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BadFileError(path, 0, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def read_turns(folder: Path, sets: Sequence[DialogueSet], seed: int = 0) -> dict[str, list[LabelledTurn]]:
    """The usable turns of each set by its name: system turns with a text and something said before."""
    return {each.name: list(_draw(each, folder, seed)) for each in sets}


def _draw(described: DialogueSet, folder: Path, seed: int) -> Sequence[LabelledTurn]:
    turns: list[LabelledTurn] = []
    for file in described.files:
        for row, dialogue in enumerate(read_dialogues(folder / file)):
            if row % described.every.get(dialogue.source, 1) == 0 and dialogue.system not in described.left_out_systems:
                turns += observe_turns(described, _name_speakers(described, dialogue, row))
    if described.most_turns is None or described.most_turns >= len(turns):
        return turns
    return random.Random(seed).sample(turns, described.most_turns)  # noqa: S311


def _name_speakers(described: DialogueSet, dialogue: RecordedDialogue, row: int) -> list[Spoken]:
    """The dialogue's turns as spoken by user and system; none where it has not one of each."""
    names: Mapping[str, str] = {USER: USER, SYSTEM: SYSTEM}
    if described.roles == "participants":
        if sorted(dialogue.participants.values()) != ["bot", "human"]:
            return []
        names = {name: SYSTEM if kind == "bot" else USER for name, kind in dialogue.participants.items()}
    if described.roles == "alternate":
        return [(SYSTEM if place % 2 == row % 2 else USER, turn.text) for place, turn in enumerate(dialogue.turns)]
    return [(names[turn.speaker], turn.text) for turn in dialogue.turns if turn.speaker in names]


def observe_turns(described: DialogueSet, turns: Sequence[Spoken]) -> Iterator[LabelledTurn]:
    """Every system turn with a context that a user turn follows, or, where the set shows stops, nothing."""
    for place, (speaker, text) in enumerate(turns):
        context = tuple(turns[:place])
        if speaker != SYSTEM or not context or not text.strip():
            continue
        is_last = place + 1 == len(turns)
        labels = {}
        if is_last:
            left_anyway = context[-1][0] == USER and says_goodbye(context[-1][1])
            labels = {} if left_anyway else {"goes_on": 0.0}
        elif described.goes_on != "unknown":
            labels = {"goes_on": 1.0}
        if described.goes_on == "observed" if is_last else turns[place + 1][0] == USER:
            yield LabelledTurn(
                set_name=described.name,
                context=context,
                response=text,
                next_user=None if is_last else turns[place + 1][1],
                labels=labels,
            )


def says_goodbye(utterance: str) -> bool:
    """Whether the user was leaving anyway: the stop that follows says nothing about the response."""
    return bool(_GOODBYE.search(utterance))


SET_NAME = "human_assessment"
STATED = (
    "system turns of the human assessment dialogues (Dialogue-Eval) of which no turn was trained on: five open-domain "
    "systems, with and without a persona, in 2021; the degraded system left out"
)


@dataclass(frozen=True)
class Population:
    """System turns in their contexts, and their dialogues (file, id and order, as SpokenTurn names them)."""

    turns: list[LabelledTurn]
    dialogues: frozenset[str]


def read_population(folder: Path) -> Population:
    """The dialogues of which the sentiment/stop model's training draws nothing; the quality model leaves them out."""
    described = next(each for each in read_sets() if each.name == SET_NAME)
    drawn = {(turn.context, turn.response) for turn in read_turns(folder, [described])[SET_NAME]}
    turns: list[LabelledTurn] = []
    dialogues: set[str] = set()
    for file in described.files:
        for dialogue in read_dialogues(folder / file):
            if dialogue.system in described.left_out_systems:
                continue
            found = list(observe_turns(described, [(turn.speaker, turn.text) for turn in dialogue.turns]))
            if found and not any((turn.context, turn.response) in drawn for turn in found):
                turns += found
                dialogues.add(f"{file} {dialogue.id} {dialogue.order}")
    return Population(turns, frozenset(dialogues))


SAMPLE_FILE = "SAMPLE.md"
"""The file by which a sample's folder is known."""


def is_sample(folder: Path) -> bool:
    return (folder / SAMPLE_FILE).is_file()

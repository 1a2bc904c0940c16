"""The population of turns that no shipped model was trained on, which every scorer's percentiles refer to."""

from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.data.dialogue_sets import ObservedTurn, observe_turns, read_sets, read_turns
from turnscore_assessment.data.dialogues import read_dialogues

SET_NAME = "human_assessment"
STATED = (
    "system turns of the human assessment dialogues (Dialogue-Eval) of which no turn was trained on: five open-domain "
    "systems, with and without a persona, in 2021; the degraded system left out"
)


@dataclass(frozen=True)
class Population:
    """System turns in their contexts, and their dialogues (file, id and order, as SpokenTurn names them)."""

    turns: list[ObservedTurn]
    dialogues: frozenset[str]


def read_population(folder: Path) -> Population:
    """The dialogues of which the sentiment/stop model's training draws nothing; the quality model leaves them out."""
    described = next(each for each in read_sets() if each.name == SET_NAME)
    drawn = {(turn.context, turn.response) for turn in read_turns(folder, [described])[SET_NAME]}
    turns: list[ObservedTurn] = []
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

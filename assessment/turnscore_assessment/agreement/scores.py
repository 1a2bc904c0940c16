"""Scores to be compared with people's judgements, wherever they were computed. Computes nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

VALUE = "value"
"""The part of a score that is its value; the other parts are its details."""

Advance = Callable[[int], None]
"""Called with the number of dialogues scored since the last call."""


@dataclass(frozen=True)
class DialogueScores:
    """One scorer's scores of one dialogue."""

    turns: Mapping[int, Mapping[str, float]]
    """`value` and details by the system turn's place."""
    dialogue: Mapping[str, float]
    """Their means over the turns that count; a part without such a turn is left out."""


@dataclass(frozen=True, kw_only=True)
class ScoredFile:
    """One scorer's scores of every dialogue, in the file's order."""

    scorer: str
    model: str
    digest: str
    graph: str
    dialogues: Sequence[DialogueScores]

    @property
    def parts(self) -> list[str]:
        found = {part for dialogue in self.dialogues for parts in dialogue.turns.values() for part in parts}
        return [VALUE, *sorted(found - {VALUE})]


def average_parts(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each part that all turns have."""
    shared = set.intersection(*(set(turn) for turn in turns)) if turns else set()
    return {part: sum(turn[part] for turn in turns) / len(turns) for part in sorted(shared)}

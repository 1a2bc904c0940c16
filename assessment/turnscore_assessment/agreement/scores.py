"""Scores to be compared with people's: what a scorer says of judged dialogues, wherever it runs. Computes nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

VALUE = "value"
"""The part of a score that is its value; the others are the entries of its details."""

Advance = Callable[[int], None]
"""Called with the number of dialogues scored since the last call."""


@dataclass(frozen=True)
class DialogueScores:
    """What one scorer says of one dialogue."""

    turns: Mapping[int, Mapping[str, float]]
    """By a system turn's place: its `value` and details."""
    dialogue: Mapping[str, float]
    """The means of the same over the turns that count; what is not known, or has no such turn, is left out."""


@dataclass(frozen=True, kw_only=True)
class ScoredFile:
    """What one scorer says of every dialogue, in the file's order."""

    scorer: str
    model: str
    digest: str
    graph: str
    dialogues: Sequence[DialogueScores]

    @property
    def parts(self) -> list[str]:
        """`value` and the details' names."""
        found = {part for dialogue in self.dialogues for parts in dialogue.turns.values() for part in parts}
        return [VALUE, *sorted(found - {VALUE})]


def average_parts(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each part that all turns have."""
    shared = set.intersection(*(set(turn) for turn in turns)) if turns else set()
    return {part: sum(turn[part] for turn in turns) / len(turns) for part in sorted(shared)}

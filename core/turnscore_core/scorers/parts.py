"""Parts: what of a turn can change its score, and the pieces in which a score can be kept and found again.

Most scores are one piece. FED's are a piece a quality, so that a turn that was scored on eighteen qualities answers for
any three of them. Knows no cache: it says what is equal, and how pieces become the score that they came from.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from turnscore_wire import TokenCount

from turnscore_core.scorers.fields import Fields, context_fields
from turnscore_core.scorers.scorer import RawScore, TurnToScore

WHOLE = b""
"""The fingerprint of a score that is one piece."""


@dataclass(frozen=True, slots=True)
class ScorePart:
    """A score, or one piece of it, with the tokens it was read from."""

    raw: RawScore
    tokens: TokenCount


@runtime_checkable
class Trims(Protocol):
    """A scorer that reads a bounded part of a turn."""

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """The turn without what the scorer cannot read, in time that the rest of its text does not lengthen.

        All other methods see only that. Scores it as the whole turn would be, but for the rule of
        turnscore_core.scorers.text_ends; trimming twice changes nothing.
        """


@runtime_checkable
class KnowsInputs(Protocol):
    """A scorer that reads less than everything of a turn."""

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """Everything of the turn and its options that can change its score or its token counts, before tokenizing."""


@runtime_checkable
class ScoresInParts(KnowsInputs, Protocol):
    """A scorer whose score is put together from pieces. `inputs_of` then leaves out what only the pieces depend on."""

    def parts_of(self, turn: TurnToScore) -> tuple[bytes, ...]:
        """A fingerprint for each piece of the turn's score, over all that the piece alone depends on."""

    def narrow(self, turn: TurnToScore, places: Sequence[int]) -> tuple[TurnToScore, Sequence[int]]:
        """The turn asking for these pieces alone, and which pieces that gives: more where that changed their values."""

    def split(self, turn: TurnToScore, whole: ScorePart) -> list[ScorePart]:
        """The pieces of a score, in the order of `parts_of`."""

    def join(self, turn: TurnToScore, parts: Sequence[ScorePart]) -> ScorePart:
        """The score of these pieces, which is bit for bit the one that they were split from."""


class WholeScores:
    """The pieces of a scorer that makes one of each score."""

    def __init__(self, scorer: object) -> None:
        self._reader = scorer if isinstance(scorer, KnowsInputs) else None

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """The parts that the scorer reads; without such a list everything, with the options as they were sent."""
        if self._reader is not None:
            return self._reader.inputs_of(turn)
        return (*context_fields(turn.context), turn.response, json.dumps(dict(turn.asked)))

    def parts_of(self, turn: TurnToScore) -> tuple[bytes, ...]:
        """One piece."""
        return (WHOLE,)

    def narrow(self, turn: TurnToScore, places: Sequence[int]) -> tuple[TurnToScore, Sequence[int]]:
        """The turn itself."""
        return turn, (0,)

    def split(self, turn: TurnToScore, whole: ScorePart) -> list[ScorePart]:
        """The score itself."""
        return [whole]

    def join(self, turn: TurnToScore, parts: Sequence[ScorePart]) -> ScorePart:
        """The only piece."""
        [whole] = parts
        return whole


def parts_reader(scorer: object) -> ScoresInParts:
    """The scorer's own splitter, or one that keeps scores whole."""
    return scorer if isinstance(scorer, ScoresInParts) else WholeScores(scorer)

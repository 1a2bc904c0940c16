"""Tokenizing pace: how long a scorer takes to tokenize, measured when it is loaded."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnscore_wire import Turn

from turnscore_core.scorers.fields import count_chars
from turnscore_core.scorers.parts import parts_reader
from turnscore_core.scorers.scorer import Scorer, TurnToScore

_ROUNDS = 5
"""Of which the shortest time counts: another process can only make it longer. Chosen."""
_LONG_CHARS = 2000
"""Of the text whose time for a character is measured. Chosen: what the turn itself takes hardly counts in it."""


@dataclass(frozen=True, slots=True)
class TokenizingPace:
    """Seconds for a turn, and for each character of what the scorer reads. Infinite without a measurement."""

    seconds_per_turn: float = math.inf
    seconds_per_char: float = 0.0

    def seconds(self, turns: int, chars: int) -> float:
        """Seconds that the turns, of so many characters together, take; more rather than less."""
        return turns * self.seconds_per_turn + chars * self.seconds_per_char


def measure_tokenizing(scorer: Scorer, turns: Sequence[TurnToScore]) -> TokenizingPace:
    """The pace for the shortest of these turns, and for a long one made of their responses.

    Their letters are turned round: a text of plain words takes a tenth of that, and callers may send any text.
    """
    reader = parts_reader(scorer)
    shortest = min(turns, key=lambda turn: count_chars(reader.inputs_of(turn)))
    text = " ".join(turn.response for turn in turns)[::-1]
    text = " ".join([text] * math.ceil(_LONG_CHARS / len(text)))
    long = TurnToScore([Turn(speaker="user", text=text)], text, options=shortest.options)
    shortest = shortest.trimmed(shortest.context, shortest.response[::-1], is_cut=False)
    return TokenizingPace(_seconds(scorer, shortest), _seconds(scorer, long) / count_chars(reader.inputs_of(long)))


def _seconds(scorer: Scorer, turn: TurnToScore) -> float:
    took = []
    for _ in range(_ROUNDS):
        started_at = time.perf_counter()
        scorer.encode([turn])
        took.append(time.perf_counter() - started_at)
    return min(took)

"""Made-up bad responses: mismatched, repeated, garbled and hostile ones in a real context.

People's dialogues with systems hold few responses that are out of place, and hardly a hostile one. A response in place
of the real one is assumed to please less by a fixed amount, and to be likelier to end the dialogue. Both are our
assumptions: nobody ever reacted to these responses.
"""

import random
import re
import string
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from turnscore_assessment.data.dialogue_sets import ObservedTurn
from turnscore_assessment.data.dialogues import SYSTEM, USER

# Measured: "you" and one of these words find insults rather than talk of something stupid.
_INSULT = re.compile(
    r"\b(stupid|idiot|dumb|moron|shut up|hate you|loser|ugly|pathetic|useless|suck|fuck|bitch|fool|asshole|jerk"
    r"|worthless)\b",
    re.IGNORECASE,
)
_AT_SOMEONE = re.compile(r"\byou", re.IGNORECASE)
_LONGEST_INSULT = 120

Words = list[str]


@dataclass(frozen=True)
class NegativeRecipe:
    """How many made-up responses there are, and how they are labelled."""

    share: float = 0.5
    """Made-up responses per real turn, drawn anew in each epoch."""
    sentiment_shift: float = -0.5
    """Their sentiment label is the real response's plus this."""
    stop_weight: float = 0.25
    """Weight of their label "stops" in the loss; a real one's is 1. None where the set does not show stops."""


class BadResponses:
    """Makes bad responses out of a set of real turns."""

    def __init__(self, turns: Iterable[ObservedTurn]) -> None:
        self._pools: dict[str, list[str]] = defaultdict(list)
        insults: set[str] = set()
        for turn in turns:
            self._pools[turn.set_name].append(turn.response)
            said = [text for speaker, text in turn.context if speaker == USER]
            insults.update(text for text in (*said, turn.next_user or "") if is_insult(text))
        self.insults = sorted(insults)

    def make(self, turn: ObservedTurn, generator: random.Random) -> str:
        """Half of them mismatched, a sixth each repeated, garbled and hostile; one may equal the real response."""
        kind = generator.choices((self._mismatch, self._repeat, self._garble, self._insult), weights=(3, 1, 1, 1))[0]
        return kind(turn, generator)

    def _mismatch(self, turn: ObservedTurn, generator: random.Random) -> str:
        return generator.choice(self._pools[turn.set_name])

    def _repeat(self, turn: ObservedTurn, generator: random.Random) -> str:
        said = [text for speaker, text in turn.context if speaker == SYSTEM]
        return said[-1] if said else self._mismatch(turn, generator)

    def _garble(self, turn: ObservedTurn, generator: random.Random) -> str:
        return garble(turn.response, generator)

    def _insult(self, turn: ObservedTurn, generator: random.Random) -> str:
        return generator.choice(self.insults) if self.insults else self._mismatch(turn, generator)


def is_insult(text: str) -> bool:
    """Whether a user's utterance would be hostile from a system."""
    return len(text) < _LONGEST_INSULT and bool(_INSULT.search(text) and _AT_SOMEONE.search(text))


def garble(text: str, generator: random.Random) -> str:
    """The garbled text: words dropped, one word stuttered, letters typed at random, or the words shuffled."""
    way = generator.choice((_drop_words, _stutter, _type_at_random, _shuffle))
    return " ".join(way(text.split(), generator))


def _drop_words(words: Words, generator: random.Random) -> Words:
    return [word for word in words if generator.random() > 0.5] or words[:1]


def _stutter(words: Words, generator: random.Random) -> Words:
    return [generator.choice(words)] * generator.randint(3, 12)


def _type_at_random(_words: Words, generator: random.Random) -> Words:
    return [
        "".join(generator.choices(string.ascii_lowercase, k=generator.randint(2, 9)))
        for _ in range(generator.randint(1, 7))
    ]


def _shuffle(words: Words, generator: random.Random) -> Words:
    return generator.sample(words, len(words))

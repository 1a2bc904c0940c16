"""Contrast text: people's replies, and replies that no one would give. Generates them; judges nothing.

Teaches an encoder what labelled dialogues are too few for: whether a reply makes sense and says anything. Each pair of
real turns gets a spoilt reply: drawn from a Markov chain over real replies (fluent for three words, senseless beyond,
as early sequence-to-sequence models write), spliced, shuffled, repetitive, or one of a few dull ones.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from turnscore_assessment.data.dialogues import read_dialogues
from turnscore_assessment.errors import BadFileError

from turnscore_exporters.data.convai import TextPair

DULL_REPLIES = (
    "i don't know .", "yes .", "ok .", "no .", "i see .", "sure .", "lol", "thank you .", "i'm not sure .", "what ?",
    "i don't think so .", "that's good .", "all right .",
)  # fmt: skip
LONGEST_CHAIN = 40
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")
_START, _END = "<start>", "<end>"


class MarkovChain:
    """Word sequences in which every word follows the `order` words before it as in some real text."""

    def __init__(self, texts: Sequence[str], order: int = 2) -> None:
        self._order = order
        self._followers: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for text in texts:
            words = [_START] * order + _WORD.findall(text) + [_END]
            for index in range(order, len(words)):
                self._followers[tuple(words[index - order : index])].append(words[index])

    def draw(self, generator: random.Random) -> str:
        """One text of at most LONGEST_CHAIN words."""
        state: tuple[str, ...] = (_START,) * self._order
        words: list[str] = []
        while len(words) < LONGEST_CHAIN:
            word = generator.choice(self._followers[state])
            if word == _END:
                break
            words.append(word)
            state = (*state[1:], word)
        return " ".join(words)


class ContrastText:
    """Real pairs and a spoilt reply for each; the same seed gives the same text."""

    def __init__(self, pairs: Sequence[TextPair], seed: int = 0) -> None:
        self.pairs = pairs
        self._seed = seed
        self._chain = MarkovChain([pair.reply for pair in pairs])

    def spoil(self, index: int) -> str:
        """A made-up reply for the pair at `index`; depends on the seed and the index alone."""
        generator = random.Random(self._seed * 1_000_003 + index)  # noqa: S311
        words, others = self.pairs[index].reply.split(), generator.choice(self.pairs).reply.split()
        spoil = generator.choices(_WAYS, weights=_SHARES)[0]
        return spoil(self._chain, words, others, generator).strip() or DULL_REPLIES[0]


def _draw(chain: MarkovChain, _words: list[str], _others: list[str], generator: random.Random) -> str:
    return chain.draw(generator)


def _splice(_chain: MarkovChain, words: list[str], others: list[str], _generator: random.Random) -> str:
    return " ".join(words[: max(1, len(words) // 2)] + others[len(others) // 2 :])


def _sprinkle(_chain: MarkovChain, words: list[str], others: list[str], generator: random.Random) -> str:
    return " ".join(generator.choice(others or words) if generator.random() < 0.35 else word for word in words)


def _shuffle(_chain: MarkovChain, words: list[str], _others: list[str], generator: random.Random) -> str:
    return " ".join(generator.sample(words, len(words)))


def _repeat(_chain: MarkovChain, words: list[str], _others: list[str], generator: random.Random) -> str:
    start, length = generator.randrange(max(1, len(words))), generator.randint(1, 3)
    piece = words[start : start + length]
    return " ".join(words[: start + length] + piece * generator.randint(1, 3) + words[start + length :])


def _dull(_chain: MarkovChain, _words: list[str], _others: list[str], generator: random.Random) -> str:
    return generator.choice(DULL_REPLIES)


_Way = Callable[[MarkovChain, list[str], list[str], random.Random], str]
_WAYS: tuple[_Way, ...] = (_draw, _splice, _sprinkle, _shuffle, _repeat, _dull)
_SHARES = (0.45, 0.15, 0.15, 0.10, 0.08, 0.07)  # chosen


def read_contrast_text(path: Path, pairs: int, seed: int = 0) -> ContrastText:
    """Draws `pairs` neighbouring turns from dialogues in the shared form, equally many from each `source`.

    Raises BadFileError if the file has fewer than two pairs of turns.
    """
    found: dict[str, list[TextPair]] = defaultdict(list)
    for dialogue in read_dialogues(path):
        for query, reply in zip(dialogue.turns, dialogue.turns[1:], strict=False):
            if query.text.strip() and reply.text.strip():
                found[dialogue.source].append(TextPair(query.text, reply.text))
    generator = random.Random(seed)  # noqa: S311
    share = -(-pairs // max(1, len(found)))
    drawn = [
        pair for _, members in sorted(found.items()) for pair in generator.sample(members, min(share, len(members)))
    ]
    if len(drawn) < 2:
        raise BadFileError(path, 0, "has fewer than two pairs of turns")
    generator.shuffle(drawn)
    return ContrastText(drawn, seed)

"""Distorted dialogues, which are worse on purpose: a study finds by them which raters are careful.

Replies are drawn at random, and words from elsewhere replace a span of each (Ji et al. 2022, appendix A.1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from turnscore_assessment.data.dialogues import SYSTEM, USER, read_conversations
from turnscore_assessment.errors import BadFileError

# (most words of a reply, words that are replaced); of longer replies a fifth. The published table.
SPANS = ((3, 1), (5, 2), (8, 3), (15, 4), (29, 5))
LONG_SHARE = 5


def count_replaced(words: int) -> int:
    """How many of a reply's words are replaced; 0 of an empty reply."""
    if not words:
        return 0
    return next((span for most, span in SPANS if words <= most), words // LONG_SHARE)


def distort(reply: Sequence[str], donor: Sequence[str], generator: np.random.Generator) -> list[str]:
    """The reply's words with a random span replaced by as many consecutive words of the donor.

    The first and the last of three and more words stay. ValueError where the donor has too few words.
    """
    span = count_replaced(len(reply))
    if len(donor) < span:
        raise ValueError(f"{span} words are to be replaced, but the donor has only {len(donor)}")
    kept = 1 if len(reply) >= 3 else 0
    start = int(generator.integers(kept, len(reply) - kept - span + 1)) if reply else 0
    taken = int(generator.integers(0, len(donor) - span + 1))
    return [*reply[:start], *donor[taken : taken + span], *reply[start + span :]]


LEAST_DIALOGUES = 3  # Fewest dialogues: the degraded one, the reply's and the donor's. Specified.
MOST_REPLIES = 1_000_000  # Most replies. Chosen: more than any study has, within a few hundred MB.
# Replies that are tried as a long enough donor. Chosen: with as few as 1 % long ones it fails once in 20,000 times; the
# longest one seen is then taken.
TRIES = 1000


@dataclass(frozen=True)
class ReplyCorpus:
    """Replies and their dialogues, at least three."""

    replies: Sequence[str]
    dialogue_of: Sequence[int]

    def draw(self, generator: np.random.Generator, other_than: int | None = None) -> str:
        """A degraded reply: a random one, with a span of it from another dialogue. Ignores what was said.

        Never a reply of the dialogue `other_than`.
        """
        place = self._pick(generator, {other_than})
        words = self.replies[place].split()
        span = count_replaced(len(words))
        donor: list[str] = []
        for _ in range(TRIES):
            found = self.replies[self._pick(generator, {other_than, self.dialogue_of[place]})].split()
            donor = max(donor, found, key=len)
            if len(donor) >= span:
                break
        # A donor is repeated where none was long enough.
        donor *= max(1, -(-span // max(len(donor), 1)))
        return " ".join(distort(words, donor, generator))

    def _pick(self, generator: np.random.Generator, barred: set[int | None]) -> int:
        while True:
            place = int(generator.integers(0, len(self.replies)))
            if self.dialogue_of[place] not in barred:
                return place


def read_corpus(path: Path) -> ReplyCorpus:
    """The system's turns that answer something. BadFileError names the line and the field."""
    replies: list[str] = []
    dialogue_of: list[int] = []
    for dialogue in read_conversations(path):
        for (before, _), (speaker, text) in pairwise(dialogue.spoken):
            if speaker == SYSTEM and before == USER and text.strip():
                replies.append(text)
                dialogue_of.append(dialogue.line)
        if len(replies) > MOST_REPLIES:
            raise BadFileError(path, dialogue.line, f"the corpus has more than {MOST_REPLIES:,} replies")
    if len(set(dialogue_of)) < LEAST_DIALOGUES:
        raise BadFileError(path, 0, "a corpus needs three dialogues in which the system answers the user")
    return ReplyCorpus(replies, dialogue_of)


SYSTEM_NAME = "degraded"


def distort_dialogues(path: Path, corpus: ReplyCorpus, seed: int, is_same_file: bool) -> Iterator[dict[str, Any]]:
    """Each dialogue of a file with degraded replies: the same for the same seed, whatever else the file holds.

    Where the corpus is the same file, no reply comes from the dialogue itself.
    """
    for dialogue in read_conversations(path):
        generator = np.random.default_rng([seed, dialogue.line])
        own = dialogue.line if is_same_file else None
        yield {
            "dialogue": f"{SYSTEM_NAME}-{dialogue.line}",
            "system": SYSTEM_NAME,
            "degraded": True,
            "turns": [
                {"speaker": speaker, "text": corpus.draw(generator, own) if speaker == SYSTEM else text}
                for speaker, text in dialogue.spoken
            ],
        }

"""Flesch's reading ease of English text, from counts of words, sentences and syllables.

Clitics that dialogue corpora set apart (`i 'm`) are joined, punctuation is dropped. Syllables follow rules: groups of
vowels, without silent ones, with those spoken apart; docs/studies.md has how often they are right, next to
hyphenation.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_CLITIC_APART = re.compile(r"\s+(?=(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))\b)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE_END = re.compile(r"[.!?]+(?:[\"'\u201d\u2019)\]]*)(?=\s|$)")


def join_clitics(text: str) -> str:
    """The text with `i 'm sure you do n't` as `i'm sure you don't`."""
    return _CLITIC_APART.sub("", text)


def split_words(text: str) -> list[str]:
    """Words and numbers, as written."""
    return _WORD.findall(join_clitics(text))


def count_sentences(text: str) -> int:
    """The parts with a word that end in a full stop, question mark or exclamation mark, or at the text's end."""
    return sum(bool(_LETTER.search(part)) for part in _SENTENCE_END.split(text))


def has_letter(word: str) -> bool:
    """Whether it can be read aloud as a word: a number's syllables cannot be counted."""
    return bool(_LETTER.search(word))


LISTED = {
    "am": 1, "area": 3, "being": 2, "business": 2, "cafe": 2, "chocolate": 2, "create": 2, "dr": 2, "evening": 2,
    "genre": 2, "hmm": 1, "idea": 3, "interested": 3, "interesting": 3, "karaoke": 4, "maybe": 2, "mr": 2, "mrs": 2,
    "museum": 3, "ok": 2, "people": 2, "pm": 2, "poem": 2, "poet": 2, "poetry": 3, "really": 2, "recipe": 3,
    "science": 2, "theater": 3, "theatre": 3, "tv": 2, "usually": 4, "vs": 2, "wednesday": 2,
}  # fmt: skip
"""Frequent words that the rules get wrong."""

_CLITIC = re.compile(r"['\u2019](?:s|m|d|re|ve|ll)$")
_NOT = re.compile(r"n['\u2019]t$")
_SAID_APART = {"could", "did", "does", "had", "has", "have", "is", "might", "must", "need", "should", "was", "would"}
"""After these words `n't` is a syllable of its own."""
_VOWELS = re.compile(r"[aeiouy]+")
_OTHER = re.compile(r"[^a-z]")

_SILENT_E_BEFORE = (
    "ly|ment|ments|ful|less|ness|times?|where|thing|body|balls?|land|work|ware|cause|fore|mates?|backs?|side"
)
_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Compounds, and y as a consonant.
        (r"^every", "evr i"),
        (r"^some(?=[^aeiouy])", "som"),
        (r"some(?=one|what)", "som "),
        (r"^any(?=one)", "ani "),
        (r"^y(?=[aeiou])", ""),
        (r"(?<=[aeiou])y(?=[aeiou])", " "),
        # Endings in which e is silent.
        (r"(?<=[^aeiouytd])ed$", "d"),
        (r"(?<=[aeiouy][^aeiouylsxzcg])es$", "s"),
        (r"(?<=[aeiouy]l)es$", "s"),
        (r"(?<=[aeiouy](?:th|st|pl|ph))es$", "s"),
        (r"(?<=[aeiouy][^aeiouy])e$", ""),
        (r"(?<=[aeiouy][^aeiouy][^aeiouyl])e$", ""),
        (r"(?<=[aeiouy][^aeiouy]{2}[^aeiouyl])e$", ""),
        (rf"(?<=[aeiouy][^aeiouy])e(?=(?:{_SILENT_E_BEFORE})$)", ""),
        # Vowels that only colour a consonant, then those spoken apart.
        (r"(?<=[ctsxg])i(?=[ao]|ou)", ""),
        (r"(?<=[qg])u(?=[aeio])", ""),
        (r"i(?=[aou])", "i "),
        (r"(?<=[aou])ing", " ing"),
        (r"([ei])ing", r"\1 ing"),
        (r"eo(?!u|p)", "e o"),
        (r"ua(?!r)", "u a"),
        (r"ue(?=[lt])", "u e"),
        (r"uou", "u ou"),
    )
]


def count_syllables(word: str) -> int:
    """At least 1."""
    lowered = word.lower()
    found = _NOT.search(lowered)
    if found:
        verb = lowered[: found.start()]
        return count_syllables(verb) + (verb in _SAID_APART)
    bare = _OTHER.sub("", _CLITIC.sub("", lowered))
    if bare in LISTED:
        return LISTED[bare]
    for pattern, replacement in _RULES:
        bare = pattern.sub(replacement, bare)
    return max(1, len(_VOWELS.findall(bare)))


RELIABLE_WORDS = 10
"""Fewest words for a reliable score: of fewer, a single long one moves it by ten points. Chosen."""


@dataclass(frozen=True)
class Readability:
    """The counts behind the score."""

    words: int
    sentences: int
    syllables: int

    @property
    def score(self) -> float | None:
        """206.835 - 1.015 words per sentence - 84.6 syllables per word (Flesch 1948); higher reads easier."""
        if not self.words:
            return None
        return 206.835 - 1.015 * self.words / self.sentences - 84.6 * self.syllables / self.words

    @property
    def is_reliable(self) -> bool:
        """Whether there are enough words for a reliable score."""
        return self.words >= RELIABLE_WORDS

    def __add__(self, other: "Readability") -> "Readability":
        return Readability(self.words + other.words, self.sentences + other.sentences, self.syllables + other.syllables)


def measure_readability(text: str) -> Readability:
    """Counts words, sentences and syllables. Numbers are not words: how they are read is unknown."""
    words = [word for word in split_words(text) if has_letter(word)]
    return Readability(len(words), count_sentences(text), sum(count_syllables(word) for word in words))


def add_up(parts: Iterable[Readability]) -> Readability:
    """The sum over several texts."""
    return sum(parts, Readability(0, 0, 0))

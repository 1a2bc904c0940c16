"""Scores of dialogues' texts: readability and coherence of every system turn, and of the dialogue. Writes no file."""

import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from turnscore_assessment.data.dialogues import SYSTEM, RecordedDialogue
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.references.vector_metrics import SentenceEncoder

_CLITIC_APART = re.compile(r"\s+(?=(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))\b)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE_END = re.compile(r"[.!?]+(?:[\"'\u201d\u2019)\]]*)(?=\s|$)")


def split_words(text: str) -> list[str]:
    """Words and numbers, as written; `i 'm sure you do n't` has those of `i'm sure you don't`."""
    return _WORD.findall(_CLITIC_APART.sub("", text))


def count_sentences(text: str) -> int:
    """The parts with a word that end in a full stop, question mark or exclamation mark, or at the text's end."""
    return sum(bool(_LETTER.search(part)) for part in _SENTENCE_END.split(text))


_CLITIC = re.compile(r"['\u2019](?:s|m|d|re|ve|ll)$")
_NOT = re.compile(r"n['\u2019]t$")
# After these words `n't` is a syllable of its own.
_SAID_APART = {"could", "did", "does", "had", "has", "have", "is", "might", "must", "need", "should", "was", "would"}
_VOWELS = re.compile(r"[aeiouy]+")
_OTHER = re.compile(r"[^a-z]")

_SYLLABLES: dict[str, Any] = tomllib.loads(files(__package__).joinpath("syllables.toml").read_text(encoding="utf-8"))
LISTED: dict[str, int] = _SYLLABLES["listed"]
_RULES = [(re.compile(pattern), replacement) for pattern, replacement in _SYLLABLES["rules"]]


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


RELIABLE_WORDS = 10  # Fewest words for a reliable score: of fewer, a single long one moves it by ten points.


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
    words = [word for word in split_words(text) if _LETTER.search(word)]
    return Readability(len(words), count_sentences(text), sum(count_syllables(word) for word in words))


# Most words of a response that can be dull. Chosen: longer ones never are, and two gaps would take long.
LONGEST_MATCHED = 200
MOST_GAPS = 2
MOST_PATTERNS = 2000
_GAP = re.compile(r"\$\d")


class DullPatterns:
    """The dull patterns, and the words that say nothing by themselves."""

    def __init__(self, patterns: Sequence[str], function_words: frozenset[str]) -> None:
        """`patterns` as in the module's description; ValueError for one with more than two gaps."""
        for pattern in patterns:
            if len(_GAP.findall(pattern)) > MOST_GAPS:
                raise ValueError(f"{pattern!r} has more than {MOST_GAPS} gaps")
        self._patterns = [_compile(pattern) for pattern in patterns]
        self._function_words = function_words

    def count_content(self, text: str) -> int:
        """The content words: those of the published formula's length."""
        return sum(not self._is_function_word(word) for word in split_words(text.lower()))

    def count_lively(self, text: str) -> int:
        """The content words that are not dull: all if no pattern matches, else those in the shortest match's gaps."""
        words = split_words(text.lower())
        if len(words) > LONGEST_MATCHED:
            return self.count_content(text)
        normal = " ".join(words)
        found = (pattern.fullmatch(normal) for pattern in self._patterns)
        gaps = [self.count_content(" ".join(match.groups())) for match in found if match]
        return min(gaps, default=self.count_content(text))

    def _is_function_word(self, word: str) -> bool:
        plain = word.replace("\u2019", "'")
        return plain.endswith("n't") or bool({plain, plain.partition("'")[0]} & self._function_words)


def read_patterns(path: Path | None, function_words: Path | None = None) -> DullPatterns:
    """The files' patterns and words, one per line; the shipped ones by default. BadFileError names the line."""
    words = frozenset(read_shipped("function_words.txt") if function_words is None else _read_list(function_words))
    if path is None:
        return DullPatterns(read_shipped("dull_patterns.txt"), words)
    try:
        return DullPatterns(_read_list(path), words)
    except ValueError as error:
        raise BadFileError(path, 0, str(error)) from None


@lru_cache
def read_shipped(name: str) -> list[str]:
    """The lines of a list in the package, of our own words: those that say nothing, or responses that fit anything."""
    return _keep_lines(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _read_list(path: Path) -> list[str]:
    try:
        lines = _keep_lines(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadFileError(path, 0, f"cannot be read ({error})") from error
    if len(lines) > MOST_PATTERNS:
        raise BadFileError(path, 0, f"has more than {MOST_PATTERNS} lines")
    return lines


def _keep_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _compile(pattern: str) -> re.Pattern[str]:
    parts = [" ".join(re.escape(word) for word in split_words(part.lower())) for part in _GAP.split(pattern)]
    joined = parts[0]
    for part in parts[1:]:
        joined = f"{joined}{' ' if joined else ''}(.+){' ' if part else ''}{part}"
    return re.compile(joined)


def find_penalty(response: str, patterns: DullPatterns) -> float:
    """1 + log10((2 + L') / (2 + L'')) with L' content words, L'' of them not dull: 1 and more, more for dull ones.

    The script of Santhanam and Shaikh (2019) inverts the fraction and so rewards dullness.
    """
    return 1 + math.log10((2 + patterns.count_content(response)) / (2 + patterns.count_lively(response)))


DIALOGUES_AT_ONCE = 200  # Dialogues whose texts are encoded together. Chosen: some 4,000 texts, 6 MB of vectors.


@dataclass(frozen=True)
class TurnTexts:
    readability: Readability
    penalty: float
    cosine: float | None  # With what was said before; None without an encoder, or where nothing was.


@dataclass(frozen=True, kw_only=True)
class DialogueReadability:
    line: int
    system: str
    turns: Sequence[TurnTexts]

    @property
    def readability(self) -> Readability:
        """The readability of all its system turns taken together."""
        return sum((turn.readability for turn in self.turns), Readability(0, 0, 0))

    @property
    def columns(self) -> dict[str, float | None]:
        """Its numbers: reading ease of all turns together, the rest as means over turns; None for unknown ones."""
        known = [(turn.penalty, turn.cosine) for turn in self.turns if turn.cosine is not None]
        return {
            "flesch": self.readability.score,
            "penalty": fmean(turn.penalty for turn in self.turns),
            "cosine": fmean(cosine for _, cosine in known) if known else None,
            "distance": fmean(penalty * (1 - cosine) for penalty, cosine in known) if known else None,
        }


def score_texts(
    dialogues: Sequence[RecordedDialogue],
    patterns: DullPatterns,
    encoder: SentenceEncoder | None = None,
    context_turns: int = 1,
) -> Iterator[DialogueReadability]:
    """Every dialogue in which the system says something; without an encoder only coherence's penalty is known.

    A response's context are the texts of the last so many turns before that have one. Each text is encoded once.
    """
    for start in range(0, len(dialogues), DIALOGUES_AT_ONCE):
        found = []
        for dialogue in dialogues[start : start + DIALOGUES_AT_ONCE]:
            texts = [text.strip() for _, text in dialogue.spoken]
            for place, (speaker, text) in enumerate(dialogue.spoken):
                if speaker == SYSTEM and text.strip():
                    found.append((dialogue, text, " ".join([*filter(None, texts[:place])][-context_turns:])))
        compared = list(dict.fromkeys(text for _, said, context in found if context for text in (context, said)))
        vectors = {}
        if encoder is not None and compared:
            vectors = dict(zip(compared, encoder.encode(compared), strict=True))
        for dialogue, own in groupby(found, key=itemgetter(0)):
            turns = []
            for _, text, context in own:
                cosine = float(np.dot(vectors[context], vectors[text])) if context and vectors else None
                turns.append(TurnTexts(measure_readability(text), find_penalty(text, patterns), cosine))
            yield DialogueReadability(line=dialogue.line, system=dialogue.system, turns=turns)

"""Coherence: a response's distance in meaning from its context, times a penalty for dull ones (Dziri et al. 2018).

A distance, so lower is better: a good measure correlates negatively with people's ratings. Which words of a response
say anything follows from patterns of replies that fit everything: in a pattern, a line of text, `$1` stands for any
words, and where a pattern matches a whole response, only the words for `$1` count.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.readability.flesch import split_words
from turnscore_assessment.references.vector_metrics import SentenceEncoder

LONGEST_MATCHED = 200
"""Most words of a response that can be dull. Chosen: longer ones never are, and two gaps would take long."""
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


class ShippedLists:
    """The lists in the package, of our own words."""

    @cached_property
    def function_words(self) -> frozenset[str]:
        """English words that say nothing by themselves."""
        return frozenset(_read_shipped("function_words.txt"))

    @cached_property
    def patterns(self) -> list[str]:
        """Responses that fit nearly everything."""
        return _read_shipped("dull_patterns.txt")


SHIPPED = ShippedLists()


def read_patterns(path: Path | None, function_words: Path | None = None) -> DullPatterns:
    """The files' patterns and words, one per line; the shipped ones by default. BadFileError names the line."""
    words = SHIPPED.function_words if function_words is None else frozenset(_read_list(function_words))
    if path is None:
        return DullPatterns(SHIPPED.patterns, words)
    try:
        return DullPatterns(_read_list(path), words)
    except ValueError as error:
        raise BadFileError(path, 0, str(error)) from None


def _read_shipped(name: str) -> list[str]:
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


PenaltyForm = Literal["published", "released"]


@dataclass(frozen=True, kw_only=True)
class Coherence:
    """The distance and its factors."""

    cosine: float
    penalty: float

    @property
    def distance(self) -> float:
        """penalty * (1 - cosine)."""
        return self.penalty * (1 - self.cosine)


def find_penalty(response: str, patterns: DullPatterns, form: PenaltyForm = "published") -> float:
    """1 + log10((2 + L') / (2 + L'')) with L' content words, L'' of them not dull: 1 and more, more for dull ones.

    `released` is the script of Santhanam and Shaikh (2019), which inverts the fraction and so rewards dullness.
    """
    ratio = (2 + patterns.count_content(response)) / (2 + patterns.count_lively(response))
    return 1 + math.log10(ratio if form == "published" else 1 / ratio)


def measure_coherence(
    pairs: Sequence[tuple[str, str]], encoder: SentenceEncoder, patterns: DullPatterns, form: PenaltyForm = "published"
) -> list[Coherence]:
    """The coherence of every pair of context and response; each text is encoded once."""
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    vectors = encoder.encode(texts)
    place = {text: number for number, text in enumerate(texts)}
    return [
        Coherence(
            cosine=float(np.dot(vectors[place[context]], vectors[place[response]])),
            penalty=find_penalty(response, patterns, form),
        )
        for context, response in pairs
    ]

"""Metrics of shared words and of diversity: BLEU-n, ROUGE-L, distinct-n and self-BLEU, and what every metric is.

BLEU per sentence: BP * exp(mean of ln p_k, k = 1..n) (Papineni et al. 2002). Counts are clipped by the references
together; of several references the one nearest in length makes the brevity penalty. A p_k of 0 becomes 0.1 / its
denominator (smoothing method 1 of Chen and Cherry 2014), but a hypothesis that shares no word scores 0. ROUGE-L is
coco-caption's: the longest common subsequence, F with beta 1.2 (Lin 2004).

distinct-n    different n-grams / all n-grams (Li et al. 2016), over all that the system said; and the mean over rows
ead-n         different n-grams / those expected of so many draws (Liu et al. 2022), V the file's different n-grams
self-bleu-n   BLEU of each response of a row against the row's others, mean (Zhu et al. 2018); less is more diverse
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnscore_assessment.errors import BadFileError, ReferencesError
from turnscore_assessment.figures import Floats
from turnscore_assessment.files import check_row, read_rows

MOST_TEXTS = 1000
"""Most hypotheses, and references, of one row. Chosen: a row then makes a million pairs at most."""
MOST_CHARS = 100_000
"""Most characters of one text. Chosen: far beyond any reply."""

Text = Annotated[str, Field(max_length=MOST_CHARS, strict=True)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_TEXTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedReplies:
    """One row of a file: hypotheses, and references known to be good there; texts are compared only within it."""

    context_id: str
    """Rows of one context depend on each other: intervals are taken over contexts."""
    system: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]
    """The original reply first: `single` compares with it."""
    rating: float | None = None
    """People's rating of the row's hypothesis."""

    def with_references(self, count: int) -> "ReferencedReplies":
        """The row with its first `count` references."""
        return replace(self, references=self.references[:count])


class _ReferenceRow(BaseModel):
    """A line as it stands in the file."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    context_id: str = ""
    context: str | tuple[str, ...] = ""
    system: str = ""
    response: Text | None = None
    hypotheses: Texts | None = None
    reference: Text | None = None
    references: Texts
    rating: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _check_choice(self) -> "_ReferenceRow":
        if (self.response is None) == (self.hypotheses is None):
            raise ValueError("give either hypotheses or response")
        if not self.context_id and not self.context:
            raise ValueError("give context_id, or context as a list of texts")
        return self

    def build(self) -> ReferencedReplies:
        others = list(self.references)
        if self.reference is not None and self.reference in others:
            others.remove(self.reference)
        context = self.context if isinstance(self.context, str) else "\n".join(self.context)
        return ReferencedReplies(
            context_id=self.context_id or context,
            system=self.system or "all",
            hypotheses=self.hypotheses or (self.response or "",),
            references=(*([] if self.reference is None else [self.reference]), *others),
            rating=self.rating,
        )


def by_system(rows: Sequence[ReferencedReplies]) -> dict[str, list[ReferencedReplies]]:
    """The rows of each system, in the order in which systems are first named."""
    found: dict[str, list[ReferencedReplies]] = {}
    for row in rows:
        found.setdefault(row.system, []).append(row)
    return found


def read_comparisons(path: Path) -> list[ReferencedReplies]:
    """The rows of a file, in order. BadFileError names the line and the field, or says that there is no row."""
    rows = [check_row(_ReferenceRow.model_validate, path, *row).build() for row in read_rows(path)]
    if not rows:
        raise BadFileError(path, 0, "must have at least one row")
    return rows


RATINGS_FILE, TEST_FILE = "ratings.jsonl.gz", "test.jsonl.gz"
REFERENCES_PER_TURN = 5
"""The original, then four by one worker. The paper's own fifth collected one is not released."""


def read_rated(folder: Path) -> list[ReferencedReplies]:
    """The 500 rows of Table 4, each with all five references, the original first. Raises ReferencesError."""
    known = read_replies(folder)
    rows = read_comparisons(folder / RATINGS_FILE)
    for row in rows:
        if row.context_id not in known:
            raise ReferencesError(f"{folder / TEST_FILE} has no turn {row.context_id}, which {RATINGS_FILE} rates")
    return [replace(row, references=tuple(known[row.context_id])) for row in rows]


def read_replies(folder: Path) -> dict[str, Sequence[str]]:
    """The five replies to every turn with replies, by dialogue and place: `73_4` is turn 4 of dialogue 73, from 0."""
    found: dict[str, Sequence[str]] = {}
    path = folder / TEST_FILE
    for number, (line, fields) in enumerate(read_rows(path)):
        for place, turn in enumerate(check_row(_TestDialogue.model_validate, path, line, fields).turns):
            if turn.references:
                if len(turn.references) != REFERENCES_PER_TURN:
                    raise BadFileError(path, line, f"turns.{place}.references: five are expected")
                found[f"{number}_{place}"] = turn.references
    return found


class _TestTurn(BaseModel):
    references: tuple[str, ...] = ()


class _TestDialogue(BaseModel):
    turns: tuple[_TestTurn, ...]


Tokens = tuple[str, ...]
Tokenise = Callable[[str], Tokens]

_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


def split_blanks(text: str) -> Tokens:
    """Lower case, split on white space, without the marks `_go` and `_eos`; a full stop is a word like others.

    As the released code of Gupta et al. 2019 does (clean_split_sentence): for text that is tokenised already.
    """
    words = text.lower().strip().replace("_go ", "").replace(" _eos", "").split()
    return tuple(words) or (".",)


def split_words(text: str) -> Tokens:
    """Lower case, with punctuation apart from words: for text as people write it."""
    return tuple(_WORD.findall(text.lower())) or (".",)


TOKENISATIONS: Final[dict[str, Tokenise]] = {"blanks": split_blanks, "words": split_words}


def find_tokenisation(name: str) -> Tokenise:
    """Raises ReferencesError for an unknown name."""
    if name not in TOKENISATIONS:
        raise ReferencesError(f"no tokenisation is called {name}; choose one of {', '.join(TOKENISATIONS)}")
    return TOKENISATIONS[name]


def is_empty(text: str, tokenisation: str) -> bool:
    """Whether a text has no word, for which both tokenisations give a full stop, as the released code does."""
    return "." not in text and find_tokenisation(tokenisation)(text) == (".",)


Pair = tuple[str, str]
"""Hypothesis and reference."""
Group = tuple[str, Sequence[str]]
"""A hypothesis and all its references."""


class Metric(Protocol):
    """d(y, r): how near each hypothesis is to its reference; more is nearer."""

    @property
    def name(self) -> str: ...

    @property
    def definition(self) -> str:
        """The definition in a sentence, with its parameters."""

    @property
    def tokenisation(self) -> str: ...

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One number per pair, in order."""


@runtime_checkable
class ComparesJointly(Protocol):
    """A metric with a definition of its own for several references at once."""

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One number per hypothesis, in order."""


@runtime_checkable
class ComparesCorpus(Protocol):
    """A metric that is also defined over a corpus: statistics are summed first."""

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        """One number for all hypotheses together."""


_KEPT_TEXTS = 4096
"""Texts whose words are cached. Chosen."""


class Bleu:
    """NLTK's sentence and corpus BLEU of order n."""

    def __init__(self, order: int, tokenisation: str = "blanks") -> None:
        from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu, sentence_bleu

        self.name = f"bleu-{order}"
        self.tokenisation = tokenisation
        self.definition = (
            f"BLEU of nltk {version('nltk')}, 1- to {order}-grams, equal weights, a precision of 0 becomes "
            "0.1/denominator (method 1); joint: counts clipped by all references, nearest length"
        )
        self._read = lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))
        self._weights = [(1 / each,) * each for each in range(1, order + 1)]
        self._smooth = SmoothingFunction().method1
        self._sentence: Callable[..., Any] = sentence_bleu
        self._corpus: Callable[..., Any] = corpus_bleu

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One sentence BLEU per pair."""
        return self.compare_jointly([(hypothesis, (reference,)) for hypothesis, reference in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One sentence BLEU per hypothesis, against all its references."""
        return np.array([float(self._sentence(*self._split(each), self._weights[-1], self._smooth)) for each in groups])

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        """BLEU of the summed counts of all hypotheses."""
        split = [self._split(group) for group in groups]
        found = self._corpus(
            [others for others, _ in split], [own for _, own in split], self._weights[-1], self._smooth
        )
        return float(found)

    def compare_orders(self, group: Group) -> list[float]:
        """Sentence BLEU of every order up to the metric's own."""
        return [float(each) for each in self._sentence(*self._split(group), self._weights, self._smooth)]

    def _split(self, group: Group) -> tuple[list[Tokens], Tokens]:
        own, others = group
        return [self._read(other) for other in others], self._read(own)


_BETA = 1.2
"""Specified: coco-caption's."""


class RougeL:
    name = "rouge-l"
    definition = (
        "ROUGE-L of coco-caption: precision and recall of the longest common subsequence, F with beta 1.2; "
        "joint: precision and recall maximised over references apart from each other"
    )

    def __init__(self, tokenisation: str = "blanks") -> None:
        self.tokenisation = tokenisation
        self._tokenise = lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One F per pair."""
        return self.compare_jointly([(hypothesis, (reference,)) for hypothesis, reference in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One F per hypothesis, of the best precision and the best recall over its references."""
        return np.array([self._compare(*group) for group in groups])

    def _compare(self, hypothesis: str, references: Sequence[str]) -> float:
        own = self._tokenise(hypothesis)
        precision = recall = 0.0
        for reference in references:
            words = self._tokenise(reference)
            common = count_common_subsequence(own, words)
            precision, recall = max(precision, common / len(own)), max(recall, common / len(words))
        if not precision or not recall:
            return 0.0
        return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def count_common_subsequence(left: Tokens, right: Tokens) -> int:
    """Words in the longest common subsequence, by one bit per word of `left` (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(left):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(left)) - 1
    row = every
    for word in right:
        matched = row & places.get(word, 0)
        row = (row + matched | row - matched) & every
    return len(left) - row.bit_count()


ORDERS: Final = (1, 2, 3)
SELF_BLEU_ORDERS: Final = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """How diverse one system is; figures within rows are None where no row has two hypotheses."""

    system: str
    rows: int
    responses: int
    tokenisation: str
    distinct: Mapping[int, float]
    """distinct-n by n, over everything the system said."""
    expected_adjusted: Mapping[int, float]
    vocabulary: Mapping[int, int]
    """ead-n's V by n."""
    distinct_within_rows: Mapping[int, float] | None
    self_bleu: Mapping[int, float] | None


def measure_diversity(rows: Sequence[ReferencedReplies], tokenisation: str = "blanks") -> list[Diversity]:
    """One result per system."""
    tokenise = find_tokenisation(tokenisation)
    said = [tokenise(text) for row in rows for text in (*row.hypotheses, *row.references)]
    vocabulary = {order: len({ngram for words in said for ngram in find_ngrams(words, order)}) for order in ORDERS}
    return [_measure_system(system, own, vocabulary, tokenise, tokenisation) for system, own in by_system(rows).items()]


def _measure_system(
    system: str, rows: Sequence[ReferencedReplies], vocabulary: Mapping[int, int], tokenise: Tokenise, tokenisation: str
) -> Diversity:
    sets = [[tokenise(text) for text in row.hypotheses] for row in rows]
    said = [words for each in sets for words in each]
    several = [row.hypotheses for row in rows if len(row.hypotheses) > 1]
    within = [[tokenise(text) for text in texts] for texts in several]
    return Diversity(
        system=system,
        rows=len(rows),
        responses=len(said),
        tokenisation=tokenisation,
        distinct={order: distinct(said, order) for order in ORDERS},
        expected_adjusted={order: adjusted_distinct(said, order, vocabulary[order]) for order in ORDERS},
        vocabulary=vocabulary,
        distinct_within_rows=(
            {order: float(np.mean([distinct(each, order) for each in within])) for order in ORDERS} if several else None
        ),
        self_bleu=self_bleu(several, tokenisation) if several else None,
    )


def distinct(texts: Sequence[Tokens], order: int) -> float:
    """Different n-grams / all n-grams; 0 where there is none."""
    ngrams = [ngram for words in texts for ngram in find_ngrams(words, order)]
    return len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def adjusted_distinct(texts: Sequence[Tokens], order: int, vocabulary: int) -> float:
    """Different n-grams / those expected of as many draws from `vocabulary` equally likely ones; 0 where there is none.

    May be more than 1: of a vocabulary whose members stand once each.
    """
    ngrams = [ngram for words in texts for ngram in find_ngrams(words, order)]
    if not ngrams:
        return 0.0
    expected = -vocabulary * float(np.expm1(len(ngrams) * np.log1p(-1 / vocabulary))) if vocabulary > 1 else 1.0
    return len(set(ngrams)) / expected


def self_bleu(sets: Sequence[Sequence[str]], tokenisation: str = "blanks") -> dict[int, float]:
    """self-BLEU by order: the mean over sets of two or more texts of a text's BLEU against the set's others."""
    bleu = Bleu(max(SELF_BLEU_ORDERS), tokenisation)
    means = np.zeros(len(SELF_BLEU_ORDERS))
    for texts in sets:
        for place, text in enumerate(texts):
            means += np.array(bleu.compare_orders((text, [*texts[:place], *texts[place + 1 :]]))) / len(texts)
    return dict(zip(SELF_BLEU_ORDERS, (means / len(sets)).tolist(), strict=True))


def find_ngrams(words: Tokens, order: int) -> Iterator[Tokens]:
    return zip(*(words[start:] for start in range(order)), strict=False)

"""Replies with references: the rows of a file, those of the multi-reference data, and how diverse a system's are.

distinct-n    different n-grams / all n-grams (Li et al. 2016), over all that the system said; and the mean over rows
ead-n         different n-grams / those expected of so many draws (Liu et al. 2022), V the file's different n-grams
self-bleu-n   BLEU of each response of a row against the row's others, mean (Zhu et al. 2018); less is more diverse
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnscore_assessment.errors import BadFileError, ReferencesError
from turnscore_assessment.files import check_row, read_rows
from turnscore_assessment.references.word_metrics import Tokenise, Tokens, find_tokenisation, make_sentence_bleu

MOST_TEXTS = 1000  # Most hypotheses, and references, of one row. Chosen: a row then makes a million pairs at most.
MOST_CHARS = 100_000  # Most characters of one text. Chosen: far beyond any reply.

Text = Annotated[str, Field(max_length=MOST_CHARS, strict=True)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_TEXTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedReplies:
    """One row of a file: hypotheses, and references known to be good there; texts are compared only within it."""

    context_id: str  # Rows of one context depend on each other: intervals are taken over contexts.
    system: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]  # The original reply first: `single` compares with it.
    rating: float | None = None

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
REFERENCES_PER_TURN = 5  # The original, then four by one worker. The paper's own fifth collected one is not released.


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


ORDERS: Final = (1, 2, 3)
SELF_BLEU_ORDERS: Final = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """How diverse one system is; figures within rows are None where no row has two hypotheses."""

    system: str
    rows: int
    responses: int
    tokenisation: str
    distinct: Mapping[int, float]  # distinct-n by n, over everything the system said.
    expected_adjusted: Mapping[int, float]
    vocabulary: Mapping[int, int]  # ead-n's V by n.
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
    compare = make_sentence_bleu(SELF_BLEU_ORDERS, tokenisation)
    means = np.zeros(len(SELF_BLEU_ORDERS))
    for texts in sets:
        for place, text in enumerate(texts):
            means += np.array(compare(text, [*texts[:place], *texts[place + 1 :]])) / len(texts)
    return dict(zip(SELF_BLEU_ORDERS, (means / len(sets)).tolist(), strict=True))


def find_ngrams(words: Tokens, order: int) -> Iterator[Tokens]:
    return zip(*(words[start:] for start in range(order)), strict=False)

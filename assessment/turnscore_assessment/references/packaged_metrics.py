"""Metrics of libraries and of METEOR's program, under their names. Each differs from the papers' somewhere.

nltk, sacrebleu and rouge-score are imported when one of their metrics is asked for. METEOR is NLTK's under its own
names, and METEOR 1.5's own program where a Java and its jar are given: different metrics, as the jar has tuned weights
and a table of paraphrases, NLTK the weights of 2007 and WordNet. The jar is not shipped; pycocoevalcap's wheel carries
it.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from turnscore_assessment.errors import MissingResourceError
from turnscore_assessment.figures import Floats
from turnscore_assessment.references.ngram_metrics import Group, Pair, find_tokenisation

_KEPT_TEXTS = 4096

Compare = Callable[[str, Sequence[str]], float]
"""Compares a hypothesis with its references."""


class LibraryMetric:
    """A library's function under the name of a metric."""

    def __init__(self, name: str, tokenisation: str, definition: str, compare: Compare) -> None:
        self.name = name
        self.tokenisation = tokenisation
        self.definition = definition
        self._compare = compare

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        return np.array([self._compare(own, [other]) for own, other in pairs])


class JointLibraryMetric(LibraryMetric):
    """One that the library also defines for several references."""

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        return np.array([self._compare(own, others) for own, others in groups])


class CorpusLibraryMetric(JointLibraryMetric):
    """One that the library also defines over a corpus."""

    def __init__(
        self,
        name: str,
        tokenisation: str,
        definition: str,
        compare: Compare,
        compare_corpus: Callable[[Sequence[Group]], float],
    ) -> None:
        super().__init__(name, tokenisation, definition, compare)
        self.compare_corpus = compare_corpus


def make_sacre_bleu(order: int) -> CorpusLibraryMetric:
    """sacrebleu's BLEU of order n, on 0 to 1."""
    from sacrebleu.metrics import BLEU

    segment: Any = BLEU(max_ngram_order=order, effective_order=True, lowercase=True)
    corpus: Any = BLEU(max_ngram_order=order, lowercase=True, force=True)

    def compare_corpus(groups: Sequence[Group]) -> float:
        most = max(len(others) for _, others in groups)
        streams = [[others[place] if place < len(others) else None for _, others in groups] for place in range(most)]
        return float(corpus.corpus_score([own for own, _ in groups], streams).score) / 100

    return CorpusLibraryMetric(
        f"bleu-{order}@sacrebleu",
        "13a",
        f"sacrebleu {version('sacrebleu')} BLEU, up to {order}-grams, effective order, exponential smoothing, "
        "lower case, divided by 100; joint: references pooled",
        lambda own, others: float(segment.sentence_score(own, list(others)).score) / 100,
        compare_corpus,
    )


def make_sacre_chrf() -> LibraryMetric:
    """sacrebleu's chrF, on 0 to 1."""
    from sacrebleu.metrics import CHRF

    chrf: Any = CHRF(lowercase=True)
    return LibraryMetric(
        "chrf@sacrebleu",
        "characters",
        f"sacrebleu {version('sacrebleu')} chrF (6-grams of characters, beta 2), divided by 100",
        lambda own, others: float(chrf.sentence_score(own, list(others)).score) / 100,
    )


def make_rouge_score() -> JointLibraryMetric:
    """rouge-score's ROUGE-L."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer: Any = RougeScorer(["rougeL"], use_stemmer=False)
    return JointLibraryMetric(
        "rouge-l@rouge-score",
        "rouge-score",
        f"rouge-score {version('rouge-score')} rougeL, F with beta 1, no stemming, letters and digits only; "
        "joint: the reference of the best F",
        lambda own, others: float(scorer.score_multi(list(others), own)["rougeL"].fmeasure),
    )


def make_gleu(tokenisation: str = "blanks") -> CorpusLibraryMetric:
    """GLEU, by NLTK."""
    from nltk.translate.gleu_score import corpus_gleu, sentence_gleu

    read = lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))
    return CorpusLibraryMetric(
        "gleu",
        tokenisation,
        f"GLEU of nltk {version('nltk')}: the lesser of precision and recall of all 1- to 4-grams together "
        "(Wu et al. 2016); joint: the reference of the best GLEU",
        lambda own, others: float(sentence_gleu([*map(read, others)], read(own))),
        lambda groups: float(
            corpus_gleu([[*map(read, others)] for _, others in groups], [read(own) for own, _ in groups])
        ),
    )


_JAR_SECONDS = 3600
"""Seconds for one run of the jar. Chosen: 40,000 pairs take a minute."""
_JAR_MEMORY = "-Xmx2G"
_SEGMENT = re.compile(r"^Segment \d+ score:\s+(\S+)$", re.MULTILINE)
_FINAL = re.compile(r"^Final score:\s+(\S+)$", re.MULTILINE)


class _NoSynonyms:
    """Replaces WordNet: no word has a synonym."""

    def synsets(self, word: str) -> list[object]:
        return []


class NltkMeteor:
    """NLTK's METEOR; `with_wordnet` says whether synonyms count."""

    def __init__(self, tokenisation: str = "blanks", *, with_wordnet: bool) -> None:
        """Raises MissingResourceError where WordNet is asked for and not installed."""
        self.name = "meteor@nltk" if with_wordnet else "meteor-stem@nltk"
        self.tokenisation = tokenisation
        stages = "exact, Porter stem, WordNet" if with_wordnet else "exact and Porter stem, no WordNet"
        self.definition = f"METEOR of nltk {version('nltk')}: {stages}; alpha .9, beta 3, gamma .5; no paraphrases"
        self._read = lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))
        self._wordnet: Any = _find_wordnet() if with_wordnet else _NoSynonyms()

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        from nltk.translate.meteor_score import single_meteor_score

        return np.array(
            [
                float(single_meteor_score(self._read(other), self._read(own), wordnet=self._wordnet))
                for own, other in pairs
            ]
        )


def _find_wordnet() -> Any:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        raise MissingResourceError(
            "meteor@nltk needs WordNet 3.0, which is not installed: put it under $NLTK_DATA/corpora/wordnet, or ask "
            "for meteor-stem@nltk, which matches words and stems alone"
        ) from None
    return wordnet


class MeteorJar:
    """METEOR 1.5 by its own program: `-l en -norm`, tuned weights, paraphrases; many references are built in."""

    name = "meteor"
    tokenisation = "blanks, then METEOR's own normalisation"
    definition = "METEOR 1.5 (jar), -l en -norm; joint: its own, the best of the references; corpus: pooled statistics"

    def __init__(self, jar: Path | None) -> None:
        """Raises MissingResourceError without a Java or without the jar."""
        if jar is None or not jar.is_file():
            raise MissingResourceError("meteor is computed by METEOR 1.5's jar: name it with --meteor-jar")
        if (java := shutil.which("java")) is None:
            raise MissingResourceError("meteor is computed by METEOR 1.5's jar, and there is no java to run it")
        self._command = (java, _JAR_MEMORY, "-jar", str(jar))
        self._clean = find_tokenisation("blanks")

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        return self.compare_jointly([(hypothesis, (reference,)) for hypothesis, reference in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One METEOR per hypothesis, given all its references at once."""
        found = np.array([float(score) for score in _SEGMENT.findall(self._run(groups))])
        if len(found) != len(groups):
            raise MissingResourceError(f"METEOR's jar answered {len(found)} of {len(groups)} hypotheses")
        return found

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        """METEOR of the summed statistics of all hypotheses."""
        return float(_FINAL.findall(self._run(groups))[0])

    def _run(self, groups: Sequence[Group]) -> str:
        """The program's numbers. It takes the same number of references for all, so missing ones are repeated."""
        most = max(len(others) for _, others in groups)
        with tempfile.TemporaryDirectory() as folder:
            own_file, other_file = Path(folder, "hypotheses"), Path(folder, "references")
            own_file.write_text("".join(self._line(own) for own, _ in groups), encoding="utf-8")
            lines = (self._line(others[place % len(others)]) for _, others in groups for place in range(most))
            other_file.write_text("".join(lines), encoding="utf-8")
            files = str(own_file), str(other_file)
            command = (*self._command, *files, "-l", "en", "-norm", "-r", str(most))
            done = subprocess.run(command, capture_output=True, text=True, timeout=_JAR_SECONDS, check=False)  # noqa: S603
        if done.returncode:
            raise MissingResourceError(f"METEOR's jar failed: {done.stderr.strip()[-200:]}")
        return done.stdout

    def _line(self, text: str) -> str:
        return " ".join(self._clean(text)) + "\n"

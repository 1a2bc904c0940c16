"""The catalogue: every metric by its name, made with its resources. A name with @ is a library's own definition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnscore_assessment.references.errors import UnknownMetricError
from turnscore_assessment.references.metrics import word_vectors
from turnscore_assessment.references.metrics.bleu import Bleu
from turnscore_assessment.references.metrics.libraries import Gleu, NltkBleu, RougeScore, SacreBleu, SacreChrf
from turnscore_assessment.references.metrics.meteor import MeteorJar, NltkMeteor
from turnscore_assessment.references.metrics.metric import Metric
from turnscore_assessment.references.metrics.rouge import RougeL
from turnscore_assessment.references.metrics.sentence_encoder import UNOBTAINABLE, Encoder, EncoderCosine
from turnscore_assessment.references.metrics.word_vectors import WordVectorMetric, WordVectors

DEFAULT_METRIC: Final = "encoder"
ORDERS: Final = (1, 2, 3, 4)
"""Of BLEU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of metrics; a metric that lacks one raises an error that names it."""

    tokenisation: str = "blanks"
    encoder: Encoder | None = None
    word_vectors: WordVectors | None = None
    meteor_jar: Path | None = None


def find_metrics(names: Sequence[str], resources: Resources) -> list[Metric]:
    """The metrics of these names, in order and once each. Raises UnknownMetricError, MissingResourceError."""
    makers = _makers(resources)
    for name in names:
        if name not in makers:
            raise UnknownMetricError(f"no metric is called {name}; choose one of {', '.join(makers)}")
    return [makers[name]() for name in dict.fromkeys(names)]


def metric_names() -> list[str]:
    return list(_makers(Resources()))


def _makers(resources: Resources) -> dict[str, Callable[[], Metric]]:
    words = resources.tokenisation
    makers: dict[str, Callable[[], Metric]] = {
        DEFAULT_METRIC: lambda: EncoderCosine(resources.encoder),
        "rouge-l": lambda: RougeL(words),
        "rouge-l@rouge-score": RougeScore,
        "meteor": lambda: MeteorJar(resources.meteor_jar),
        "meteor@nltk": lambda: NltkMeteor(words, with_wordnet=True),
        "meteor-stem@nltk": lambda: NltkMeteor(words, with_wordnet=False),
        "gleu": lambda: Gleu(words),
        "chrf@sacrebleu": SacreChrf,
    }
    makers |= {f"bleu-{order}": lambda order=order: Bleu(order, words) for order in ORDERS}  # type: ignore[misc]
    makers |= {f"bleu-{order}@nltk": lambda order=order: NltkBleu(order, words) for order in ORDERS}  # type: ignore[misc]
    makers |= {f"bleu-{order}@sacrebleu": lambda order=order: SacreBleu(order) for order in ORDERS}  # type: ignore[misc]
    for name in word_vectors.NAMES:
        makers[name] = lambda name=name: WordVectorMetric(name, resources.word_vectors, words)  # type: ignore[misc]
    for name in UNOBTAINABLE:
        makers[name] = lambda name=name: EncoderCosine(resources.encoder, name)  # type: ignore[misc]
    return makers

"""Sentence encoders: bundles of kind encoder, computed here by the service's graph and code."""

import os
from collections.abc import Sequence

import numpy as np
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import score_turns
from turnscore_models import BundleError
from turnscore_models.store import resolve

from turnscore_assessment.errors import MissingResourceError
from turnscore_assessment.references.vector_metrics import Vectors

ENCODER_KIND = "encoder"


class BundleEncoder:
    """A bundle's vectors. Keeps no text and no vector."""

    def __init__(self, reference: str, threads: int = 1) -> None:
        """`reference` is a bundle's folder, or its name in the model store.

        Raises MissingResourceError for what is not a bundle, is refused, or is of another kind.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            bundle = resolve(reference)
            if bundle.manifest.kind != ENCODER_KIND:
                raise MissingResourceError(
                    f"{reference} is a bundle of kind {bundle.manifest.kind}, not {ENCODER_KIND}"
                )
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

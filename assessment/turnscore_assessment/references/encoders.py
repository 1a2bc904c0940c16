"""Sentence encoders: bundles of kind encoder, computed here by the service's graph and code."""

import os
from collections.abc import Sequence

import numpy as np
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models import BundleError
from turnscore_models.store import resolve

from turnscore_assessment.errors import MissingResourceError
from turnscore_assessment.references.vector_metrics import Vectors

ENCODER_KIND = "encoder"
_TEXTS_AT_ONCE = 4096
"""Texts tokenized together. Chosen: some 4 MB of tokens."""
_TOKENS_AT_ONCE = 2048
"""Tokens in one run of the graph, padding included. Chosen."""


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
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        vectors: Vectors | None = None
        for start in range(0, len(order), _TEXTS_AT_ONCE):
            places = order[start : start + _TEXTS_AT_ONCE]
            found = self._encode_alike([texts[place] for place in places])
            if vectors is None:
                vectors = np.empty((len(texts), found.shape[1]), np.float32)
            vectors[places] = found
        return np.zeros((0, 1), np.float32) if vectors is None else vectors

    def _encode_alike(self, texts: Sequence[str]) -> Vectors:
        scorer = self._loaded.scorer
        turns = [self._loaded.trim(TurnToScore([], text)) for text in texts]
        packs = sorted(scorer.encode(turns), key=lambda pack: pack.width)
        rows: list[Vectors] = [np.zeros(0, np.float32)] * len(texts)
        start = 0
        while start < len(packs):
            end = start + 1
            while end < len(packs) and (end + 1 - start) * packs[end].width <= _TOKENS_AT_ONCE:
                end += 1
            batch = packs[start:end]
            for pack, raw in zip(batch, scorer.score(batch), strict=True):
                assert raw.vector is not None
                rows[pack.answers[0]] = np.frombuffer(raw.vector, np.float32)
            start = end
        return np.stack(rows)

"""Similarity: how near the vectors of texts are to each other, in the form of replies. Pure; reads no text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from turnscore_core.scoring import Outcome
from turnscore_wire import EncodedText, TextSimilarities

SIMILARITY = "similarity"
"""The call that compares texts."""
_PLACES = 6
"""Decimal places of a cosine. Chosen: float32 vectors give seven."""

_Vectors = NDArray[np.float64]


def compare_texts(name: str, texts: Sequence[Outcome], references: Sequence[Outcome]) -> list[TextSimilarities]:
    """Each text's cosines with the references, or with all texts where there are none; raises the first error.

    `name` is the encoder's. Computed in double precision, so that a cosine does not depend on how many there are.
    """
    own = _stack(name, texts)
    others = _stack(name, references) if references else own
    cosines = np.clip(np.round(own @ others.T, _PLACES), -1.0, 1.0)
    found = []
    for place, (outcome, row) in enumerate(zip(texts, cosines, strict=True)):
        score = outcome.scores[name]
        best = _find_best(row, None if references else place)
        found.append(TextSimilarities(similarities=row.tolist(), best=best, tokens=score.tokens, cached=score.cached))
    return found


def describe_texts(name: str, outcomes: Sequence[Outcome]) -> list[EncodedText]:
    """What was read of each."""
    scores = [outcome.scores[name] for outcome in outcomes]
    return [EncodedText(tokens=score.tokens, cached=score.cached) for score in scores]


def _stack(name: str, outcomes: Sequence[Outcome]) -> _Vectors:
    for outcome in outcomes:
        if name in outcome.errors:
            raise outcome.errors[name]
    return np.stack([np.frombuffer(outcome.vectors[name], "<f4") for outcome in outcomes]).astype(np.float64)


def _find_best(row: _Vectors, own_place: int | None) -> int | None:
    if own_place is None:
        return int(row.argmax())
    if len(row) == 1:
        return None
    others = row.copy()
    others[own_place] = -np.inf
    return int(others.argmax())

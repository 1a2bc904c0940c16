"""How well a baseline separates relevant responses from random and adversarial ones (DailyDialog++). Trains nothing."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from turnscore_assessment.correlations import compute_auc
from turnscore_assessment.data.dialogues import read_rows
from turnscore_assessment.data.labelled_turns import ADVERSARIAL_FILE, ADVERSARIAL_KINDS

from turnscore_exporters.baselines.material.asked import Asked, Baseline, Floats

TEST = "test"
"""The split that the published figures are of."""
RELEVANT, *WRONG = ADVERSARIAL_KINDS
BORDER = 0.5
"""Border between wrong and relevant, of scores from 0 to 1. Specified: DailyDialog++'s accuracy."""


@dataclass(frozen=True, kw_only=True)
class JudgedContext:
    """The responses to one context, by kind."""

    by_kind: dict[str, list[Asked]]

    @property
    def asked(self) -> list[Asked]:
        """All responses, kind after kind."""
        return [each for kind in ADVERSARIAL_KINDS for each in self.by_kind[kind]]


def read_adversarial(folder: Path, most: int, seed: int) -> list[JudgedContext]:
    """At most so many contexts of the test split, drawn at random; none where the folder has no such file."""
    path = folder / ADVERSARIAL_FILE
    if not path.exists():
        return []
    found = [
        JudgedContext(
            by_kind={
                kind: [Asked(context=tuple(row["context"]), response=text) for text in row[kind] if text.strip()]
                for kind in ADVERSARIAL_KINDS
            }
        )
        for _, row in read_rows(path)
        if row["split"] == TEST
    ]
    random.Random(seed).shuffle(found)  # noqa: S311
    return found[:most]


def measure_adversarial(baseline: Baseline, contexts: Sequence[JudgedContext]) -> dict[str, Any]:
    """AUC by wrong kind and score, of scores from 0 to 1 also the accuracy at the border; the length's beside them."""
    asked = [each for context in contexts for each in context.asked]
    kinds = np.array([kind for context in contexts for kind in ADVERSARIAL_KINDS for _ in context.by_kind[kind]])
    scores = {**baseline.score(asked), "length": np.array([len(each.response) for each in asked], dtype=np.float64)}
    return {
        "contexts": len(contexts),
        **{wrong: {name: _compare(found, kinds, wrong) for name, found in scores.items()} for wrong in WRONG},
    }


def _compare(scores: Floats, kinds: np.ndarray[Any, Any], wrong: str) -> dict[str, float | None]:
    chosen = np.isin(kinds, (RELEVANT, wrong)) & ~np.isnan(scores)
    values, labels = scores[chosen], (kinds[chosen] == RELEVANT).astype(int)
    is_share = bool(len(values)) and values.min() >= 0 and values.max() <= 1
    return {
        "auc": round(compute_auc(values, labels.tolist()), 4),
        "accuracy": round(float(np.mean((values >= BORDER) == labels)), 4) if is_share else None,
    }

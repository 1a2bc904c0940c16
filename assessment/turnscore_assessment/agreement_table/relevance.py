"""How well `relevant` separates fitting responses from random and adversarial ones (DailyDialog++), as served."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from turnscore_core.loaded_scorer import LoadedScorer

from turnscore_assessment.agreement.bundles import make_turn
from turnscore_assessment.agreement_table.columns import score_parts
from turnscore_assessment.correlations import draw_dialogues
from turnscore_assessment.data.labelled_turns import ADVERSARIAL_FILE, ADVERSARIAL_KINDS, alternate
from turnscore_assessment.figures import Floats, Interval, find_interval
from turnscore_assessment.files import read_rows

FIT = 0.5
"""A response counts as relevant from here on. Specified."""
SCORER, PART = "quality", "relevant"
_RELEVANT, *NEGATIVES = ADVERSARIAL_KINDS


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The figures of one split against one kind of negatives, with intervals from resampled contexts."""

    split: str
    negatives: str
    contexts: int
    accuracy: Interval


def measure_relevance(loaded: LoadedScorer, folder: Path, most_contexts: int, draws: tuple[int, int]) -> list[Accuracy]:
    """By split and kind of negatives, over at most so many random contexts per split; nothing without data."""
    if not (folder / ADVERSARIAL_FILE).exists():
        return []
    rows = [row for _, row in read_rows(folder / ADVERSARIAL_FILE)]
    found = []
    for split in sorted({row["split"] for row in rows}):
        members = [row for row in rows if row["split"] == split]
        if len(members) > most_contexts:
            members = random.Random(draws[1]).sample(members, most_contexts)  # noqa: S311
        shares = _call_relevant(loaded, members)
        drawn = draw_dialogues(len(members), *draws)
        for place, kind in enumerate(NEGATIVES, start=1):
            right = (shares[:, 0] + 1 - shares[:, place]) / 2
            resampled = drawn @ right / len(members)
            found.append(
                Accuracy(
                    split=split,
                    negatives=kind,
                    contexts=len(members),
                    accuracy=find_interval(float(right.mean()), resampled),
                )
            )
    return found


def _call_relevant(loaded: LoadedScorer, rows: Sequence[dict[str, Any]]) -> Floats:
    """The share of each context's responses, by kind [rows, kinds], that counts as relevant."""
    asked = [
        (place, column, make_turn(alternate([text for text in row["context"] if text.strip()]), response))
        for place, row in enumerate(rows)
        for column, kind in enumerate(ADVERSARIAL_KINDS)
        for response in row[kind]
        if response.strip()
    ]
    scores = score_parts(loaded, [turn for *_, turn in asked])
    calls, counts = np.zeros((2, len(rows), len(ADVERSARIAL_KINDS)))
    for (place, column, _), raw in zip(asked, scores, strict=True):
        calls[place, column] += raw.details[PART] >= FIT
        counts[place, column] += 1
    return np.asarray(calls / counts)

"""How a quality checkpoint agrees with people on the development sets. Measures; chooses nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turnscore_assessment.data.dialogues import (
    ADVERSARIAL_FILE,
    ADVERSARIAL_KINDS,
    LabelledTurn,
    alternate,
    read_development_sets,
    read_judged_turns,
)
from turnscore_assessment.figures import compute_auc, compute_spearman
from turnscore_assessment.files import read_rows
from turnscore_core.scorers.quality import HEADS, ValueFormula

from turnscore_exporters.quality.model import RELEVANT, QualityModel
from turnscore_exporters.quality.value import compute_values, score_heads
from turnscore_exporters.training.encoders import Encoder

VALUE = "value"
# Of each split, evenly drawn; with 5 responses of each kind an accuracy is known to about .01. Chosen.
ADVERSARIAL_CONTEXTS = 400

Floats = NDArray[np.float64]


def measure_development(model: QualityModel, encoder: Encoder, formula: ValueFormula, folder: Path) -> dict[str, Any]:
    """Spearman of value, heads and length with people's ratings on each development set that the folder has."""
    sets = read_development_sets(folder)
    for turn in read_judged_turns(folder, ["report"]):
        sets.setdefault(f"{turn.set_name} (report)", []).append(turn)
    return {
        "ratings": {
            name: measure_set(turns, score_heads(model, encoder, [(t.context, t.response) for t in turns]), formula)
            for name, turns in sets.items()
        },
        "adversarial_responses": measure_adversarial(model, encoder, folder / ADVERSARIAL_FILE),
    }


def measure_set(turns: Sequence[LabelledTurn], heads: Floats, formula: ValueFormula) -> dict[str, float]:
    """Spearman with the ratings (where they are 0 or 1 the area under the ROC curve) of value, each head and length."""
    ratings = [turn.rating for turn in turns]
    measure = compute_auc if set(ratings) <= {0.0, 1.0} else compute_spearman
    columns: dict[str, Floats] = {
        VALUE: compute_values(formula, heads, [(each.context, each.response) for each in turns])
    }
    columns |= {name: heads[:, place] for place, name in enumerate(HEADS)}
    columns["length"] = np.array([len(turn.response) for turn in turns], dtype=np.float64)
    return {"turns": len(turns), **{name: round(measure(column, ratings), 4) for name, column in columns.items()}}


def measure_adversarial(
    model: QualityModel, encoder: Encoder, path: Path, contexts: int = ADVERSARIAL_CONTEXTS
) -> dict[str, Mapping[str, float]]:
    """Accuracy of `relevant` at 0.5 for fitting against random, and against adversarial responses, by split."""
    if not path.exists():
        return {}
    found: dict[str, Mapping[str, float]] = {}
    rows = [row for _, row in read_rows(path)]
    for split in sorted({row["split"] for row in rows}):
        members = [row for row in rows if row["split"] == split]
        members = members[:: max(1, len(members) // contexts)]
        calls = {kind: _call_relevant(model, encoder, members, kind) for kind in ADVERSARIAL_KINDS}
        right = calls["relevant"]
        found[split] = {
            "contexts": len(members),
            **{kind: round((right + 1 - calls[kind]) / 2, 4) for kind in ADVERSARIAL_KINDS[1:]},
        }
    return found


def _call_relevant(model: QualityModel, encoder: Encoder, rows: Sequence[dict[str, Any]], kind: str) -> float:
    """The share of this kind of responses whose `relevant` is at least 0.5."""
    asked = [
        (alternate([text for text in row["context"] if text.strip()]), response)
        for row in rows
        for response in row[kind]
        if response.strip()
    ]
    return float((score_heads(model, encoder, asked)[:, RELEVANT] >= 0.5).mean())

"""A trained baseline's agreement with people on the development sets, beside the length's. Trains nothing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from turnscore_assessment.agreement.bundles import make_turn
from turnscore_assessment.agreement_table.columns import ScoredSet, length_and_position
from turnscore_assessment.agreement_table.judged_sets import TURNS, JudgedItem, JudgedSet, draw_places, read_judged_sets
from turnscore_assessment.agreement_table.measures import ALL, Draws, Figures, measure_set
from turnscore_assessment.correlations import LEAST_OBSERVATIONS
from turnscore_assessment.data.dialogues import read_rows
from turnscore_assessment.data.labelled_turns import alternate
from turnscore_assessment.figures import Interval

from turnscore_exporters.baselines.material.asked import Asked, Baseline, Floats
from turnscore_exporters.baselines.material.leaks import true_references

MULTIREF_FILE = "multiref/ratings.jsonl.gz"
MULTIREF = "multiref"
MOST_TURNS, SEED = 3000, 0
"""As in docs/agreement-table.md, so that its rows are of the same turns."""


@dataclass(frozen=True)
class AskedSet:
    """A judged set, and the items that a baseline scores of it."""

    judged: JudgedSet
    asked: Sequence[Asked]


def read_asked_sets(folder: Path) -> list[AskedSet]:
    """The development sets of turns that the folder has, and the rated responses with references."""
    found = [
        AskedSet(judged, [_ask(item) for item in judged.items])
        for judged in read_judged_sets(folder, MOST_TURNS, SEED)
        if judged.unit == TURNS
    ]
    if (folder / MULTIREF_FILE).exists():
        found.append(_read_multiref(folder / MULTIREF_FILE))
    return found


def measure_baseline(
    baseline: Baseline, sets: Sequence[AskedSet], most_turns: int, draws: Draws, seen: frozenset[str] = frozenset()
) -> dict[str, dict[str, Any]]:
    """Figures by set and score, and of length and position; at most so many turns of each set are scored.

    Turns of dialogues that the baseline has `seen` in training are left out, and so are sets without any others.
    """
    found = {}
    for each in sets:
        kept = [place for place, item in enumerate(each.judged.items) if item.dialogue not in seen]
        if len(kept) >= LEAST_OBSERVATIONS:
            items, asked = [each.judged.items[place] for place in kept], [each.asked[place] for place in kept]
            unseen = AskedSet(replace(each.judged, items=items), asked)
            found[each.judged.name] = _measure(baseline, unseen, most_turns, draws)
    return found


def _measure(baseline: Baseline, each: AskedSet, most_turns: int, draws: Draws) -> dict[str, Any]:
    places = draw_places(each.judged.items, most_turns, SEED)
    found = baseline.score([each.asked[place] for place in places])
    columns = {name: _spread(scores, places, len(each.asked)) for name, scores in found.items()}
    whole = replace(each.judged, items=[replace(item, system="") for item in each.judged.items])
    trivial = {
        name: _spread(column[places], places, len(column)) for name, column in length_and_position(whole).items()
    }
    figures = measure_set(ScoredSet(whole, columns, trivial), draws)[ALL]
    return {
        "kind": "AUC" if whole.is_binary else "Spearman",
        "rows": {name: _describe(found) for name, found in figures.items()},
    }


def _spread(values: Floats, places: Sequence[int], count: int) -> Floats:
    column = np.full(count, math.nan)
    column[list(places)] = values
    return column


def _describe(figures: Figures) -> dict[str, Any]:
    return {
        "n": figures.items,
        "agreement": _round(figures.agreement),
        "pearson": _round(figures.pearson),
        "given_length": _round(figures.given_length),
    }


def _round(interval: Interval) -> list[float | None]:
    return [None if math.isnan(each) else round(each, 4) for each in (interval.value, interval.low, interval.high)]


def _ask(item: JudgedItem) -> Asked:
    [turn] = item.turns
    return Asked(context=tuple(each.text for each in turn.context), response=turn.response)


def _read_multiref(path: Path) -> AskedSet:
    """Rated responses; a reference equal to the response is left out."""
    items: list[JudgedItem] = []
    asked: list[Asked] = []
    for _, row in read_rows(path):
        context, response = tuple(row["context"]), row["response"]
        references = true_references(response, row["references"])
        if not response.strip() or not references:
            continue
        each = Asked(context=context, response=response, references=references)
        asked.append(each)
        items.append(_item(row, each))
    return AskedSet(JudgedSet(name=MULTIREF, unit=TURNS, items=items), asked)


def _item(row: Mapping[str, Any], asked: Asked) -> JudgedItem:
    turn = make_turn(alternate(asked.context), asked.response)
    return JudgedItem(dialogue=row["context_id"], system=row["system"], rating=float(row["rating"]), turns=[turn])

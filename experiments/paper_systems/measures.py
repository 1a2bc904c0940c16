"""A trained system's agreement with people, and its scores of wrong responses, with the length's."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from development_sets import (
    ALL,
    TURNS,
    Draws,
    Figures,
    JudgedItem,
    JudgedSet,
    ScoredSet,
    draw_places,
    length_and_position,
    measure_set,
    read_judged_sets,
)
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_assessment.correlations import LEAST_OBSERVATIONS, compute_auc
from turnscore_assessment.data.labelled_turns import ADVERSARIAL_FILE, ADVERSARIAL_KINDS, alternate
from turnscore_assessment.figures import Interval
from turnscore_assessment.files import read_rows

from paper_systems.data import Baseline, EvalTurn, Floats, true_references

TEST = "test"
"""The split that the published figures are of."""
RELEVANT, *WRONG = ADVERSARIAL_KINDS
BORDER = 0.5
"""Border between wrong and relevant, of scores from 0 to 1. Specified: DailyDialog++'s accuracy."""


@dataclass(frozen=True, kw_only=True)
class AdversarialContext:
    """The responses to one context, by kind."""

    by_kind: dict[str, list[EvalTurn]]

    @property
    def asked(self) -> list[EvalTurn]:
        """All responses, kind after kind."""
        return [each for kind in ADVERSARIAL_KINDS for each in self.by_kind[kind]]


def read_adversarial(folder: Path, most: int, seed: int) -> list[AdversarialContext]:
    """At most so many contexts of the test split, drawn at random; none where the folder has no such file."""
    path = folder / ADVERSARIAL_FILE
    if not path.exists():
        return []
    found = [
        AdversarialContext(
            by_kind={
                kind: [EvalTurn(context=tuple(row["context"]), response=text) for text in row[kind] if text.strip()]
                for kind in ADVERSARIAL_KINDS
            }
        )
        for _, row in read_rows(path)
        if row["split"] == TEST
    ]
    random.Random(seed).shuffle(found)
    return found[:most]


def measure_adversarial(baseline: Baseline, contexts: Sequence[AdversarialContext]) -> dict[str, Any]:
    """AUC by wrong kind and score, of scores from 0 to 1 also the accuracy at the border; and the length's."""
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


MULTIREF_FILE = "multiref/ratings.jsonl.gz"
MULTIREF = "multiref"
MOST_TURNS, SEED = 3000, 0
"""As in docs/agreement.md, so that its rows are of the same turns."""


@dataclass(frozen=True)
class EvalSet:
    """A judged set, and the items that a baseline scores of it."""

    judged: JudgedSet
    asked: Sequence[EvalTurn]


def read_eval_sets(folder: Path) -> list[EvalSet]:
    """The development sets of turns that the folder has, and the rated responses with references."""
    found = [
        EvalSet(judged, [_ask(item) for item in judged.items])
        for judged in read_judged_sets(folder, MOST_TURNS, SEED)
        if judged.unit == TURNS
    ]
    if (folder / MULTIREF_FILE).exists():
        found.append(_read_multiref(folder / MULTIREF_FILE))
    return found


def measure_baseline(
    baseline: Baseline, sets: Sequence[EvalSet], most_turns: int, draws: Draws, seen: frozenset[str] = frozenset()
) -> dict[str, dict[str, Any]]:
    """Figures by set and score, and of length and position; at most so many turns of each set are scored.

    Turns of dialogues that the baseline has `seen` in training are left out, and so are sets without any others.
    """
    found = {}
    for each in sets:
        kept = [place for place, item in enumerate(each.judged.items) if item.dialogue not in seen]
        if len(kept) >= LEAST_OBSERVATIONS:
            items, asked = [each.judged.items[place] for place in kept], [each.asked[place] for place in kept]
            unseen = EvalSet(replace(each.judged, items=items), asked)
            found[each.judged.name] = _measure(baseline, unseen, most_turns, draws)
    return found


def _measure(baseline: Baseline, each: EvalSet, most_turns: int, draws: Draws) -> dict[str, Any]:
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


def _ask(item: JudgedItem) -> EvalTurn:
    [turn] = item.turns
    return EvalTurn(context=tuple(each.text for each in turn.context), response=turn.response)


def _read_multiref(path: Path) -> EvalSet:
    """Rated responses; a reference equal to the response is left out."""
    items: list[JudgedItem] = []
    asked: list[EvalTurn] = []
    for _, row in read_rows(path):
        context, response = tuple(row["context"]), row["response"]
        references = true_references(response, row["references"])
        if not response.strip() or not references:
            continue
        each = EvalTurn(context=context, response=response, references=references)
        asked.append(each)
        items.append(_item(row, each))
    return EvalSet(JudgedSet(name=MULTIREF, unit=TURNS, items=items), asked)


def _item(row: Mapping[str, Any], asked: EvalTurn) -> JudgedItem:
    turn = make_turn(alternate(asked.context), asked.response)
    return JudgedItem(dialogue=row["context_id"], system=row["system"], rating=float(row["rating"]), turns=[turn])

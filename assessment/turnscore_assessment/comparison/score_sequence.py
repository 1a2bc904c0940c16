"""Sequential comparison of two files of scores: pairs of dialogues in the files' order, a sequence for each scorer."""

import numpy as np

from turnscore_assessment.comparison.score_file import ScoredDialogue, ScoreFile, pair_dialogues
from turnscore_assessment.comparison.sequential import (
    Observations,
    SequenceMethod,
    SequentialComparison,
    compare_sequentially,
)
from turnscore_assessment.errors import AssessmentError, TooFewError

Bounds = tuple[float, float]


def compare_scores_sequentially(
    a: ScoreFile,
    b: ScoreFile,
    *,
    scorers: list[str] | None = None,
    method: SequenceMethod = SequenceMethod.ASYMPTOTIC,
    bounds: Bounds | None = None,
    alpha: float = 0.05,
    margin: float | None = None,
) -> list[SequentialComparison]:
    """One comparison per scorer, each at its share of alpha, so that with 1 - alpha all of them hold at every look.

    Dialogues are paired by their names where both files have them all, in A's order, otherwise by their places.
    `bounds` are those of a score: betting needs them. Raises AssessmentError and TooFewError.
    """
    pairs, unit = _pair(a, b)
    columns = [(left.values(with_details=False), right.values(with_details=False)) for left, right in pairs]
    names = _choose_names(columns, scorers)
    reach = np.inf if bounds is None else bounds[1] - bounds[0]
    notes = [f"alpha {alpha:g} is shared by {len(names)} scorers"] if len(names) > 1 else []
    found = []
    for name in names:
        kept = [(left[name], right[name]) for left, right in columns if name in left and name in right]
        _check_bounds(name, kept, bounds)
        differences = np.array([left - right for left, right in kept])
        found.append(
            compare_sequentially(
                Observations(differences=differences, reach=reach, unit=unit, notes=notes),
                a=str(a.path),
                b=str(b.path),
                what=name,
                method=method,
                alpha=alpha / len(names),
                margin=margin,
            )
        )
    return found


def _choose_names(columns: list[tuple[dict[str, float], dict[str, float]]], scorers: list[str] | None) -> list[str]:
    common = list(dict.fromkeys(name for left, right in columns for name in left if name in right))
    names = scorers or common
    missing = [name for name in names if name not in common]
    if missing or not names:
        which = ", ".join(missing) or "none"
        raise TooFewError(f"scorers: {which} scored in both files; these are: {', '.join(common)}")
    return names


def _pair(a: ScoreFile, b: ScoreFile) -> tuple[list[tuple[ScoredDialogue, ScoredDialogue]], str]:
    named = list(pair_dialogues(a, b))
    if len(named) == max(len(a.scored), len(b.scored)):
        return named, "two dialogues of the same id, in the first file's order"
    return list(zip(a.scored, b.scored, strict=False)), "the files' dialogues of the same place"


def _check_bounds(name: str, kept: list[tuple[float, float]], bounds: Bounds | None) -> None:
    if bounds is None:
        return
    outside = [value for pair in kept for value in pair if not bounds[0] <= value <= bounds[1]]
    if outside:
        raise AssessmentError(f"bounds: {name} has {outside[0]:g}, which is not within {bounds[0]:g} and {bounds[1]:g}")

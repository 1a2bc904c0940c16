"""Compares two systems without people: every scorer, one value per dialogue. Scores nothing itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.comparison.decision import LEVEL, POWER, find_needed_dialogues, find_smallest_difference
from turnscore_assessment.comparison.difference import LEAST_DIALOGUES, ROUNDS, Difference, measure_difference
from turnscore_assessment.comparison.length import LengthEffect, measure_length_effect
from turnscore_assessment.comparison.score_file import ScoredDialogue, ScoreFile, pair_dialogues
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import Floats
from turnscore_assessment.scoring.corrections import correct_benjamini_hochberg, correct_holm

PAIRED_SHARE = 0.5
"""Share of the smaller file's dialogues that need a counterpart for the files to count as paired. Chosen."""

Pairs = tuple[list[ScoredDialogue], list[ScoredDialogue]]


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Dialogues of each system that would decide at the observed difference; None: more than a million."""

    needed: int | None
    more: int | None
    """Dialogues needed beyond those at hand; 0 where the difference is decided."""
    needed_at_best: int | None
    """Dialogues needed if the difference is as large as the interval allows."""
    smallest_difference: float
    """The difference that the dialogues at hand show in four of five studies."""


@dataclass(frozen=True, kw_only=True)
class ScorerComparison:
    """One scorer's comparison of the two systems, or that of one detail."""

    scorer: str
    found: Difference
    p_holm: float | None
    p_benjamini_hochberg: float | None
    outlook: Outlook
    lengths: Sequence[LengthEffect]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every scorer's comparison, and what a reader must know of how it was made."""

    a: str
    b: str
    is_paired: bool
    method: str
    scorers: Sequence[ScorerComparison]
    notes: Sequence[str]


def compare_files(
    a: ScoreFile,
    b: ScoreFile,
    *,
    paired: bool | None = None,
    with_details: bool = False,
    scorers: Sequence[str] | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Comparison:
    """Compares two files of scored dialogues; `paired` None pairs them where most have a counterpart. TooFewError."""
    (left, right), is_paired, notes = _match(a, b, paired)
    columns = [[dialogue.values(with_details=with_details) for dialogue in side] for side in (left, right)]
    rows: list[tuple[str, Difference, list[LengthEffect]]] = []
    for name in _choose_names(_common_names(columns, notes), scorers):
        kept = _keep_scored(name, (left, right), columns, is_paired)
        if min(map(len, kept)) < LEAST_DIALOGUES:
            notes.append(f"{name}: fewer than {LEAST_DIALOGUES} dialogues of a system have a score; left out")
            continue
        scores = [np.array([columns[side][place][name] for place in kept[side]]) for side in (0, 1)]
        found = measure_difference(scores[0], scores[1], paired=is_paired, rounds=rounds, seed=seed)
        dialogues = [[side[place] for place in places] for side, places in zip((left, right), kept, strict=True)]
        rows.append((name, found, _measure_lengths(name, found, (scores[0], scores[1]), (dialogues[0], dialogues[1]))))
    if not rows:
        raise TooFewError(f"no scorer has {LEAST_DIALOGUES} dialogues of each system: {'; '.join(notes)}")
    return Comparison(
        a=str(a.path),
        b=str(b.path),
        is_paired=is_paired,
        method=_describe_method(is_paired, rounds, len(rows)),
        scorers=_correct(rows),
        notes=notes,
    )


def _match(a: ScoreFile, b: ScoreFile, paired: bool | None) -> tuple[Pairs, bool, list[str]]:
    """The dialogues to compare, whether they are pairs, and what was left out."""
    notes = [f"{each.path}: {each.failed} lines have no score but an error" for each in (a, b) if each.failed]
    pairs = list(pair_dialogues(a, b))
    smaller = min(len(a.scored), len(b.scored))
    if paired is None:
        paired = len(pairs) >= LEAST_DIALOGUES and len(pairs) >= PAIRED_SHARE * smaller
    if not paired:
        return (a.scored, b.scored), False, notes
    if len(pairs) < LEAST_DIALOGUES:
        raise TooFewError(
            f"{len(pairs)} dialogues have the same `id` in both files; {LEAST_DIALOGUES} are needed to pair"
        )
    alone = {each.path: len(each.scored) - len(pairs) for each in (a, b)}
    notes.extend(f"{path}: {count} dialogues have no counterpart; left out" for path, count in alone.items() if count)
    return ([left for left, _ in pairs], [right for _, right in pairs]), True, notes


def _common_names(columns: Sequence[Sequence[dict[str, float]]], notes: list[str]) -> list[str]:
    names = [dict.fromkeys(name for values in side for name in values) for side in columns]
    alone = sorted(names[0].keys() ^ names[1].keys())
    notes.extend(f"{name}: scored in one of the files only; left out" for name in alone)
    return [name for name in names[0] if name in names[1]]


def _choose_names(common: Sequence[str], scorers: Sequence[str] | None) -> Sequence[str]:
    if scorers is None:
        return common
    missing = [name for name in scorers if name not in common]
    if missing:
        raise AssessmentError(f"scorers: {missing[0]!r} is not scored in both files; choose from {', '.join(common)}")
    return [name for name in common if name.partition(".")[0] in scorers]


def _keep_scored(
    name: str, sides: Pairs, columns: Sequence[Sequence[dict[str, float]]], is_paired: bool
) -> tuple[list[int], list[int]]:
    """The places of the dialogues that have this score; of pairs, both must."""
    has = [[name in values for values in side] for side in columns]
    if is_paired:
        both = [place for place in range(len(sides[0])) if has[0][place] and has[1][place]]
        return both, both
    return [p for p, scored in enumerate(has[0]) if scored], [p for p, scored in enumerate(has[1]) if scored]


def _measure_lengths(
    name: str, found: Difference, scores: tuple[Floats, Floats], dialogues: Pairs
) -> list[LengthEffect]:
    scorer = name.partition(".")[0]
    lengths = [[dialogue.lengths(scorer) for dialogue in side] for side in dialogues]
    every = [known for side in lengths for known in side]
    kinds = [kind for kind in ("turns", "words", "tokens") if all(kind in known for known in every)]
    measured = [
        measure_length_effect(kind, found, scores, ([m[kind] for m in lengths[0]], [n[kind] for n in lengths[1]]))
        for kind in kinds
    ]
    return [effect for effect in measured if effect is not None]


def _correct(rows: Sequence[tuple[str, Difference, list[LengthEffect]]]) -> list[ScorerComparison]:
    """Each row with its corrected p-values; rows without a p-value do not belong to the family."""
    p_values = {place: found.p_value for place, (_, found, _) in enumerate(rows) if found.p_value is not None}
    holm = dict(zip(p_values, correct_holm(list(p_values.values())).tolist(), strict=True))
    hochberg = dict(zip(p_values, correct_benjamini_hochberg(list(p_values.values())).tolist(), strict=True))
    return [
        ScorerComparison(
            scorer=name,
            found=found,
            p_holm=holm.get(place),
            p_benjamini_hochberg=hochberg.get(place),
            outlook=_look_ahead(found),
            lengths=lengths,
        )
        for place, (name, found, lengths) in enumerate(rows)
    ]


def _look_ahead(found: Difference) -> Outlook:
    have = min(found.dialogues_a, found.dialogues_b)
    value, far = found.difference.value, max(abs(found.difference.low), abs(found.difference.high))
    needed = find_needed_dialogues(value, found.spread, paired=found.is_paired)
    more = 0 if found.is_decided else None if needed is None else max(1, needed - have)
    return Outlook(
        needed=needed,
        more=more,
        needed_at_best=find_needed_dialogues(far, found.spread, paired=found.is_paired) if np.isfinite(far) else None,
        smallest_difference=find_smallest_difference(found.spread, have, paired=found.is_paired),
    )


def _describe_method(is_paired: bool, rounds: int, scorers: int) -> str:
    kind = "dialogues of the same id in pairs" if is_paired else "dialogues as two independent samples"
    return (
        f"{kind}; a dialogue's score is the mean over its system turns; 95 % bootstrap-t interval and p-value from "
        f"{rounds} resamples of dialogues; Holm and Benjamini-Hochberg over {scorers} scores; dialogues needed: "
        f"two-sided t-test, level {LEVEL:g}, power {POWER:g}"
    )

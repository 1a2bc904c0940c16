"""Compares two systems without people: every scorer, one value per dialogue, and whether length explains a difference.

At equal length, unpaired: score = a + d * [system A] + b * length. Paired: difference of scores = d + b * difference of
lengths. The interval of d is t's with variances that may differ between dialogues (HC3, MacKinnon & White 1985).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from scipy import stats
from turnscore_client import TurnScoreError
from turnscore_wire import DialogueReply, Turn

from turnscore_assessment.command_line import CALLS_IN_FLIGHT, OpenClient, ask_all
from turnscore_assessment.comparison.difference import (
    LEAST_DIALOGUES,
    LEAST_PAIRS,
    LEVEL,
    POWER,
    ROUNDING,
    ROUNDS,
    SystemDifference,
    find_needed_dialogues,
    find_smallest_difference,
    measure_difference,
)
from turnscore_assessment.errors import AssessmentError, BadFileError, TooFewError
from turnscore_assessment.figures import CONFIDENCE, Floats, Interval
from turnscore_assessment.files import check_row, read_rows
from turnscore_assessment.ratings.scoring import correct_benjamini_hochberg, correct_holm

MOST_DIALOGUES = 100_000  # Most dialogues in one file. Chosen: far above any study, and a few hundred MB of memory.

LARGEST_SCORE = 1e100  # Largest magnitude of a score. Chosen: squares and sums of such numbers are still numbers.
MOST_TOKENS = 10**9  # Most tokens of one turn. Chosen: far above what any model reads.

Finite = Annotated[float, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Tokens(BaseModel):
    used: Annotated[int, Field(ge=0, le=MOST_TOKENS)]


class _Score(BaseModel):
    value: Finite
    details: dict[str, Finite] = {}
    tokens: _Tokens | None = None


class _ScoredTurn(BaseModel):
    scores: dict[str, _Score]


def _scored_only(turns: object) -> object:
    """Of a dialogue that is kept with its texts, the turns that have scores."""
    if not isinstance(turns, list):
        return turns
    return [turn for turn in turns if not isinstance(turn, dict) or "scores" in turn]


class _ScoreLine(BaseModel):
    """The keys that are read; all others are ignored."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: Name | None = None
    words: Annotated[Finite, Field(ge=0)] | None = None


class _DialogueLine(_ScoreLine):
    turns: Annotated[list[_ScoredTurn], Field(min_length=1), BeforeValidator(_scored_only)]


class _TurnLine(_ScoreLine):
    dialogue: Name | None = None
    scores: dict[str, _Score]


class _UnscoredLine(_ScoreLine):
    turns: Annotated[list[Turn], Field(min_length=1)]


@dataclass(kw_only=True)
class ScoredDialogue:
    """A dialogue's scores: those of each system turn, by scorer; and what is known of its length."""

    name: str | None
    line: int
    scores: list[dict[str, _Score]]
    words: float | None = None  # Mean words per system turn, where the text is known.

    def values(self, *, with_details: bool) -> dict[str, float]:
        """The mean over its turns, by scorer, and by `scorer.detail` if asked for."""
        found: dict[str, list[float]] = {}
        for turn in self.scores:
            for scorer, score in turn.items():
                found.setdefault(scorer, []).append(score.value)
                for detail, value in score.details.items() if with_details else ():
                    found.setdefault(f"{scorer}.{detail}", []).append(value)
        return {name: float(np.mean(values)) for name, values in found.items()}

    def lengths(self, scorer: str) -> dict[str, float]:
        """The known lengths: `turns`, `tokens` that the scorer read per turn, `words` per turn."""
        read = [turn[scorer].tokens for turn in self.scores if scorer in turn]
        known = [tokens.used for tokens in read if tokens is not None]
        lengths = {"turns": float(len(self.scores))}
        if read and len(known) == len(read):
            lengths["tokens"] = float(np.mean(known))
        return lengths if self.words is None else {**lengths, "words": self.words}


@dataclass(frozen=True, kw_only=True)
class UnscoredDialogue:
    """A dialogue whose turns a service is still to score."""

    name: str | None
    line: int
    turns: list[Turn]

    @property
    def words(self) -> float:
        """Mean words per system turn."""
        return float(np.mean([len(turn.text.split()) for turn in self.turns if turn.speaker == "system"]))


@dataclass(kw_only=True)
class ScoreFile:
    """What a file holds. `failed` counts the lines that have an `error` in place of scores."""

    path: Path
    scored: list[ScoredDialogue] = field(default_factory=list)
    unscored: list[UnscoredDialogue] = field(default_factory=list)
    failed: int = 0


def read_score_file(path: Path) -> ScoreFile:
    """The file's dialogues in its order; BadFileError names the file, the line and the field."""
    found = ScoreFile(path=path)
    groups: dict[str, ScoredDialogue] = {}
    names: set[str] = set()
    for number, fields in read_rows(path):
        if "error" in fields:
            found.failed += 1
            continue
        line: _ScoreLine = check_row(_find_form(fields, path, number).model_validate, path, number, fields)
        if line.id is not None and line.id in names:
            raise BadFileError(path, number, f"id: {line.id!r} was already used")
        names |= {line.id} if line.id is not None else set()
        _add(found, groups, line, number)
        if len(found.scored) + len(found.unscored) > MOST_DIALOGUES:
            raise BadFileError(path, number, f"the file holds more than {MOST_DIALOGUES:,} dialogues")
    if not found.scored and not found.unscored:
        raise BadFileError(path, 0, "has no dialogue with scores or turns")
    return found


def _add(found: ScoreFile, groups: dict[str, ScoredDialogue], line: _ScoreLine, number: int) -> None:
    if isinstance(line, _UnscoredLine):
        if all(turn.speaker == "user" or not turn.text.strip() for turn in line.turns):
            raise BadFileError(found.path, number, "turns: there is no system turn to score")
        found.unscored.append(UnscoredDialogue(name=line.id, line=number, turns=line.turns))
    elif isinstance(line, _DialogueLine):
        scores = [turn.scores for turn in line.turns]
        found.scored.append(ScoredDialogue(name=line.id, line=number, scores=scores, words=line.words))
    elif isinstance(line, _TurnLine):
        if line.dialogue is not None and line.dialogue in groups:
            groups[line.dialogue].scores.append(line.scores)
            return
        dialogue = ScoredDialogue(name=line.dialogue or line.id, line=number, scores=[line.scores])
        if line.dialogue is not None:
            groups[line.dialogue] = dialogue
        found.scored.append(dialogue)


def _find_form(fields: dict[str, Any], path: Path, number: int) -> type[_ScoreLine]:
    if "scores" in fields:
        return _TurnLine
    turns = fields.get("turns")
    if not isinstance(turns, list) or not turns:
        raise BadFileError(path, number, "has neither `scores` nor `turns`")
    return _DialogueLine if any(isinstance(turn, dict) and "scores" in turn for turn in turns) else _UnscoredLine


def read_reply(reply: DialogueReply, asked: UnscoredDialogue) -> ScoredDialogue:
    """A service's reply for a dialogue, as if the file had held it."""
    scores = [_ScoredTurn.model_validate(turn, from_attributes=True).scores for turn in reply.turns]
    return ScoredDialogue(name=asked.name, line=asked.line, scores=scores, words=asked.words)


def pair_dialogues(a: ScoreFile, b: ScoreFile) -> Iterator[tuple[ScoredDialogue, ScoredDialogue]]:
    """Pairs of dialogues with the same name in both files, in the first file's order."""
    others = {dialogue.name: dialogue for dialogue in b.scored if dialogue.name is not None}
    for dialogue in a.scored:
        if dialogue.name is not None and dialogue.name in others:
            yield dialogue, others[dialogue.name]


class UnscoredError(AssessmentError):
    """The service did not score a dialogue; the message says which and why."""


def score_file(found: ScoreFile, open_client: OpenClient, scorers: Sequence[str] | None) -> None:
    """Moves the file's unscored dialogues to the scored ones, in the file's order. UnscoredError names the line."""
    if not found.unscored:
        return
    answered = asyncio.run(_score(found, open_client, scorers))
    found.scored = sorted([*found.scored, *answered], key=lambda dialogue: dialogue.line)
    found.unscored = []


async def _score(found: ScoreFile, open_client: OpenClient, scorers: Sequence[str] | None) -> list[ScoredDialogue]:
    async with open_client() as client:

        async def ask(dialogue: UnscoredDialogue) -> ScoredDialogue:
            spoken = [turn for turn in dialogue.turns if turn.speaker == "user" or turn.text.strip()]
            try:
                return read_reply(await client.score_dialogue(spoken, scorers=scorers), dialogue)
            except TurnScoreError as error:
                raise UnscoredError(f"{found.path}, line {dialogue.line}: {error}") from None

        return await ask_all(ask, found.unscored, CALLS_IN_FLIGHT)


LARGE_SHARE = 0.5  # Share of a difference that disappears at equal length, from which the report warns. Chosen.


@dataclass(frozen=True, kw_only=True)
class LengthEffect:
    """One kind of length, and one score. `at_equal_length` is None where length and system cannot be separated."""

    kind: str
    mean_a: float
    mean_b: float
    at_equal_length: Interval | None
    # The share of the difference that disappears at equal length; below 0 if it grows, above 1 if it reverses.
    explained: float | None
    warning: str | None


def measure_length_effect(
    kind: str,
    found: SystemDifference,
    scores: tuple[ArrayLike, ArrayLike],
    lengths: tuple[ArrayLike, ArrayLike],
    *,
    is_decided: bool,
    tests: int = 1,
) -> LengthEffect | None:
    """The difference that remains at equal lengths; None where all lengths are equal.

    `is_decided` is the verdict on the difference; a difference at equal length only must hold for so many `tests`.
    """
    (x, y), (m, n) = ([np.asarray(each, dtype=np.float64) for each in pair] for pair in (scores, lengths))
    every = np.concatenate([m, n])
    if np.ptp(every) <= ROUNDING * np.abs(every).max():
        return None
    if found.is_paired:
        design, values = np.column_stack([np.ones_like(m), m - n]), x - y
    else:
        is_a = np.repeat([1.0, 0.0], [len(x), len(y)])
        design, values = np.column_stack([is_a, np.ones_like(is_a), every - every.mean()]), np.concatenate([x, y])
    adjusted, p_value = _regress(design, values)
    value = found.difference.value
    share = None if adjusted is None or not value else 1 - adjusted.value / value
    if adjusted is None:
        is_apart = is_decided and m.mean() != n.mean()
        warning = f"{kind}: length and system cannot be separated" if is_apart else None
    elif is_decided:
        warning = _find_warning(kind, found, adjusted, share)
    else:
        is_new = p_value * tests < LEVEL
        warning = f"{kind}: only at equal length is there a visible difference" if is_new else None
    return LengthEffect(
        kind=kind,
        mean_a=float(m.mean()),
        mean_b=float(n.mean()),
        at_equal_length=adjusted,
        explained=share,
        warning=warning,
    )


def _regress(design: Floats, values: Floats) -> tuple[Interval | None, float]:
    """The first coefficient with interval and p; None where columns determine each other or too few rows are left."""
    freedom = len(values) - design.shape[1]
    scaled = design / np.maximum(np.abs(design).max(axis=0), 1e-300)
    if freedom < 1 or np.linalg.matrix_rank(scaled, tol=1e-9 * len(values)) < design.shape[1]:
        return None, 1.0
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ values
    leverages = np.einsum("ij,jk,ik->i", design, inverse, design)
    rests = (values - design @ coefficients) / np.maximum(1 - leverages, 1e-9)
    weighted = design * rests[:, None]
    error = float(np.sqrt((inverse @ (weighted.T @ weighted) @ inverse)[0, 0]))
    value, half = float(coefficients[0]), float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    p_value = 2 * float(stats.t.sf(abs(value) / error, freedom)) if error else float(not value)
    return Interval(value=value, low=value - half, high=value + half), p_value


def _find_warning(kind: str, found: SystemDifference, adjusted: Interval, share: float | None) -> str | None:
    """What length does to a difference that is decided."""
    if adjusted.low <= 0 <= adjusted.high:
        return f"{kind}: at equal length there is no visible difference"
    if adjusted.value * found.difference.value < 0:
        return f"{kind}: at equal length the difference is reversed ({adjusted.value:+.3f})"
    if share is not None and share > LARGE_SHARE:
        return f"{kind}: length explains {share:.0%} of the difference"
    return None


# Share of the smaller file's dialogues that need a counterpart for the files to count as paired. Chosen.
PAIRED_SHARE = 0.5

# Fewest arrangements for each score. Chosen: Holm's p can then fall to .01, however many scores there are.
LEAST_ROUNDS = 200

Pairs = tuple[list[ScoredDialogue], list[ScoredDialogue]]


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Dialogues of each system that would decide at the observed difference; None: more than a million.

    For several scores, the level of the planned test is divided by their number.
    """

    needed: int | None
    more: int | None  # Dialogues needed beyond those at hand; 0 where the difference is decided.
    needed_at_best: int | None  # Dialogues needed if the difference is as large as the interval allows.
    smallest_difference: float  # The difference that the dialogues at hand show in four of five studies.


@dataclass(frozen=True, kw_only=True)
class ScorerComparison:
    """One scorer's comparison of the two systems, or that of one detail."""

    scorer: str
    found: SystemDifference
    p_holm: float | None
    p_benjamini_hochberg: float | None
    # Whether the systems differ: Holm's p is below .05, so that of all scorers' verdicts hardly any is false.
    is_decided: bool
    outlook: Outlook
    lengths: Sequence[LengthEffect]


@dataclass(frozen=True, kw_only=True)
class SystemComparison:
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
) -> SystemComparison:
    """Compares two files of scored dialogues; `paired` None pairs them where most have a counterpart. TooFewError."""
    (left, right), is_paired, notes = _match(a, b, paired)
    columns = [[dialogue.values(with_details=with_details) for dialogue in side] for side in (left, right)]
    alone = sorted(_names_of(columns[0]).keys() ^ _names_of(columns[1]).keys())
    notes.extend(f"{name}: scored in one of the files only; left out" for name in alone)
    kept: dict[str, Pairs] = {}
    scores: dict[str, tuple[Floats, Floats]] = {}
    least = LEAST_PAIRS if is_paired else LEAST_DIALOGUES
    for name in choose_names(columns, scorers):
        a_has, b_has = (np.array([name in values for values in side]) for side in columns)
        places = [np.flatnonzero(a_has & b_has)] * 2 if is_paired else [np.flatnonzero(a_has), np.flatnonzero(b_has)]
        if min(map(len, places)) < least:
            notes.append(f"{name}: fewer than {least} dialogues of a system have a score; left out")
            continue
        kept[name] = [left[place] for place in places[0]], [right[place] for place in places[1]]
        first, second = (np.array([side[p][name] for p in own]) for side, own in zip(columns, places, strict=True))
        scores[name] = first, second
    if not kept:
        raise TooFewError(f"no scorer has {least} dialogues of each system: {'; '.join(notes)}")
    rounds = max(rounds, LEAST_ROUNDS * len(kept))
    rows = [
        replace(row, lengths=_measure_lengths(row, scores[row.scorer], kept[row.scorer], len(kept)))
        for row in compare_scores(scores, paired=is_paired, rounds=rounds, seed=seed)
    ]
    return SystemComparison(
        a=str(a.path),
        b=str(b.path),
        is_paired=is_paired,
        method=_describe_method(is_paired, rounds, len(rows)),
        scorers=rows,
        notes=notes,
    )


def compare_scores(
    scores: Mapping[str, tuple[Floats, Floats]], *, paired: bool, rounds: int = ROUNDS, seed: int = 0
) -> list[ScorerComparison]:
    """Each scorer's values of A's and of B's dialogues compared, with the verdicts; knows no lengths."""
    found = {name: measure_difference(x, y, paired=paired, rounds=rounds, seed=seed) for name, (x, y) in scores.items()}
    # Scores that are the same everywhere have no p-value and do not belong to the family.
    p_values = {name: each.p_value for name, each in found.items() if each.p_value is not None}
    holm = dict(zip(p_values, correct_holm(list(p_values.values())).tolist(), strict=True))
    hochberg = dict(zip(p_values, correct_benjamini_hochberg(list(p_values.values())).tolist(), strict=True))
    return [
        ScorerComparison(
            scorer=name,
            found=each,
            p_holm=holm.get(name),
            p_benjamini_hochberg=hochberg.get(name),
            is_decided=holm.get(name, 1.0) < LEVEL,
            outlook=_look_ahead(each, holm.get(name, 1.0) < LEVEL, len(found)),
            lengths=(),
        )
        for name, each in found.items()
    ]


def _match(a: ScoreFile, b: ScoreFile, paired: bool | None) -> tuple[Pairs, bool, list[str]]:
    """The dialogues to compare, whether they are pairs, and what was left out."""
    notes = [f"{each.path}: {each.failed} lines have no score but an error" for each in (a, b) if each.failed]
    pairs = list(pair_dialogues(a, b))
    smaller = min(len(a.scored), len(b.scored))
    if paired is None:
        paired = len(pairs) >= LEAST_PAIRS and len(pairs) >= PAIRED_SHARE * smaller
    if not paired:
        return (a.scored, b.scored), False, notes
    if len(pairs) < LEAST_PAIRS:
        raise TooFewError(f"{len(pairs)} dialogues have the same `id` in both files; {LEAST_PAIRS} are needed to pair")
    alone = {each.path: len(each.scored) - len(pairs) for each in (a, b)}
    notes.extend(f"{path}: {count} dialogues have no counterpart; left out" for path, count in alone.items() if count)
    return ([left for left, _ in pairs], [right for _, right in pairs]), True, notes


def _names_of(side: Sequence[Mapping[str, float]]) -> dict[str, None]:
    return dict.fromkeys(name for values in side for name in values)


def choose_names(columns: Sequence[Sequence[Mapping[str, float]]], scorers: Sequence[str] | None) -> list[str]:
    """The names of the scores that both sides have, those of these `scorers`. AssessmentError for another scorer."""
    first, second = map(_names_of, columns)
    common = [name for name in first if name in second]
    for name in scorers or ():
        if name not in common:
            raise AssessmentError(f"scorers: {name!r} is not scored in both files; choose from {', '.join(common)}")
    return [name for name in common if scorers is None or name.partition(".")[0] in scorers]


def _measure_lengths(
    row: ScorerComparison, scores: tuple[Floats, Floats], dialogues: Pairs, scorers: int
) -> list[LengthEffect]:
    scorer = row.scorer.partition(".")[0]
    lengths = [[dialogue.lengths(scorer) for dialogue in side] for side in dialogues]
    every = [known for side in lengths for known in side]
    kinds = [kind for kind in ("turns", "words", "tokens") if all(kind in known for known in every)]
    measured = [
        measure_length_effect(
            kind,
            row.found,
            scores,
            ([m[kind] for m in lengths[0]], [n[kind] for n in lengths[1]]),
            is_decided=row.is_decided,
            tests=scorers * len(kinds),
        )
        for kind in kinds
    ]
    return [effect for effect in measured if effect is not None]


def _look_ahead(found: SystemDifference, is_decided: bool, scorers: int) -> Outlook:
    have = min(found.dialogues_a, found.dialogues_b)
    value, far = found.difference.value, max(abs(found.difference.low), abs(found.difference.high))
    level, paired = LEVEL / scorers, found.is_paired
    needed = find_needed_dialogues(value, found.spread, paired=paired, level=level)
    return Outlook(
        needed=needed,
        more=0 if is_decided else None if needed is None else max(1, needed - have),
        needed_at_best=find_needed_dialogues(far, found.spread, paired=paired, level=level)
        if np.isfinite(far)
        else None,
        smallest_difference=find_smallest_difference(found.spread, have, paired=paired, level=level),
    )


def _describe_method(is_paired: bool, rounds: int, scorers: int) -> str:
    kind = "dialogues of the same id in pairs" if is_paired else "dialogues as two independent samples"
    level = f"{LEVEL:g}" if scorers == 1 else f"{LEVEL:g} / {scorers}"
    return (
        f"{kind}; a dialogue's score is the mean over its system turns; p-value of a permutation test of t with "
        f"{rounds} arrangements and the 95 % interval that agrees with it; Holm and Benjamini-Hochberg over {scorers} "
        f"scores; decided: Holm's p below {LEVEL:g}; dialogues needed: two-sided t-test, level {level}, power {POWER:g}"
    )

"""Compares systems, every two of them: every scorer, one value per dialogue, and whether length explains a difference.

At equal length, unpaired: score = a + d * [system A] + b * length. Paired: difference of scores = d + b * difference of
lengths. The interval of d is t's with variances that may differ between dialogues (HC3, MacKinnon & White 1985).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from turnscore_client import TurnScoreError
from turnscore_client._async import AsyncCalls
from turnscore_wire import DialogueReply, Turn
from typer import Option

from turnscore_assessment.command_line import SeedOption, ask_all
from turnscore_assessment.comparison.difference import (
    LEAST_DIALOGUES,
    LEAST_PAIRS,
    LEVEL,
    POWER,
    ROUNDING,
    ROUNDS,
    SystemDifference,
    find_least_dialogues,
    find_needed_dialogues,
    find_smallest_difference,
    measure_difference,
)
from turnscore_assessment.errors import AssessmentError, BadFileError, TooFewError
from turnscore_assessment.figures import CONFIDENCE, Floats, Interval
from turnscore_assessment.files import check_row, read_rows
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_assessment.ratings.scoring import correct_benjamini_hochberg, correct_holm, judge_study

MOST_DIALOGUES = 100_000  # Most dialogues in one file. Chosen: far above any study, and a few hundred MB of memory.

LARGEST_SCORE = 1e100  # Largest magnitude of a score. Chosen: squares and sums of such numbers are still numbers.
MOST_TOKENS = 10**9  # Most tokens of one turn. Chosen: far above what any model reads.

Finite = Annotated[float, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Tokens(BaseModel):
    used: Annotated[int, Field(ge=0, le=MOST_TOKENS)]


class _Score(BaseModel):
    value: Finite
    label: str | None = None
    details: dict[str, Finite] = {}
    tokens: _Tokens | None = None


class _ScoredTurn(BaseModel):
    scores: dict[str, _Score]


def _scored_only(turns: object) -> object:
    """Of a dialogue that is kept with its texts, the turns that have scores."""
    if not isinstance(turns, list):
        return turns
    return [turn for turn in turns if not isinstance(turn, dict) or "scores" in turn]


def _check_spoken(turns: list[Turn]) -> list[Turn]:
    if all(turn.speaker == "user" or not turn.text.strip() for turn in turns):
        raise ValueError("there is no system turn to score")
    return turns


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
    turns: Annotated[list[Turn], Field(min_length=1), AfterValidator(_check_spoken)]


@dataclass(kw_only=True)
class ScoredDialogue:
    """A dialogue's scores: those of each system turn, by scorer; and what is known of its length."""

    name: str | None = None
    line: int = 0
    scores: list[dict[str, _Score]] = field(default_factory=list)
    words: float | None = None  # Mean words per system turn, where the text is known.
    turns: list[Turn] = field(default_factory=list)  # Those that are still to be scored.

    def take(self, reply: DialogueReply) -> None:
        """Takes the scores of a reply, as if the file had held them."""
        self.scores = [_ScoredTurn.model_validate(turn, from_attributes=True).scores for turn in reply.turns]

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


@dataclass(kw_only=True)
class ScoreFile:
    """What a file holds. `failed` counts the lines that have an `error` in place of scores."""

    path: Path
    scored: list[ScoredDialogue] = field(default_factory=list)
    failed: int = 0

    @property
    def unscored(self) -> list[ScoredDialogue]:
        """The dialogues that a service, or an engine, is still to score."""
        return [dialogue for dialogue in self.scored if not dialogue.scores]


def read_score_file(path: Path) -> ScoreFile:
    """The file's dialogues in its order; BadFileError names the file, the line and the field."""
    found = ScoreFile(path=path)
    groups: dict[str | None, ScoredDialogue] = {}
    names: set[str] = set()
    for number, fields in read_rows(path):
        if "error" in fields:
            found.failed += 1
            continue
        line: _ScoreLine = check_row(_find_form(fields, path, number).model_validate, path, number, fields)
        if line.id is not None and line.id in names:
            raise BadFileError(path, number, f"id: {line.id!r} was already used")
        names |= {line.id} if line.id is not None else set()
        if isinstance(line, _TurnLine) and line.dialogue in groups:
            groups[line.dialogue].scores.append(line.scores)
            continue
        found.scored.append(_build(line, number))
        if isinstance(line, _TurnLine) and line.dialogue is not None:
            groups[line.dialogue] = found.scored[-1]
        if len(found.scored) > MOST_DIALOGUES:
            raise BadFileError(path, number, f"the file holds more than {MOST_DIALOGUES:,} dialogues")
    if not found.scored:
        raise BadFileError(path, 0, "has no dialogue with scores or turns")
    return found


def _build(line: _ScoreLine, number: int) -> ScoredDialogue:
    built = ScoredDialogue(name=line.id, line=number, words=line.words)
    if isinstance(line, _UnscoredLine):
        built.words = float(np.mean([len(turn.text.split()) for turn in line.turns if turn.speaker == "system"]))
        built.turns = [turn for turn in line.turns if turn.speaker == "user" or turn.text.strip()]
    elif isinstance(line, _DialogueLine):
        built.scores = [turn.scores for turn in line.turns]
    elif isinstance(line, _TurnLine):
        built.name, built.words, built.scores = line.dialogue or line.id, None, [line.scores]
    return built


def _find_form(fields: dict[str, Any], path: Path, number: int) -> type[_ScoreLine]:
    if "scores" in fields:
        return _TurnLine
    turns = fields.get("turns")
    if not isinstance(turns, list) or not turns:
        raise BadFileError(path, number, "has neither `scores` nor `turns`")
    return _DialogueLine if any(isinstance(turn, dict) and "scores" in turn for turn in turns) else _UnscoredLine


def pair_dialogues(a: ScoreFile, b: ScoreFile) -> Iterator[tuple[ScoredDialogue, ScoredDialogue]]:
    """Pairs of dialogues with the same name in both files, in the first file's order."""
    others = {dialogue.name: dialogue for dialogue in b.scored if dialogue.name is not None}
    for dialogue in a.scored:
        if dialogue.name is not None and dialogue.name in others:
            yield dialogue, others[dialogue.name]


class UnscoredError(AssessmentError):
    """The service did not score a dialogue; the message says which and why."""


async def score_files(files: Iterable[ScoreFile], client: AsyncCalls, scorers: list[str] | None, at_once: int) -> None:
    """Has the unscored dialogues of all files scored, so many at a time. UnscoredError names the line."""

    async def ask(asked: tuple[ScoreFile, ScoredDialogue]) -> None:
        found, dialogue = asked
        try:
            dialogue.take(await client.score_dialogue(dialogue.turns, scorers=scorers))
        except TurnScoreError as error:
            raise UnscoredError(f"{found.path}, line {dialogue.line}: {error}") from None

    async with client:
        await ask_all(ask, [(each, dialogue) for each in files for dialogue in each.unscored], at_once)


LARGE_SHARE = 0.5  # Share of a difference that disappears at equal length, from which the report warns.


@dataclass(frozen=True)
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
    return LengthEffect(kind, float(m.mean()), float(n.mean()), adjusted, share, warning)


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
    value, half = float(coefficients[0]), float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    p_value = 2 * float(scipy.stats.t.sf(abs(value) / error, freedom)) if error else float(not value)
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


# Share of the smaller file's dialogues that need a counterpart for the files to count as paired.
PAIRED_SHARE = 0.5

# Fewest arrangements for each test. Chosen: Holm's p can then fall to .01, however many tests there are.
LEAST_ROUNDS = 200

Pairs = tuple[list[ScoredDialogue], list[ScoredDialogue]]
PairKey = tuple[str, str, str]  # A score and two systems.
Key = TypeVar("Key")

Correction = Literal["holm", "bh"]
CORRECTIONS: Mapping[Correction, str] = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
RATING = "rating"  # The score that a worker's ratings are.


@dataclass(frozen=True)
class Outlook:
    """Dialogues of each system that would decide at the observed difference; None: more than a million.

    For several tests, the level of the planned test is divided by their number.
    """

    needed: int | None
    more: int | None  # Dialogues needed beyond those at hand; 0 where the difference is decided.
    needed_at_best: int | None  # Dialogues needed if the difference is as large as the interval allows.
    smallest_difference: float  # The difference that the dialogues at hand show in four of five studies.


@dataclass(frozen=True)
class PairComparison:
    """Two systems compared in one score, or in one detail of it."""

    scorer: str
    a: str
    b: str
    found: SystemDifference
    p_corrected: float | None
    # Whether the systems differ: the corrected p is below .05.
    is_decided: bool
    outlook: Outlook
    lengths: Sequence[LengthEffect]


@dataclass(frozen=True)
class SystemFigures:
    """A system's means over its dialogues, with intervals, by score; and what is only counted."""

    system: str
    source: str
    dialogues: int
    figures: Mapping[str, Interval]


@dataclass(frozen=True)
class SystemsComparison:
    """Every pair of systems in every score, and what a reader must know of how it was made."""

    systems: Sequence[SystemFigures]
    pairs: Sequence[PairComparison]
    correction: Correction
    method: str
    notes: Sequence[str]


@dataclass(frozen=True)
class _Sample:
    """Two systems' dialogues that have a score, and the values; `is_paired`: place by place."""

    dialogues: Pairs
    values: tuple[Floats, Floats]
    is_paired: bool


def name_systems(paths: Sequence[Path]) -> list[str]:
    """The files' names without their endings; with their folders, or numbers, where two are the same."""
    for names in ([path.name.partition(".")[0] or path.name for path in paths], list(map(str, paths))):
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, start=1)]


def read_rated_systems(path: Path, systems: Sequence[str] = ()) -> tuple[dict[str, ScoreFile], str]:
    """A study's systems, or these of them, in which each worker who passes is a dialogue; and a note of who passes.

    A worker's `rating` of a system is the mean over criteria, 0 to 100 and negative ones reversed; details are those of
    the criteria. AssessmentError names a system that the study has not.
    """
    study = judge_study(read_ratings(path))
    names = study.ratings.description.names
    found = {name: ScoreFile(path=path) for name in systems or study.table.systems}
    for name in found:
        if name not in study.table.systems:
            raise AssessmentError(f"{path} rates no system {name!r}, but {', '.join(study.table.systems)}")
        number = study.table.systems.index(name)
        for worker in study.raters:
            rows = study.chosen & (study.table.worker_of == worker) & (study.table.system_of == number)
            if rows.any():
                means = study.table.ratings[rows].mean(axis=0)
                score = _Score(value=float(means.mean()), details=dict(zip(names, means.tolist(), strict=True)))
                worker_name = study.table.workers[worker]
                found[name].scored.append(ScoredDialogue(name=worker_name, scores=[{RATING: score}]))
    return found, f"{RATING}: {len(study.raters)} of {len(study.workers)} workers of {path} pass the quality control"


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """How systems are compared; options of the command."""

    paired: Annotated[
        bool | None, Option("--pair/--no-pair", help="Pair dialogues by `id`; default: if most have a counterpart.")
    ] = None
    details: Annotated[bool, Option("--details", help="Compare the scores' details, too.")] = False
    correction: Annotated[Correction, Option(help="Holm's for all tests, or Benjamini-Hochberg's.")] = "holm"
    rounds: Annotated[int, Option(min=200, max=100_000, help="Resamples of dialogues.")] = ROUNDS
    seed: SeedOption = 0


def compare_systems(
    files: Mapping[str, ScoreFile],
    rated: Mapping[str, ScoreFile],
    scorers: Sequence[str] | None,
    options: ComparisonOptions,
    notes: Sequence[str] = (),
) -> SystemsComparison:
    """Compares every two systems in every score.

    `rated` are systems of the same names by people's ratings; `notes` come before those that are made here. TooFewError
    where there is nothing to compare.
    """
    failed = [each for each in files.values() if each.failed]
    notes = [*notes, *(f"{each.path}: {each.failed} lines have no score but an error" for each in failed)]
    unrated = [name for name, each in rated.items() if not each.scored]
    notes += [f"{RATING}: no worker who passes rated {name}; left out" for name in unrated]
    rated = {name: each for name, each in rated.items() if each.scored}
    samples: dict[PairKey, _Sample] = {}
    figures: dict[str, dict[str, Interval]] = {name: {} for name in (*files, *rated)}
    for systems, chosen in ((files, scorers), (rated, None)):
        if systems:
            columns = {
                name: [dialogue.values(with_details=options.details) for dialogue in each.scored]
                for name, each in systems.items()
            }
            sides = [set(_names_of(side)) for side in columns.values()]
            alone = sorted(sides[0].union(*sides) - sides[0].intersection(*sides))
            notes += [f"{name}: not scored in all files; left out" for name in alone]
            kept = choose_names(list(columns.values()), chosen)
            for name, column in columns.items():
                figures[name] |= _measure_system(systems[name], column, kept)
            samples |= _draw_samples(systems, columns, kept, options.paired if systems is files else None, notes)
    if not samples:
        raise TooFewError(f"no scorer has enough dialogues of two systems: {'; '.join(notes)}")
    rounds = max(options.rounds, LEAST_ROUNDS * len(samples))
    found = {
        key: measure_difference(*each.values, paired=each.is_paired, rounds=rounds, seed=options.seed)
        for key, each in samples.items()
    }
    # Differences of scores that are the same everywhere have no p-value.
    known = {key: each.p_value for key, each in found.items() if each.p_value is not None}
    correct = correct_holm if options.correction == "holm" else correct_benjamini_hochberg
    p_values = dict(zip(known, correct(list(known.values())).tolist(), strict=True))
    sources, pairs = {**rated, **files}, []
    for key, each in found.items():
        p_corrected = p_values.get(key)
        is_decided = p_corrected is not None and p_corrected < LEVEL
        outlook = _look_ahead(each, is_decided, len(samples))
        lengths = _measure_lengths(key[0], each, samples[key], is_decided, len(samples))
        pairs.append(PairComparison(*key, each, p_corrected, is_decided, outlook, lengths))
    described = [
        SystemFigures(name, str(sources[name].path), len(sources[name].scored), each) for name, each in figures.items()
    ]
    method = _describe_method({key: each.is_paired for key, each in samples.items()}, rounds, options.correction)
    return SystemsComparison(described, pairs, options.correction, method, notes)


def _measure_system(
    file: ScoreFile, columns: Sequence[Mapping[str, float]], names: Sequence[str]
) -> dict[str, Interval]:
    """Means over dialogues; the share of dialogues with a `low` turn; lengths."""
    figures = {name: bound_mean([values[name] for values in columns if name in values]) for name in names}
    for name in names:
        labels = [{turn[name].label for turn in dialogue.scores if name in turn} - {None} for dialogue in file.scored]
        if any(labels):
            figures[f"{name}: share with a low turn"] = bound_mean([float("low" in each) for each in labels if each])
    if any(len(dialogue.scores) > 1 for dialogue in file.scored):
        figures["turns"] = bound_mean([float(len(dialogue.scores)) for dialogue in file.scored])
    if words := [dialogue.words for dialogue in file.scored if dialogue.words is not None]:
        figures["words per turn"] = bound_mean(words)
    return figures


def bound_mean(values: Sequence[float]) -> Interval:
    """The mean with its 95 % interval: Student's t, or for zeros and ones Wilson's (1927), which small counts need.

    No interval where there are fewer than LEAST_DIALOGUES values, or all are the same number between 0 and 1.
    """
    found = np.asarray(values, dtype=np.float64)
    mean, count = float(found.mean()), len(found)
    if count < LEAST_DIALOGUES:
        return Interval(mean)
    if np.isin(found, (0, 1)).all():
        share = scipy.stats.binomtest(int(found.sum()), count).proportion_ci(CONFIDENCE, method="wilson")
        return Interval(mean, float(share.low), float(share.high))
    if np.ptp(found) <= ROUNDING * np.abs(found).max():
        return Interval(mean)
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * scipy.stats.sem(found))
    low, high = (0.0, 1.0) if found.min() >= 0 and found.max() <= 1 else (-np.inf, np.inf)
    return Interval(mean, max(mean - half, low), min(mean + half, high))


def _draw_samples(
    systems: Mapping[str, ScoreFile],
    columns: Mapping[str, Sequence[Mapping[str, float]]],
    names: Sequence[str],
    paired: bool | None,
    notes: list[str],
) -> dict[PairKey, _Sample]:
    """Every two systems' dialogues to compare, by score; notes say what was left out."""
    both = list(combinations(systems, 2))
    counts = {pair: sum(1 for _ in pair_dialogues(*(systems[name] for name in pair))) for pair in both}
    smaller = {pair: min(len(systems[name].scored) for name in pair) for pair in both}
    if paired is None:
        paired = all(count >= max(LEAST_PAIRS, PAIRED_SHARE * smaller[pair]) for pair, count in counts.items())
    for pair, count in counts.items() if paired else ():
        if count < LEAST_PAIRS:
            files = f"{systems[pair[0]].path} and {systems[pair[1]].path}"
            raise TooFewError(f"{count} dialogues have the same `id` in {files}; {LEAST_PAIRS} are needed to pair")
        lonely = {name: len(systems[name].scored) - count for name in pair}
        notes.extend(
            f"{systems[name].path}: {left} dialogues have no counterpart in {' or '.join(set(pair) - {name})}; left out"
            for name, left in lonely.items()
            if left
        )
    least, found = LEAST_PAIRS if paired else LEAST_DIALOGUES, {}
    for scorer in names:
        scored = {
            name: [
                (each, values[scorer])
                for each, values in zip(file.scored, columns[name], strict=True)
                if scorer in values
            ]
            for name, file in systems.items()
        }
        for pair in both:
            sides = [scored[name] for name in pair]
            if paired:
                others = {each.name: (each, value) for each, value in sides[1]}
                shared = [each for each in sides[0] if each[0].name is not None and each[0].name in others]
                sides = [shared, [others[each.name] for each, _ in shared]]
            if min(map(len, sides)) < least:
                notes.append(f"{scorer}: {' or '.join(pair)} has fewer than {least} dialogues with a score; left out")
                continue
            left, right = ([each for each, _ in side] for side in sides)
            x, y = (np.array([value for _, value in side]) for side in sides)
            found[scorer, *pair] = _Sample((left, right), (x, y), paired)
    return found


def _names_of(side: Sequence[Mapping[str, float]]) -> dict[str, None]:
    return dict.fromkeys(name for values in side for name in values)


def choose_names(columns: Sequence[Sequence[Mapping[str, float]]], scorers: Sequence[str] | None) -> list[str]:
    """The names of the scores that all sides have, those of these `scorers`. AssessmentError for another scorer."""
    first, *others = map(_names_of, columns)
    common = [name for name in first if all(name in other for other in others)]
    for name in scorers or ():
        if name not in common:
            raise AssessmentError(f"scorers: {name!r} is not scored in all files; choose from {', '.join(common)}")
    return [name for name in common if scorers is None or name.partition(".")[0] in scorers]


def _measure_lengths(
    name: str, found: SystemDifference, sample: _Sample, is_decided: bool, tests: int
) -> list[LengthEffect]:
    scorer = name.partition(".")[0]
    lengths = [[dialogue.lengths(scorer) for dialogue in side] for side in sample.dialogues]
    every = [known for side in lengths for known in side]
    kinds = [kind for kind in ("turns", "words", "tokens") if all(kind in known for known in every)]
    measured = [
        measure_length_effect(
            kind,
            found,
            sample.values,
            ([m[kind] for m in lengths[0]], [n[kind] for n in lengths[1]]),
            is_decided=is_decided,
            tests=tests * len(kinds),
        )
        for kind in kinds
    ]
    return [effect for effect in measured if effect is not None]


def _look_ahead(found: SystemDifference, is_decided: bool, tests: int) -> Outlook:
    have = min(found.dialogues_a, found.dialogues_b)
    value, far = found.difference.value, max(abs(found.difference.low), abs(found.difference.high))
    level, paired = LEVEL / tests, found.is_paired
    needed = find_needed_dialogues(value, found.spread, paired=paired, level=level)
    if needed is not None:
        needed = max(needed, find_least_dialogues(paired=paired, level=level))
    more = 0 if is_decided else None if needed is None else max(1, needed - have)
    at_best = find_needed_dialogues(far, found.spread, paired=paired, level=level) if np.isfinite(far) else None
    return Outlook(needed, more, at_best, find_smallest_difference(found.spread, have, paired=paired, level=level))


def _describe_method(paired: Mapping[PairKey, bool], rounds: int, correction: Correction) -> str:
    words = {
        (False, True): "dialogues of the same id in pairs",
        (False, False): "dialogues as independent samples",
        (True, True): "ratings of the same worker in pairs",
        (True, False): "ratings as independent samples",
    }
    found = {(key[0].partition(".")[0] == RATING, is_paired) for key, is_paired in paired.items()}
    kind = ", ".join(said for each, said in words.items() if each in found)
    level = f"{LEVEL:g}" if len(paired) == 1 else f"{LEVEL:g} / {len(paired)}"
    return (
        f"{kind}; a dialogue's score is the mean over its system turns; p-value of a permutation test of t with "
        f"{rounds} arrangements and the 95 % interval that agrees with it; {CORRECTIONS[correction]} over "
        f"{len(paired)} tests; decided: its p below {LEVEL:g}; dialogues needed: two-sided t-test, level {level}, "
        f"power {POWER:g}"
    )

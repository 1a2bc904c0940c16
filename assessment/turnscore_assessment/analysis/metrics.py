"""Metrics' agreement with people: over systems, over dialogues, and whether one metric agrees better than another.

A metric is one number per dialogue or system: from scorers, from CSV, or recorded in the ratings file.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from typer import Option

from turnscore_assessment.agreement import scoring
from turnscore_assessment.agreement.report import choose_parts
from turnscore_assessment.agreement.scoring import JudgedDialogue, JudgedTurn, ScoredFile, ScorerOptions
from turnscore_assessment.command_line import RatingsFile, RoundsOption, SeedOption, input_file
from turnscore_assessment.errors import AgreementError, BadFileError, TooFewError
from turnscore_assessment.figures import (
    CONFIDENCE,
    ROUNDS,
    Floats,
    Integers,
    Interval,
    Williams,
    correlate_clustered,
    williams_test,
)
from turnscore_assessment.files import CsvTable, read_csv, to_csv, unguard, write_text
from turnscore_assessment.ratings.rating_file import OVERALL, RatedDialogue, RatingFile, read_ratings
from turnscore_assessment.ratings.scoring import (
    LEAST_SYSTEMS,
    JudgedStudy,
    SystemCorrelation,
    correlate_systems,
    judge_study,
    resample_systems,
    sum_values,
)
from turnscore_assessment.rendering import Page, Section, Table, draw_intervals


def draw_rows(study: JudgedStudy, per_system: int | None, seed: int) -> Integers:
    """The rows that count, or so many of each system's drawn at random."""
    rows = np.flatnonzero(study.chosen)
    if per_system is None:
        return rows
    generator = np.random.default_rng(seed)
    systems = study.table.system_of[rows]
    drawn = [generator.permutation(rows[systems == each])[:per_system] for each in range(len(study.table.systems))]
    return np.sort(np.concatenate(drawn))


FIRST_LINE = 2  # Line of a ratings file's first dialogue.
LINE, DIALOGUE, SYSTEM = "line", "dialogue", "system"
KEYS = (LINE, DIALOGUE, SYSTEM)  # The columns that may name a CSV's rows; the first that it has does.
MOST_COLUMNS = 100  # Most columns. Chosen: every two are compared.

SYSTEM_WORDS, USER_WORDS, TURNS = "words per system turn", "words per user turn", "turns in the dialogue"


@dataclass(frozen=True)
class MetricColumn:
    """One metric: a number by row of the ratings file, NaN for none, or by system alone."""

    name: str
    source: str
    values: Floats | None = None
    systems: Mapping[str, float] | None = None
    is_baseline: bool = False


def measure_baselines(ratings: RatingFile) -> list[MetricColumn]:
    """The lengths, which need no scorer. None where the file holds no turns."""
    if not any(row.turns for row in ratings.dialogues):
        return []

    def count(row: RatedDialogue, speaker: str) -> float:
        counts = [len(turn.text.split()) for turn in row.turns if turn.speaker == speaker]
        return fmean(counts) if counts else math.nan

    rows = ratings.dialogues
    columns = {
        SYSTEM_WORDS: [count(row, "system") for row in rows],
        USER_WORDS: [count(row, "user") for row in rows],
        TURNS: [float(len(row.turns)) if row.turns else math.nan for row in rows],
    }
    return [MetricColumn(name, "baseline", np.array(values), is_baseline=True) for name, values in columns.items()]


def gather_recorded(ratings: RatingFile) -> list[MetricColumn]:
    """The scores that the study recorded with its ratings."""
    names = sorted({name for row in ratings.dialogues for name in row.scores})
    scores = [row.scores for row in ratings.dialogues]
    return [MetricColumn(name, "recorded", np.array([each.get(name, math.nan) for each in scores])) for name in names]


def gather_scored(chosen: Sequence[tuple[ScoredFile, str]], rows: Integers, count: int) -> list[MetricColumn]:
    """Scorers' values, or other parts of their scores; `rows` are the scored ones, of so many in all."""
    columns = []
    for file, part in chosen:
        values = np.full(count, np.nan)
        values[rows] = [dialogue.dialogue.get(part, math.nan) for dialogue in file.dialogues]
        columns.append(MetricColumn(file.name_of(part), f"{file.model} ({file.graph})", values))
    return columns


def to_judged(ratings: RatingFile, rows: Integers) -> list[JudgedDialogue]:
    """The dialogues in the scorers' form, in order: without system turns that have no text."""
    found = []
    for row in rows:
        rated = ratings.dialogues[row]
        turns = [JudgedTurn(speaker=turn.speaker, text=turn.text) for turn in rated.turns]
        found.append(
            scoring.drop_empty_turns(JudgedDialogue(id=f"line {row + FIRST_LINE}", system=rated.system, turns=turns))
        )
    return found


def read_columns(path: Path, ratings: RatingFile) -> list[MetricColumn]:
    """The numeric columns of a CSV whose rows are about lines of the ratings file, dialogues or systems.

    BadFileError names the line and the column.
    """
    key, names, found = _read_cells(path, read_csv(path))
    keys: list[str | None] = [row.system if key == SYSTEM else row.dialogue for row in ratings.dialogues]
    if key == LINE:
        keys = [str(row + FIRST_LINE) for row in range(len(keys))]
    _check_keys(path, key, found, keys, ratings)
    if key == SYSTEM:
        systems = [{name: row[column] for name, row in found.items()} for column in names]
        return [MetricColumn(column, path.name, systems=each) for column, each in zip(names, systems, strict=True)]
    nothing = dict.fromkeys(names, math.nan)
    rows = [found.get(name or "", nothing) for name in keys]
    return [MetricColumn(column, path.name, np.array([row[column] for row in rows])) for column in names]


def _read_cells(path: Path, table: CsvTable) -> tuple[str, list[str], dict[str, dict[str, float]]]:
    """Which column the rows are known by, the others, and their numbers by row."""
    key = next((name for name in KEYS if name in table.columns), None)
    if key is None:
        raise BadFileError(path, 1, f"has none of the columns {', '.join(KEYS)}")
    names = [name for name in table.columns if name not in KEYS]
    if not names or len(names) > MOST_COLUMNS:
        raise BadFileError(path, 1, f"must have 1 to {MOST_COLUMNS} columns of numbers, not {len(names)}")
    found: dict[str, dict[str, float]] = {}
    for number, row in table.rows:
        name = unguard(str(row[key]))
        if name in found:
            raise BadFileError(path, number, f"{key}: {name!r} was already used")
        found[name] = {column: _read_number(path, number, column, row[column]) for column in names}
    return key, names, found


def _read_number(path: Path, number: int, column: str, text: str | None) -> float:
    """The number in a cell; NaN for an empty one."""
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise BadFileError(path, number, f"{column}: {text!r} is not a number")
    return value


def _check_keys(
    path: Path, key: str, found: Mapping[str, object], keys: Sequence[str | None], ratings: RatingFile
) -> None:
    known = set(keys)
    unknown = next((name for name in found if name not in known), None)
    if unknown is not None:
        raise BadFileError(path, 0, f"{key}: the ratings have no {unknown!r}")
    named = {(row.dialogue, row.system) for row in ratings.dialogues} if key == DIALOGUE else set()
    counts = Counter(name for name, _ in named)
    shared = next((name for name in found if counts[name] > 1), "")
    if shared:
        raise BadFileError(path, 0, f"{key}: {shared!r} is the name of several systems' dialogues; name them by `line`")


@dataclass(frozen=True)
class DialogueCorrelation:
    """One metric against the mean z of each dialogue; intervals from resampling workers."""

    dialogues: int
    pearson: Interval
    spearman: Interval
    given_length: Interval  # Spearman with the length of system turns held constant; NaN where the file holds no turns.
    # Pearson after each system's means are subtracted on both sides: good dialogues against bad ones of one system.
    within_systems: Interval


@dataclass(frozen=True)
class MeasuredMetric:
    """All figures of one metric."""

    name: str
    source: str
    is_baseline: bool
    means: Mapping[str, float]  # By system.
    # By column of people's judgements, overall first; empty for fewer than three systems.
    systems: Mapping[str, SystemCorrelation]
    dialogues: DialogueCorrelation | None  # None for a metric by system alone.


@dataclass(frozen=True)
class ComparedMetrics:
    """Two metrics' correlations with people's overall scores of systems, by Williams' test."""

    first: str
    second: str
    found: Williams


def measure_metrics(
    study: JudgedStudy, columns: Sequence[MetricColumn], rounds: int, seed: int
) -> list[MeasuredMetric]:
    """Every metric against people."""
    human = resample_systems(study.sums, rounds, seed)
    lengths = next((column.values for column in columns if column.name == SYSTEM_WORDS), None)
    return [_measure(study, column, human, lengths, rounds, seed) for column in columns]


def compare_metrics(study: JudgedStudy, measured: Sequence[MeasuredMetric]) -> list[ComparedMetrics]:
    """Every two metrics, over the systems that both know."""
    overall = dict(zip(study.table.systems, study.sums.average(study.sums.everyone)[:, -1], strict=True))
    pairs = []
    for first, second in combinations(measured, 2):
        systems = [name for name in overall if name in first.means and name in second.means]
        values = [np.array([each[name] for name in systems]) for each in (first.means, second.means, overall)]
        pairs.append(ComparedMetrics(first.name, second.name, williams_test(*values)))
    return pairs


def _measure(
    study: JudgedStudy, column: MetricColumn, human: Floats, lengths: Floats | None, rounds: int, seed: int
) -> MeasuredMetric:
    people = study.sums.average(study.sums.everyone)
    if column.values is None:
        by_system = np.array([(column.systems or {}).get(name, np.nan) for name in study.table.systems])
        draws = np.broadcast_to(by_system, (len(human), len(by_system)))
        dialogues = None
    else:
        rows = np.asarray(study.chosen & ~np.isnan(column.values))
        sums = sum_values(study.table, column.values[:, None], rows, study.raters)
        by_system = sums.average(sums.everyone)[:, 0]
        draws = resample_systems(sums, rounds, seed)[:, :, 0]
        scores, rated, workers = column.values[rows], study.means[rows], study.table.worker_of[rows]
        given = {}
        if lengths is not None and not column.is_baseline and not np.isnan(lengths[rows]).any():
            given = {"length": lengths[rows]}
        found = correlate_clustered(scores, rated, given, workers, rounds, seed)
        numbers = study.table.system_of[rows]
        within = correlate_clustered(
            _take_means_off(scores, numbers), _take_means_off(rated, numbers), {}, workers, rounds, seed
        )
        given_length = found.given["length"]["spearman"] if given else Interval(float("nan"))
        dialogues = DialogueCorrelation(int(rows.sum()), found.pearson, found.spearman, given_length, within.pearson)
    known = ~np.isnan(by_system)
    order = [len(study.columns) - 1, *range(len(study.columns) - 1)]
    means = {name: float(by_system[place]) for place, name in enumerate(study.table.systems) if known[place]}
    systems = {
        study.columns[place]: correlate_systems(
            by_system[known], people[known, place], draws[:, known], human[:, known, place]
        )
        for place in (order if len(means) >= LEAST_SYSTEMS else ())
    }
    return MeasuredMetric(column.name, column.source, column.is_baseline, means, systems, dialogues)


def _take_means_off(values: Floats, groups: Integers) -> Floats:
    counts = np.bincount(groups)
    means = np.bincount(groups, values) / np.maximum(counts, 1)
    return np.asarray(values - means[groups])


def _show_systems(known: Sequence[MeasuredMetric], rounds: int, seed: int) -> Section:
    rows = [
        [_write_name(metric), found.pearson, found.fisher, found.spearman, found.kendall, metric.source]
        for metric in known
        for found in [metric.systems[OVERALL]]
    ]
    chart = draw_intervals(
        "Correlation over systems with Fisher's interval",
        [(metric.name[:24], metric.systems[OVERALL].fisher) for metric in known],
    )
    text = (
        f"Against people's overall scores. The first interval holds {CONFIDENCE:.0%} of {rounds} resamples "
        f"of workers (seed {seed}); a resample is noisier than the study, so it lies nearer to 0. Fisher's "
        "is about other systems: with ten of them it is wide, and a metric's rank here is easily chance."
    )
    header = ["metric", "Pearson, workers resampled", "Fisher's interval", "Spearman", "Kendall", "from"]
    return Section("Over systems", [text], [Table("Overall", header, rows)], [chart] if known else [])


def _show_criteria(known: Sequence[MeasuredMetric]) -> Section:
    names = list(known[0].systems) if known else []
    rows = [[_write_name(metric), *(metric.systems[name].pearson.value for name in names)] for metric in known]
    text = "Pearson's r over systems, negative criteria reversed."
    return Section("By criterion", [text], [Table("Criteria", ["metric", *names], rows)])


def _show_dialogues(measured: Sequence[MeasuredMetric]) -> Section:
    rows = [
        [_write_name(each), found.dialogues, found.pearson, found.spearman, found.given_length, found.within_systems]
        for each in measured
        if (found := each.dialogues) is not None
    ]
    header = ["metric", "dialogues", "Pearson", "Spearman", "Spearman given length", "Pearson within systems"]
    text = (
        "Against each dialogue's mean z over criteria, intervals from resampled workers. Within systems each "
        "system's means are taken off both sides: what is left tells a system's good dialogues from its bad ones."
    )
    return Section("Over dialogues", [text], [Table("Dialogues", header, rows)])


def _show_pairs(pairs: Sequence[ComparedMetrics]) -> Section:
    rows = [[f"{pair.first} over {pair.second}", pair.found.t, pair.found.p] for pair in pairs]
    text = (
        "Williams' test of two correlations with people's overall scores of the same systems, two-sided; t is above 0 "
        "where the first one is higher."
    )
    return Section("One metric against another", [text], [Table("Pairs of metrics", ["pair", "t", "p"], rows)])


def _write_name(metric: MeasuredMetric) -> str:
    return f"{metric.name} (baseline)" if metric.is_baseline else metric.name


@dataclass(frozen=True, kw_only=True)
class MetricsOptions(ScorerOptions):
    """Correlate scorers, columns of numbers and lengths with people's judgements of systems and of dialogues."""

    ratings: RatingsFile
    scores: Annotated[list[Path] | None, input_file("CSV with a column `line`, `dialogue` or `system`.")] = None
    parts: Annotated[list[str] | None, Option("--part", help="A detail besides the `value`; repeatable.")] = None
    per_system: Annotated[int | None, Option(min=1, help="Most dialogues of each system that scorers score.")] = None
    keep: Annotated[
        Path | None, Option(dir_okay=False, help="CSV for the scorers' scores, which then need not be asked again.")
    ] = None
    output: Annotated[Path, Option(file_okay=False, help="Folder for the figures.")] = Path("build/metrics")
    rounds: RoundsOption = ROUNDS
    seed: SeedOption = 0


def measure_file(options: MetricsOptions, command: str) -> tuple[Page, dict[str, Any]]:
    """The page and the figures.

    BadFileError for a file, AgreementError for a scorer, TooFewError where nothing can be measured.
    """
    ratings = read_ratings(options.ratings)
    study = judge_study(ratings)
    if len(study.table.systems) < 2:
        raise TooFewError("metrics need at least two systems; the ratings have one")
    scored = _score(options, study) if options.scorers else []
    if options.keep and scored:
        keep_columns(options.keep, scored, ratings)
    files = [column for path in options.scores or () for column in read_columns(path, ratings)]
    columns = [*scored, *files, *gather_recorded(ratings), *measure_baselines(ratings)]
    if not columns:
        raise TooFewError("there is no metric: give scorers or files of scores")
    measured = measure_metrics(study, columns, options.rounds, options.seed)
    pairs, known = compare_metrics(study, measured), [each for each in measured if each.systems]
    sampled = f"Scorers were asked about at most {options.per_system} dialogues of each system, drawn at random."
    counts = {"systems": len(study.table.systems), "workers": len(study.sums.dialogues)}
    notes = [sampled] if scored and options.per_system else []
    found = [
        f"{each.name}: r = {each.systems[OVERALL].pearson} over {len(each.means)} systems"
        + (f", {each.dialogues.pearson} over {each.dialogues.dialogues} dialogues" if each.dialogues else "")
        for each in known
    ]
    page = Page(
        title=f"Metrics against the people of {study.name}",
        summary=[f"{counts['workers']} workers, {counts['systems']} systems.", *notes, *found],
        sections=[
            _show_systems(known, options.rounds, options.seed),
            *(_show_criteria(known), _show_dialogues(measured), _show_pairs(pairs)),
        ],
        command=command,
    )
    figures = {"metrics": measured, "pairs": pairs, "notes": notes, "rounds": options.rounds, "seed": options.seed}
    return page, {"study": study.name, **counts, **figures}


def keep_columns(path: Path, columns: Sequence[MetricColumn], ratings: RatingFile) -> None:
    """Writes scores by line of the ratings file, as `read_columns` reads them."""
    values = [column.values for column in columns if column.values is not None]
    rows = []
    for row, dialogue in enumerate(ratings.dialogues):
        cells = ["" if np.isnan(each[row]) else float(each[row]) for each in values]
        if any(cell != "" for cell in cells):
            rows.append([row + FIRST_LINE, dialogue.system, *cells])
    write_text(path, to_csv([LINE, SYSTEM, *(column.name for column in columns)], rows))


def _score(options: MetricsOptions, study: JudgedStudy) -> list[MetricColumn]:
    ratings = study.ratings
    rows = draw_rows(study, options.per_system, options.seed)
    rows = rows[[bool(ratings.dialogues[row].turns) for row in rows]]
    dialogues = to_judged(ratings, rows)
    spoken = [bool(dialogue.system_places) for dialogue in dialogues]
    rows, dialogues = rows[spoken], [each for each, says in zip(dialogues, spoken, strict=True) if says]
    if not dialogues:
        raise AgreementError(f"{options.ratings}: no rated dialogue has `turns` to score")
    parts = choose_parts(scoring.score_dialogues(options, dialogues), [scoring.VALUE, *(options.parts or [])])
    return gather_scored(parts, rows, len(ratings.dialogues))

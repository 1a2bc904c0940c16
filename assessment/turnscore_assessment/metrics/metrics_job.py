"""One run of `turnscore-assess metrics`: reads, has dialogues scored, measures. Writes only kept scores."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from turnscore_assessment.agreement.scoring import ScorerChoice, ShowProgress, score_dialogues
from turnscore_assessment.errors import AgreementError, TooFewError
from turnscore_assessment.files import to_csv, write_text
from turnscore_assessment.metrics.human_study import HumanStudy, judge_study
from turnscore_assessment.metrics.metric_columns import (
    FIRST_LINE,
    LINE,
    SYSTEM,
    MetricColumn,
    gather_recorded,
    gather_scored,
    measure_baselines,
    read_columns,
    to_judged,
)
from turnscore_assessment.metrics.metric_correlation import compare_metrics, measure_metrics
from turnscore_assessment.metrics.metrics_page import MetricsReport
from turnscore_assessment.ratings.rating_file import RatingFile, read_ratings


@dataclass(frozen=True, kw_only=True)
class MetricsJob:
    """The command's options."""

    ratings: Path
    scores: Sequence[Path]
    choice: ScorerChoice
    parts: Sequence[str] = field(default=("value",))
    per_system: int | None
    """Most dialogues of each system that scorers score; None for all."""
    keep: Path | None
    """CSV file for the scorers' scores, so that they need not be computed again."""
    rounds: int
    seed: int


def run_metrics_job(job: MetricsJob, show_progress: ShowProgress) -> MetricsReport:
    """The figures. BadFileError for a file, AgreementError for a scorer, TooFewError where nothing can be measured."""
    ratings = read_ratings(job.ratings)
    study = judge_study(ratings)
    if len(study.table.systems) < 2:
        raise TooFewError("metrics need at least two systems; the ratings have one")
    scored = _score(job, ratings, study, show_progress)
    if job.keep and scored:
        keep_columns(job.keep, scored, ratings)
    files = [column for path in job.scores for column in read_columns(path, ratings)]
    columns = [*scored, *files, *gather_recorded(ratings), *measure_baselines(ratings)]
    if not columns:
        raise TooFewError("there is no metric: give scorers or files of scores")
    measured = measure_metrics(study, columns, job.rounds, job.seed)
    sampled = f"Scorers were asked about at most {job.per_system} dialogues of each system, drawn at random."
    return MetricsReport(
        study=ratings.description.study,
        systems=len(study.table.systems),
        workers=len(study.sums.dialogues),
        metrics=measured,
        pairs=compare_metrics(study, measured),
        notes=[sampled] if scored and job.per_system else [],
        rounds=job.rounds,
        seed=job.seed,
    )


def keep_columns(path: Path, columns: Sequence[MetricColumn], ratings: RatingFile) -> None:
    """Writes scores by line of the ratings file, as `read_columns` reads them."""
    values = [column.values for column in columns if column.values is not None]
    rows = []
    for row, dialogue in enumerate(ratings.dialogues):
        cells = ["" if np.isnan(each[row]) else float(each[row]) for each in values]
        if any(cell != "" for cell in cells):
            rows.append([row + FIRST_LINE, dialogue.system, *cells])
    write_text(path, to_csv([LINE, SYSTEM, *(column.name for column in columns)], rows))


def _score(job: MetricsJob, ratings: RatingFile, study: HumanStudy, show_progress: ShowProgress) -> list[MetricColumn]:
    if not job.choice.scorers:
        return []
    rows = study.draw_rows(job.per_system, job.seed)
    rows = rows[[bool(ratings.dialogues[row].turns) for row in rows]]
    dialogues = to_judged(ratings, rows)
    spoken = [bool(dialogue.system_places) for dialogue in dialogues]
    rows, dialogues = rows[spoken], [each for each, says in zip(dialogues, spoken, strict=True) if says]
    if not dialogues:
        raise AgreementError(f"{job.ratings}: no rated dialogue has `turns` to score")
    scored = score_dialogues(job.choice, dialogues, show_progress)
    for part in job.parts:
        if not any(part in file.parts for file in scored):
            known = "; ".join(f"{file.scorer} has {', '.join(file.parts)}" for file in scored)
            raise AgreementError(f"no scorer has a part {part!r}: {known}")
    return gather_scored(scored, job.parts, rows, len(ratings.dialogues))

"""The report on agreement: one run, and its figures as a table to print, Markdown, JSON and a scatter plot."""

import hashlib
import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table
from turnscore_client import AsyncTurnScoreClient

from turnscore_assessment.agreement.judged_dialogues import (
    JudgedDialogue,
    ScoredFile,
    drop_empty_turns,
    read_judged_dialogues,
)
from turnscore_assessment.agreement.measurement import (
    CHARACTERS,
    Column,
    Group,
    Observations,
    Row,
    choose_parts,
    find_levels,
    measure,
    observe,
)
from turnscore_assessment.agreement.scoring import ScorerChoice, ShowProgress, score_dialogues
from turnscore_assessment.correlations import Correlations
from turnscore_assessment.errors import AgreementError
from turnscore_assessment.figures import CONFIDENCE, Interval
from turnscore_assessment.rendering import table_head, table_row

HEADER = ("system", "score", "n", "Pearson", "Spearman", "Kendall", "Pearson given length", "Spearman given length")
NOTHING = "-"


@dataclass(frozen=True)
class MeasuredLevel:
    observations: Observations
    groups: Sequence[Group]

    @property
    def title(self) -> str:
        """A sentence on what was compared with what."""
        everything = self.groups[0]
        count = f"{everything.observations} turns of " if self.observations.level == "turn" else ""
        return (
            f"{self.observations.level} level: {count}{everything.dialogues} dialogues, "
            f"against {self.observations.against}"
        )


@dataclass(frozen=True, kw_only=True)
class AgreementReport:
    """All figures, and how to get them again."""

    file: str
    sha256: str
    command: str
    date: str
    rounds: int
    seed: int
    scored: Sequence[ScoredFile]
    levels: Sequence[MeasuredLevel]
    left_out: Sequence[str]
    """What in the file was not measured, and why."""

    @property
    def explanation(self) -> str:
        """A paragraph on how the table's figures were made."""
        how = (
            f"Each figure with its {CONFIDENCE:.0%} interval from {self.rounds} resamples of whole dialogues (seed "
            f"{self.seed}); Kendall is tau-b; given length: partial correlation given the response's characters. "
            "A dialogue's score is the mean over the turns that count for the scorer, its length the mean over its "
            "system turns."
        )
        return " ".join([how, *(f"Left out: {reason}." for reason in self.left_out)])


def make_table(level: MeasuredLevel) -> Table:
    """The level's figures, for printing; a rule between systems."""
    table = Table(*HEADER, title=level.title, title_justify="left")
    for group in level.groups:
        for row in group.rows:
            table.add_row(*_cells(group, row), style="dim" if row.is_baseline else None)
        table.add_section()
    return table


def format_markdown(report: AgreementReport) -> str:
    """The report as a page: a table per level, baselines in italics."""
    models = ", ".join(f"`{each.model}` (graph `{each.graph}`, digest `{each.digest[:12]}`)" for each in report.scored)
    lines = [
        f"`{report.command}` on {report.date}: {models}; `{report.file}` has SHA-256 `{report.sha256[:12]}`.",
        "",
        report.explanation,
    ]
    for level in report.levels:
        lines += ["", f"**{level.title[:1].upper()}{level.title[1:]}**", ""]
        lines += table_head(HEADER)
        for group in level.groups:
            for row in group.rows:
                system, name, *figures = _cells(group, row)
                lines.append(table_row([system, f"*{name}*" if row.is_baseline else name, *figures]))
    return "\n".join(lines) + "\n"


def to_json(report: AgreementReport) -> dict[str, Any]:
    """Every figure; undefined ones are null."""
    return {
        "file": report.file,
        "sha256": report.sha256,
        "command": report.command,
        "date": report.date,
        "bootstrap": {"rounds": report.rounds, "seed": report.seed, "confidence": CONFIDENCE, "unit": "dialogue"},
        "models": {
            each.scorer: {"model": each.model, "digest": each.digest, "graph": each.graph} for each in report.scored
        },
        "levels": {
            level.observations.level: {
                "against": level.observations.against,
                "groups": [_group_to_json(group) for group in level.groups],
            }
            for level in report.levels
        },
        "left_out": list(report.left_out),
    }


def format_interval(interval: Interval | None) -> str:
    """The figure with its interval, or alone where there is none; a dash where it is undefined."""
    if interval is None or math.isnan(interval.value):
        return NOTHING
    return f"{interval.value:.3f}" if math.isnan(interval.low) else str(interval)


def _cells(group: Group, row: Row) -> list[str]:
    figures = row.figures
    given: Mapping[str, Interval] = figures.given.get(CHARACTERS, {})
    partial = [given.get(name) for name in ("pearson", "spearman")]
    intervals = [figures.pearson, figures.spearman, figures.kendall, *partial]
    return [group.system, row.name, str(row.observations), *map(format_interval, intervals)]


def _group_to_json(group: Group) -> dict[str, Any]:
    return {
        "system": group.system,
        "observations": group.observations,
        "dialogues": group.dialogues,
        "rows": [
            {
                "name": row.name,
                "is_baseline": row.is_baseline,
                "observations": row.observations,
                **dict(_figures_to_json(row.figures)),
            }
            for row in group.rows
        ],
    }


def _figures_to_json(figures: Correlations) -> Iterator[tuple[str, Any]]:
    for name in ("pearson", "spearman", "kendall"):
        yield name, _interval_to_json(getattr(figures, name))
    yield (
        "given",
        {
            kind: {name: _interval_to_json(interval) for name, interval in partial.items()}
            for kind, partial in figures.given.items()
        },
    )


def _interval_to_json(interval: Interval) -> dict[str, float | None]:
    figures = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: None if math.isnan(figure) else figure for name, figure in figures.items()}


PANEL_INCHES = 4.2
DOTS_PER_INCH = 120
MOST_COLOURS = 10
"""Systems with a colour of their own, as many as matplotlib's default cycle has."""


def draw_scatter(levels: Sequence[MeasuredLevel], path: Path) -> None:
    """Writes a PNG: a row of panels per score, a panel per level, systems in colours."""
    names = [column.name for column in levels[0].observations.columns if not column.is_baseline]
    figure = Figure(figsize=(PANEL_INCHES * len(levels), PANEL_INCHES * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names), len(levels), squeeze=False)
    for across, level in enumerate(levels):
        for down, name in enumerate(names):
            _draw_panel(panels[down][across], level, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _draw_panel(panel: Any, level: MeasuredLevel, name: str) -> None:
    observations = level.observations
    column: Column = next(each for each in observations.columns if each.name == name)
    row: Row = next(each for each in level.groups[0].rows if each.name == name)
    systems = np.array([system or "(unnamed)" for system in observations.systems])
    shown = np.unique(systems)
    has_colours = 1 < len(shown) <= MOST_COLOURS
    for system in shown if has_colours else [None]:
        chosen = np.full(len(systems), True) if system is None else systems == system
        # Fainter points where there are many, so that dense places do not fill up. Chosen.
        faintness = float(np.clip(100 / len(systems), 0.15, 0.8))
        panel.scatter(
            column.values[chosen],
            observations.qualities[chosen],
            s=10,
            alpha=faintness,
            linewidths=0,
            label=system,
        )
    if has_colours:
        for handle in panel.legend(fontsize="x-small").legend_handles:
            handle.set_alpha(1)
    panel.set_title(
        f"{name}, {observations.level}s: Spearman {format_interval(row.figures.spearman)}", fontsize="small"
    )
    panel.set_xlabel(name)
    panel.set_ylabel("quality")


@dataclass(frozen=True, kw_only=True)
class AgreementJob:
    """The command's options. Without bundles, `open_client` opens the service that scores."""

    file: Path
    form: str
    scorers: Sequence[str]
    parts: Sequence[str]
    bundles: Sequence[str]
    open_client: Callable[[], AsyncTurnScoreClient]
    concurrency: int
    level: str
    rounds: int
    seed: int

    @property
    def choice(self) -> ScorerChoice:
        return ScorerChoice(
            scorers=self.scorers, bundles=self.bundles, open_client=self.open_client, concurrency=self.concurrency
        )

    @property
    def command(self) -> str:
        """The command that gives the same figures, with names in place of local paths."""
        options = [("--form", self.form)] if self.form != "judged" else []
        options += [("--scorer", name) for name in self.scorers]
        options += [("--part", name) for name in self.parts if len(self.parts) > 1 or name != "value"]
        options += [("--bundle", Path(name).name) for name in self.bundles]
        options += [("--level", self.level), ("--bootstrap", str(self.rounds)), ("--seed", str(self.seed))]
        words = [word for option in options for word in option]
        return shlex.join(["turnscore", "agreement", self.file.name, *words])


def run_agreement_job(job: AgreementJob, show_progress: ShowProgress) -> AgreementReport:
    """The figures. Raises BadFileError for the file, AgreementError for what cannot be scored or measured."""
    read = read_judged_dialogues(job.file, job.form)
    dialogues = [dialogue for dialogue in map(drop_empty_turns, read) if dialogue.is_judged]
    try:
        levels, left_out = find_levels(dialogues, job.level)
    except AgreementError as error:
        raise AgreementError(f"{job.file}: {error}") from None
    scored = score_dialogues(job.choice, dialogues, show_progress)
    chosen = choose_parts(scored, job.parts)
    observed = [observe(dialogues, chosen, level) for level in levels]
    return AgreementReport(
        file=job.file.name,
        sha256=hashlib.sha256(job.file.read_bytes()).hexdigest(),
        command=job.command,
        date=datetime.now(UTC).date().isoformat(),
        rounds=job.rounds,
        seed=job.seed,
        scored=scored,
        levels=[MeasuredLevel(each, measure(each, job.rounds, job.seed)) for each in observed],
        left_out=[*_count_empty(read), *left_out],
    )


def write_report(report: AgreementReport, folder: Path) -> list[Path]:
    """Writes `agreement.json`, `agreement.md` and `agreement.png`, replacing old ones; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"agreement.{suffix}" for suffix in ("json", "md", "png")]
    paths[0].write_text(json.dumps(to_json(report), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    paths[1].write_text(format_markdown(report), encoding="utf-8")
    draw_scatter(report.levels, paths[2])
    return paths


def _count_empty(dialogues: Sequence[JudgedDialogue]) -> list[str]:
    empty = sum(len(each.turn_qualities) - len(drop_empty_turns(each).turn_qualities) for each in dialogues)
    return [f"{empty} judged turns without text: the service refuses to score them"] if empty else []

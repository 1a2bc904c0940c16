"""The report on agreement: one run, and its figures as a table to print, Markdown, JSON and a scatter plot."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turnscore_assessment.agreement.judged_dialogues import (
    JudgedDialogue,
    ScoredFile,
    drop_empty_turns,
    read_judged_dialogues,
)
from turnscore_assessment.agreement.measurement import (
    CHARACTERS,
    Group,
    MeasuredColumn,
    Observations,
    ScoreColumn,
    choose_parts,
    find_levels,
    measure,
    observe,
)
from turnscore_assessment.agreement.scoring import ScorerSelection, ShowProgress, score_dialogues
from turnscore_assessment.errors import AgreementError
from turnscore_assessment.figures import CONFIDENCE, Interval
from turnscore_assessment.rendering import Page, Section, Table, show, write_report

HEADER = ("system", "score", "n", "Pearson", "Spearman", "Kendall", "Pearson given length", "Spearman given length")


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


def build_page(report: AgreementReport) -> Page:
    """A table per level, with how its figures were made."""
    models = ", ".join(f"{each.model} (graph {each.graph}, digest {each.digest[:12]})" for each in report.scored)
    sections = [
        Section(
            heading=f"{level.observations.level.capitalize()} level",
            tables=[Table(level.title, HEADER, [_cells(group, row) for group in level.groups for row in group.rows])],
        )
        for level in report.levels
    ]
    return Page(
        title=f"Agreement with {report.file}",
        summary=[f"{models}; {report.file} has SHA-256 {report.sha256[:12]}.", report.explanation],
        sections=sections,
        command=report.command,
    )


def _cells(group: Group, row: MeasuredColumn) -> list[object]:
    given: Mapping[str, Interval] = row.given.get(CHARACTERS, {})
    partial = [given.get(name) for name in ("pearson", "spearman")]
    name = f"{row.name} (baseline)" if row.is_baseline else row.name
    return [group.system, name, row.observations, row.pearson, row.spearman, row.kendall, *partial]


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
    column: ScoreColumn = next(each for each in observations.columns if each.name == name)
    row: MeasuredColumn = next(each for each in level.groups[0].rows if each.name == name)
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
    panel.set_title(f"{name}, {observations.level}s: Spearman {show(row.spearman)}", fontsize="small")
    panel.set_xlabel(name)
    panel.set_ylabel("quality")


@dataclass(frozen=True, kw_only=True)
class AgreementJob:
    """The command's options."""

    file: Path
    form: str
    choice: ScorerSelection
    parts: Sequence[str]
    level: str
    rounds: int
    seed: int

    @property
    def command(self) -> str:
        """The command that gives the same figures, with names in place of local paths."""
        options = [("--form", self.form)] if self.form != "judged" else []
        options += [("--scorer", name) for name in self.choice.scorers]
        options += [("--part", name) for name in self.parts if len(self.parts) > 1 or name != "value"]
        options += [("--bundle", Path(name).name) for name in self.choice.bundles]
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
        rounds=job.rounds,
        seed=job.seed,
        scored=scored,
        levels=[MeasuredLevel(each, measure(each, job.rounds, job.seed)) for each in observed],
        left_out=[*_count_empty(read), *left_out],
    )


def write_agreement(report: AgreementReport, page: Page, folder: Path) -> list[Path]:
    """Writes `agreement.html`, `.md`, `.json` and `.png`, replacing old ones; returns their paths."""
    result = {
        "file": report.file,
        "sha256": report.sha256,
        "bootstrap": {
            "rounds": report.rounds,
            "seed": report.seed,
            "confidence": CONFIDENCE,
            "unit": "dialogue",
        },
        "models": {
            each.scorer: {"model": each.model, "digest": each.digest, "graph": each.graph} for each in report.scored
        },
        "levels": {
            each.observations.level: {"against": each.observations.against, "groups": each.groups}
            for each in report.levels
        },
        "left_out": report.left_out,
    }
    written = write_report(folder, "agreement", page, result)
    draw_scatter(report.levels, folder / "agreement.png")
    return [*written, folder / "agreement.png"]


def _count_empty(dialogues: Sequence[JudgedDialogue]) -> list[str]:
    empty = sum(len(each.turn_qualities) - len(drop_empty_turns(each).turn_qualities) for each in dialogues)
    return [f"{empty} judged turns without text: the service refuses to score them"] if empty else []

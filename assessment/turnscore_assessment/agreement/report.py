"""The report: the measured figures as a table to print, as Markdown and as JSON. Measures nothing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from turnscore_assessment.agreement.bootstrap import Correlations
from turnscore_assessment.agreement.measurement import Group, Row
from turnscore_assessment.agreement.observations import CHARACTERS, Observations
from turnscore_assessment.agreement.scores import ScoredFile
from turnscore_assessment.agreement.statistics import CONFIDENCE, Interval
from turnscore_assessment.markdown import table_head, table_row

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

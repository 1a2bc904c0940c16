"""A replication as files: one HTML page, JSON and CSV. Computes nothing."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from turnscore_assessment.analysis.replication import RAW, Replication, Z
from turnscore_assessment.charts import draw_lines
from turnscore_assessment.figures import CONFIDENCE, Interval, jsonable
from turnscore_assessment.files import to_csv, to_json_text, write_all
from turnscore_assessment.ratings.scoring import OVERALL
from turnscore_assessment.rendering import Page, Section, Table, write_page

KINDS = {Z: "standardized", RAW: "raw"}


def summarize(found: Replication) -> list[str]:
    """The replication in two sentences."""
    overall = found.columns[Z][OVERALL]
    same = found.conclusions[0]
    return [
        f"Over {len(found.systems)} systems the overall scores of {found.names[0]} ({found.workers[0]} workers) and "
        f"{found.names[1]} ({found.workers[1]}) correlate at r = {overall.pearson}; raw ones at "
        f"{found.columns[RAW][OVERALL].pearson}.",
        f"{same.same} of {same.pairs} pairs of systems ({same.share:.1%}) get the same conclusion at p < "
        f"{same.threshold:g}; {same.opposite} get opposite ones.",
    ]


def write_replication(found: Replication, folder: Path, command: str, date: str) -> list[Path]:
    """Writes `replication.html`, `.json` and `.csv`, replacing old ones; returns their paths."""
    page = Page(
        title=f"{found.names[0]} and {found.names[1]}",
        summary=summarize(found),
        sections=[_show_columns(found), _show_conclusions(found), _show_curve(found), _show_filters(found)],
        command=command,
        date=date,
    )
    contents = {
        "replication.html": write_page(page),
        "replication.json": to_json_text({"command": command, "date": date, **to_json(found)}),
        "replication.csv": _write_csv(found),
    }
    return write_all(folder, contents)


def to_json(found: Replication) -> dict[str, Any]:
    """Every figure; undefined ones are null."""
    columns = {kind: {name: vars(column) for name, column in each.items()} for kind, each in found.columns.items()}
    conclusions = [asdict(each) | {"share": each.share} for each in found.conclusions]
    curve = [asdict(point) for point in found.curve]
    return dict(jsonable(vars(found) | {"columns": columns, "conclusions": conclusions, "curve": curve}))


def _show_columns(found: Replication) -> Section:
    header = ["score", "Pearson, workers resampled", "Pearson, Fisher's interval", "Spearman", "Kendall"]
    tables = [
        Table(
            f"Correlations over systems, {KINDS[kind]} scores",
            header,
            [
                [name, str(column.pearson), str(column.fisher), str(column.spearman), f"{column.kendall:.3f}"]
                for name, column in columns.items()
            ],
        )
        for kind, columns in found.columns.items()
    ]
    return Section(
        heading="Correlations",
        paragraphs=[
            f"{CONFIDENCE:.0%} intervals from {found.rounds} resamples of the workers of both studies (seed "
            f"{found.seed}), as if other workers had rated the same systems. A resample is noisier than the "
            "study it is drawn from, so these intervals lie low. Fisher's interval is about other systems and the same "
            "workers.",
            *(f"Left out: {reason}." for reason in found.left_out),
        ],
        tables=tables,
    )


def _show_conclusions(found: Replication) -> Section:
    rows = [
        [f"p < {each.threshold:g}", f"{each.same} of {each.pairs}", f"{each.share:.1%}", str(each.opposite)]
        for each in found.conclusions
    ]
    return Section(
        heading="Same conclusions",
        paragraphs=["For each pair of systems a study says better, worse or nothing, by the published one-sided test."],
        tables=[Table("Pairs of systems", ["threshold", "same", "share", "opposite"], rows)],
    )


def _show_curve(found: Replication) -> Section:
    points = [(float(point.workers), Interval(point.median, point.low, point.median)) for point in found.curve]
    rows = [[str(point.workers), f"{point.median:.3f}", f"{point.low:.3f}"] for point in found.curve]
    return Section(
        heading="How few workers would have done",
        paragraphs=[
            f"So many workers of {found.names[0]}, drawn without replacement, against all of {found.names[1]}: the "
            "median of r, and its fifth percentile, below which a study so small falls one time in twenty."
        ],
        charts=[draw_lines("Correlation by the number of workers", "workers", {"median r": points})],
        tables=[Table("Overall correlation", ["workers", "median r", "fifth percentile"], rows)],
    )


def _show_filters(found: Replication) -> Section:
    rows = [[name, f"{r:.3f}"] for name, r in found.filters.items()]
    return Section(
        heading="What the quality control changes",
        paragraphs=[
            "A high correlation is no evidence for the quality control: ratings of workers who fail it can correlate, "
            "too. Judge it by rater agreement and by how far apart the systems come to lie."
        ],
        tables=[Table("Pearson's r of overall scores", ["workers", "r"], rows)],
    )


def _write_csv(found: Replication) -> str:
    head = ["scores", "column", "pearson", "low", "high", "fisher low", "fisher high", "spearman", "kendall"]
    rows: list[list[object]] = []
    for kind, columns in found.columns.items():
        for name, each in columns.items():
            figures = [each.pearson.value, each.pearson.low, each.pearson.high, each.fisher.low, each.fisher.high]
            rows.append([kind, name, *figures, each.spearman.value, each.kendall])
    return to_csv(head, rows)

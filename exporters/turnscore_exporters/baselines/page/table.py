"""The page on all baselines, made from their reports, and its rows for the agreement table. Trains nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnscore_assessment.agreement.report import NOTHING
from turnscore_assessment.rendering import table_head, table_row

from turnscore_exporters.baselines.page.cells import is_trivial, list_sizes, name_row
from turnscore_exporters.baselines.page.full_size import compare_sizes
from turnscore_exporters.baselines.page.published import Report, compare_published
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.training.runs import REPORT_FILE

FIGURE_4 = "a bar of Figure 4, printed without a number"
CLASSIFIERS = {"svm": "SVM", "bi-rnn": "Bi-RNN"}
PUBLISHED_ORDER = (
    "Paper 004 prints no number for either: Figure 4 has bars alone, and its text says that both lie below the "
    "classifiers on BERT ([engagement](models/engagement.md))."
)
TEST_SETS = {
    "published": "ConvAI test, labels as published",
    "corrected": "ConvAI test, corrected labels",
    "judged": "pairs judged by AMT raters",
    "thumbs": "ConvAI's thumbs",
}
SIZES_NOTE = (
    "Exchanges are those that were left to train on: without a tenth of the dialogues, which is held out, and without "
    "dialogues that share a text with a judged turn; of ctx-ruber and pone also without those that choose the step. "
    "Steps are of each loop. Seconds are of training and measuring; those of the wall count what else the machine did. "
    "A training that was interrupted took longer (>): only its last run's seconds are known."
)
ADVERSARIAL_NOTE = (
    "Five relevant, five random and five adversarial responses to each context of the test split. Accuracy is that of "
    "calling a score from .5 on relevant."
)


def read_reports(folders: Sequence[Path]) -> list[Report]:
    """The reports of finished trainings; ExporterError naming a folder without one."""
    reports: list[Report] = []
    for folder in folders:
        report = read_json(folder / REPORT_FILE)
        if not report:
            raise ExporterError(f"{folder}: has no {REPORT_FILE}: its training is not finished")
        reports.append(report)
    return reports


def find_trained(folder: Path, names: Sequence[str]) -> list[Path]:
    """The folders of the baselines that were trained there; ExporterError where there is none."""
    found = [folder / name for name in names if (folder / name / REPORT_FILE).is_file()]
    if not found:
        raise ExporterError(f"{folder}: holds no finished training of any of {', '.join(names)}")
    return found


def write_table(
    reports: Sequence[Report],
    page: Path,
    rows: Path | None,
    command: str,
    items: Mapping[str, int],
    full: Sequence[Report] = (),
) -> None:
    """Writes the page and, for `turnscore-agreement-table`, the rows by set with the number of `items`.

    Reports of the `full` size get a section of their own on the page, and no rows.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(format_page(reports, command, full), encoding="utf-8")
    if rows is not None:
        write_json(rows, collect_rows(reports, command, items))


def collect_rows(reports: Sequence[Report], command: str, items: Mapping[str, int]) -> dict[str, Any]:
    """Figures by set and score; length and position are the table's own."""
    sets: dict[str, dict[str, Any]] = {}
    for report in reports:
        for name, found in report["development"].items():
            own = {row: figures for row, figures in found["rows"].items() if not is_trivial(row)}
            sets.setdefault(name, {}).update({name_row(report["name"], row): each for row, each in own.items()})
    date = max(report["date"] for report in reports)
    return {"command": command, "date": date, "items": dict(items), "sets": sets}


def format_page(reports: Sequence[Report], command: str, full: Sequence[Report] = ()) -> str:
    """The page as Markdown."""
    lines = [
        "# The papers' other systems, trained here",
        "",
        f"Written by `{command}` on {max(report['date'] for report in reports)}. [data.md](data.md) names the sets, "
        "and [models/baselines.md](models/baselines.md) says what each system is.",
    ]
    lines += _published(reports, full) + _sizes(reports) + _held_out(reports) + _adversarial(reports)
    lines += _classifiers(reports) + compare_sizes(reports, full) + _development(reports)
    return "\n".join(lines) + "\n"


def _held_out(reports: Sequence[Report]) -> list[str]:
    rows = [report for report in reports if "held_out" in report]
    if not rows:
        return []
    lines = ["", "## Held-out dialogues", "", "AUC of true against random replies; the reply's length alone beside it."]
    lines += ["", *table_head(["baseline", "exchanges", "AUC", "AUC of length"])]
    for report in rows:
        found = report["held_out"]
        for name, auc in found["auc"].items():
            cells = [
                name_row(report["name"], name),
                str(found["exchanges"]),
                f"{auc:.3f}",
                f"{found['auc_of_length']:.3f}",
            ]
            lines.append(table_row(cells))
    return lines


def _classifiers(reports: Sequence[Report]) -> list[str]:
    rows = [report for report in reports if report["name"] in CLASSIFIERS]
    if not rows:
        return []
    lines = ["", "## Paper 004: classifiers of engagement", "", PUBLISHED_ORDER, ""]
    counts = rows[0]["training"]["pairs"]["published"]
    told = ", ".join(f"{split} {zeros}/{ones}" for split, (zeros, ones) in counts.items())
    lines += [f"Pairs per label 0/1 (published: train 6222/1562, validation 2121/575, test 2062/582): {told}.", ""]
    header = [
        "classifier",
        "trained on labels",
        "tested on",
        "pairs",
        "published",
        "AUC",
        "balanced accuracy",
        "length",
    ]
    lines += table_head(header)
    for report in rows:
        for labels, tested in report["training"]["tested"].items():
            for name, found in tested.items():
                published = FIGURE_4 if labels == "published" and name in ("published", "judged") else NOTHING
                figures = [_interval(found["auc"]), _interval(found["balanced_accuracy"])]
                length = f"{report['training']['length'][name][0]:.3f}"
                cells = [CLASSIFIERS[report["name"]], labels, TEST_SETS[name], str(found["pairs"]), published]
                lines.append(table_row([*cells, *figures, length]))
    return [*lines, "", "`length` is the AUC of the reply's characters alone."]


def _published(reports: Sequence[Report], full: Sequence[Report]) -> list[str]:
    header, *rows = compare_published(reports, full)
    note = "Here: of the turns of the set that stand in no held-back set and were not trained on."
    lines = ["", "## Beside published figures", "", note, "", *table_head(header)]
    return lines + [table_row(cells) for cells in rows]


def _sizes(reports: Sequence[Report]) -> list[str]:
    return ["", "## Sizes", "", SIZES_NOTE, "", *list_sizes(reports)]


def _adversarial(reports: Sequence[Report]) -> list[str]:
    rows = [report for report in reports if report.get("adversarial")]
    if not rows:
        return []
    header = ["score", "contexts", "random: AUC", "accuracy", "adversarial: AUC", "accuracy"]
    lines = ["", "## DailyDialog++", "", ADVERSARIAL_NOTE, "", *table_head(header)]
    for report in rows:
        found = report["adversarial"]
        names = [name for name in found["random"] if name != "length"]
        lines += [_compared(name_row(report["name"], name), name, found) for name in names]
    longest = max((report["adversarial"] for report in rows), key=lambda each: int(each["contexts"]))
    return [*lines, _compared("*length in characters*", "length", longest)]


def _compared(label: str, name: str, found: Mapping[str, Any]) -> str:
    figures = [found[kind][name][key] for kind in ("random", "adversarial") for key in ("auc", "accuracy")]
    return table_row([label, str(found["contexts"]), *(NOTHING if each is None else f"{each:.3f}" for each in figures)])


def _development(reports: Sequence[Report]) -> list[str]:
    sets = list(dict.fromkeys(name for report in reports for name in report["development"]))
    lines: list[str] = []
    for name in sets:
        found = [report for report in reports if name in report["development"]]
        kind = found[0]["development"][name]["kind"]
        header = ["score", "n", kind, "Pearson", "Spearman given length"]
        lines += ["", f"## {name}", "", *table_head(header)]
        for report in found:
            for row, figures in report["development"][name]["rows"].items():
                if not is_trivial(row):
                    lines.append(_row(name_row(report["name"], row), figures))
        rows = found[0]["development"][name]["rows"]
        lines += [_row(f"*{row}*", figures) for row, figures in rows.items() if is_trivial(row)]
    return lines


def _row(name: str, figures: Mapping[str, Any]) -> str:
    told = (_interval(figures[key]) for key in ("agreement", "pearson", "given_length"))
    return table_row([name, str(figures["n"]), *told])


def _interval(figures: Sequence[float | None]) -> str:
    value, low, high = figures
    return NOTHING if value is None or low is None or high is None else f"{value:.3f} ({low:.3f} to {high:.3f})"

"""The figures of all trainings as tables: data for results/, and the Markdown page made of it."""

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from development_sets import (
    ALL,
    TURNS,
    Draws,
    Figures,
    JudgedItem,
    JudgedSet,
    ScoredSet,
    draw_places,
    length_and_position,
    measure_set,
    read_judged_sets,
)
from turnscore_assessment.data.dialogues import ADVERSARIAL_FILE, ADVERSARIAL_KINDS, LabelledTurn, alternate
from turnscore_assessment.figures import LEAST_OBSERVATIONS, Floats, Interval, compute_auc
from turnscore_assessment.files import read_rows
from turnscore_assessment.rendering import Page, Section, Table
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import read_json
from turnscore_exporters.training.loop import REPORT_FILE

from paper_systems.data import Baseline, EvalTurn, true_references

TEST = "test"  # The split that the published figures are of.
RELEVANT, *WRONG = ADVERSARIAL_KINDS
BORDER = 0.5  # Border between wrong and relevant, of scores from 0 to 1. Specified: DailyDialog++'s accuracy.


AdversarialContext = dict[str, list[EvalTurn]]  # The responses to one context, by kind.


def read_adversarial(folder: Path, most: int, seed: int) -> list[AdversarialContext]:
    """At most so many contexts of the test split, drawn at random; none where the folder has no such file."""
    path = folder / ADVERSARIAL_FILE
    if not path.exists():
        return []
    found = [
        {
            kind: [EvalTurn(context=tuple(row["context"]), response=text) for text in row[kind] if text.strip()]
            for kind in ADVERSARIAL_KINDS
        }
        for _, row in read_rows(path)
        if row["split"] == TEST
    ]
    random.Random(seed).shuffle(found)
    return found[:most]


def measure_adversarial(baseline: Baseline, contexts: Sequence[AdversarialContext]) -> dict[str, Any]:
    """AUC by wrong kind and score, of scores from 0 to 1 also the accuracy at the border; and the length's."""
    asked = [each for context in contexts for kind in ADVERSARIAL_KINDS for each in context[kind]]
    kinds = np.array([kind for context in contexts for kind in ADVERSARIAL_KINDS for _ in context[kind]])
    scores = {**baseline.score(asked), "length": np.array([len(each.response) for each in asked], dtype=np.float64)}
    return {
        "contexts": len(contexts),
        **{wrong: {name: _compare_kinds(found, kinds, wrong) for name, found in scores.items()} for wrong in WRONG},
    }


def _compare_kinds(scores: Floats, kinds: np.ndarray[Any, Any], wrong: str) -> dict[str, float | None]:
    chosen = np.isin(kinds, (RELEVANT, wrong)) & ~np.isnan(scores)
    values, labels = scores[chosen], (kinds[chosen] == RELEVANT).astype(int)
    is_share = bool(len(values)) and values.min() >= 0 and values.max() <= 1
    return {
        "auc": round(compute_auc(values, labels.tolist()), 4),
        "accuracy": round(float(np.mean((values >= BORDER) == labels)), 4) if is_share else None,
    }


MULTIREF_FILE = "multiref/ratings.jsonl.gz"
MULTIREF = "multiref"
MOST_TURNS, SEED = 3000, 0  # As in docs/agreement.md, so that its rows are of the same turns.


def ask(item: JudgedItem) -> EvalTurn:
    """What a baseline scores of a judged turn."""
    [turn] = item.turns
    context = tuple(each.text for each in turn.context)
    return EvalTurn(context=context, response=turn.response, references=item.references)


@cache
def read_eval_sets(folder: Path) -> list[JudgedSet]:
    """The development sets of turns that the folder has, and the rated responses with references; read once."""
    found = [each for each in read_judged_sets(folder, MOST_TURNS, SEED) if each.unit == TURNS]
    references = folder / MULTIREF_FILE
    return [*found, _read_multiref(references)] if references.exists() else found


def measure_baseline(
    baseline: Baseline, sets: Sequence[JudgedSet], most_turns: int, draws: Draws, seen: frozenset[str] = frozenset()
) -> dict[str, dict[str, Any]]:
    """Figures by set and score, and of length and position; at most so many turns of each set are scored.

    Turns of dialogues that the baseline has `seen` in training are left out, and so are sets without any others.
    """
    found = {}
    for each in sets:
        items = [replace(item, system="") for item in each.items if item.dialogue not in seen]
        if len(items) >= LEAST_OBSERVATIONS:
            found[each.name] = _measure(baseline, replace(each, items=items), most_turns, draws)
    return found


def _measure(baseline: Baseline, whole: JudgedSet, most_turns: int, draws: Draws) -> dict[str, Any]:
    drawn = replace(whole, items=[whole.items[place] for place in draw_places(whole.items, most_turns, SEED)])
    scores = baseline.score([ask(item) for item in drawn.items])
    figures = measure_set(ScoredSet(drawn, {**scores, **length_and_position(drawn)}), draws)[ALL]
    return {
        "kind": "AUC" if drawn.is_binary else "Spearman",
        "rows": {name: _describe(found) for name, found in figures.items()},
    }


def _describe(figures: Figures) -> dict[str, Any]:
    return {
        "n": figures.items,
        "agreement": _round(figures.agreement),
        "pearson": _round(figures.pearson),
        "given_length": _round(figures.given_length),
    }


def _round(interval: Interval) -> list[float | None]:
    return [None if math.isnan(each) else round(each, 4) for each in (interval.value, interval.low, interval.high)]


def _read_multiref(path: Path) -> JudgedSet:
    """Rated responses; a reference equal to the response is left out."""
    items = [
        JudgedItem(
            dialogue=row["context_id"],
            system=row["system"],
            rating=float(row["rating"]),
            turns=[LabelledTurn(context=alternate(row["context"]), response=row["response"]).to_score()],
            references=references,
        )
        for _, row in read_rows(path)
        if row["response"].strip() and (references := true_references(row["response"], row["references"]))
    ]
    return JudgedSet(name=MULTIREF, unit=TURNS, items=items)


Report = Mapping[str, Any]

CONVAI2, CONVAI2_PARTS = "convai2-grade", ("fitted on", "chosen on")
KINDS = ("random", "adversarial")
# The published figures, by system, `at` what place of a report the same figure is here, and why the two differ, or why
# nothing here compares. A name in place of a place is that of a score, on GRADE's turns of ConvAI2. Of ConvAI2:
# DialEvalMetrics (Yeh et al. 2021). Of DailyDialog++: the predictions that its authors released. Of DailyDialog's
# pairs: Ghazarian et al. 2020, Table 5. Of 3P: Ghazarian et al. 2022. Of the classifiers: Ghazarian et al. 2020.
PUBLISHED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))


def _at(report: Any, *path: str | int) -> float | None:
    """What stands at the end of that path in a report; None where it ends before."""
    for step in path:
        report = report.get(step) if isinstance(report, Mapping) else report and report[step]
    return None if report is None else float(report)


def _find_here(published: Mapping[str, Any], report: Report | None) -> list[object]:
    """The figure here and its distance from the published one."""
    at, wanted = published["at"], published["published"]
    if report is None or at is None:
        here = None
    else:
        here = _over_convai2(report, at) if isinstance(at, str) else _at(report, *at)
    return [here, None if here is None or isinstance(wanted, str) else f"{here - wanted:+.3f}"]


def _over_convai2(report: Report, score: str) -> float | None:
    """The mean over both parts of GRADE's turns of ConvAI2, weighted by turns."""
    parts = [report["development"].get(f"{CONVAI2} ({part})") for part in CONVAI2_PARTS]
    rows = [found["rows"][score] for found in parts if found is not None]
    known = [(row["n"], row["agreement"][0]) for row in rows if row["agreement"][0] is not None]
    turns = sum(count for count, _ in known)
    return sum(count * value for count, value in known) / turns if turns else None


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
    """The folders of the systems that were trained there; ExporterError where there is none."""
    found = [folder / name for name in names if (folder / name / REPORT_FILE).is_file()]
    if not found:
        raise ExporterError(f"{folder}: holds no finished training of any of {', '.join(names)}")
    return found


def collect_rows(reports: Sequence[Report], command: str, items: Mapping[str, int]) -> dict[str, Any]:
    """The agreement table's rows of these systems by set; length and position are the table's own."""
    sets: dict[str, dict[str, Any]] = {}
    for report in reports:
        for name, found in report["development"].items():
            own = {row: figures for row, figures in found["rows"].items() if not is_trivial(row)}
            sets.setdefault(name, {}).update({name_row(report["name"], row): each for row, each in own.items()})
    date = max(report["date"] for report in reports)
    return {"command": command, "date": date, "items": dict(items), "sets": sets}


def build_page(reports: Sequence[Report], larger: Sequence[Report], command: str) -> Page:
    """All figures as tables; reports of the paper's size stand next to the small ones."""
    sections = [_compare_published(reports, larger), _list_costs("Sizes", reports), _held_out(reports)]
    sections += [_adversarial(reports), _classifiers(reports)]
    if larger:
        sections.append(_list_costs("The paper's size", larger))
    sections += list(_development(reports))
    return Page(
        title="The papers' other systems, trained here",
        sections=[each for each in sections if each.tables[0].rows],
        command=command,
        date=max(report["date"] for report in (*reports, *larger)),
    )


def _show(title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Section:
    return Section(title, paragraphs=[note] if note else [], tables=[Table(title, columns, rows)])


def name_row(system: str, row: str) -> str:
    """The system, and the variant where it has several."""
    return system if row == system else f"{system}: {row}"


def is_trivial(row: str) -> bool:
    """Whether the row is of lengths or positions, not of a score."""
    return row.startswith(("length", "position"))


def _compare_published(reports: Sequence[Report], larger: Sequence[Report]) -> Section:
    """A row per published figure: what it is here, at both sizes, and why the two differ."""
    columns = ["system", "figure", "published", "here", "distance"]
    by_name = {report["name"]: report for report in larger}
    columns += ["paper's size", "distance"] if larger else []
    rows = []
    for report in reports:
        for each in (each for each in PUBLISHED if each["system"] == report["name"]):
            cells = [each["row"], each["figure"], each["published"], *_find_here(each, report)]
            rows.append([*cells, *(_find_here(each, by_name.get(report["name"])) if larger else ()), each["why"]])
    note = "Here: of the turns of the set that stand in no held-back set and were not trained on."
    return _show("Beside published figures", note, [*columns, "why"], rows)


def _list_costs(title: str, reports: Sequence[Report]) -> Section:
    """Each training's data and cost; with several rows also the sum of seconds."""
    rows = [
        [
            report["name"],
            report.get("trained_on"),
            report["choices"]["steps"] or None,
            f"{report['choices']['learning_rate']:g}" if report["choices"]["learning_rate"] else None,
            report["choices"]["batch_size"] or None,
            *(report["seconds"], report["cpu_seconds"]),
            "yes" if report.get("resumed") else "",
        ]
        for report in reports
    ]
    if len(reports) > 1:
        sums = [sum(each[name] for each in reports) for name in ("seconds", "cpu_seconds")]
        rows.append(["*together*", "", "", "", "", *sums, ""])
    note = (
        "Exchanges are those that were left to train on: without a tenth of the dialogues, which is held out, and "
        "without dialogues that share a text with a judged turn; of ctx-ruber and pone also without those that choose "
        "the step. Steps are of each loop. Seconds are of training and measuring. A training that was interrupted took "
        "longer: only its last run's seconds are known."
    )
    columns = ["baseline", "exchanges", "steps", "learning rate", "batch", "wall, s", "CPU, s", "interrupted"]
    return _show(title, note, columns, rows)


def _held_out(reports: Sequence[Report]) -> Section:
    rows = [
        [name_row(report["name"], name), found["exchanges"], auc, found["auc_of_length"]]
        for report in reports
        if (found := report.get("held_out"))
        for name, auc in found["auc"].items()
    ]
    note = "AUC of true against random replies; the reply's length alone beside it."
    columns = ["baseline", "exchanges", "AUC", "AUC of length"]
    return _show("Held-out dialogues", note, columns, rows)


def _adversarial(reports: Sequence[Report]) -> Section:
    measured = [report for report in reports if report.get("adversarial")]
    rows = []
    for report in measured:
        found = report["adversarial"]
        rows += [_compare(name_row(report["name"], name), name, found) for name in found["random"] if name != "length"]
    if measured:
        longest = max((report["adversarial"] for report in measured), key=lambda each: int(each["contexts"]))
        rows.append(_compare("*length in characters*", "length", longest))
    note = (
        "Five relevant, five random and five adversarial responses to each context of the test split. Accuracy is that "
        "of calling a score from .5 on relevant."
    )
    columns = ["score", "contexts", "random: AUC", "accuracy", "adversarial: AUC", "accuracy"]
    return _show("DailyDialog++", note, columns, rows)


def _compare(label: str, name: str, found: Mapping[str, Any]) -> list[Any]:
    return [label, found["contexts"], *(found[kind][name][key] for kind in KINDS for key in ("auc", "accuracy"))]


def _classifiers(reports: Sequence[Report]) -> Section:
    rows = [
        [
            report["name"],
            labels,
            name,
            found["pairs"],
            _interval(found["auc"]),
            _interval(found["balanced_accuracy"]),
            report["training"]["length"][name][0],
        ]
        for report in reports
        if "tested" in report["training"]
        for labels, tested in report["training"]["tested"].items()
        for name, found in tested.items()
    ]
    note = "`length` is the AUC of the reply's characters alone. Predictive Engagement prints bars without numbers."
    columns = ["classifier", "trained on labels", "tested on", "pairs", "AUC", "balanced accuracy", "length"]
    return _show("Predictive Engagement's classifiers", note, columns, rows)


def _development(reports: Sequence[Report]) -> Iterator[Section]:
    for name in dict.fromkeys(name for report in reports for name in report["development"]):
        found = [report for report in reports if name in report["development"]]
        first = found[0]["development"][name]
        rows = [
            _row(name_row(report["name"], row), figures)
            for report in found
            for row, figures in report["development"][name]["rows"].items()
            if not is_trivial(row)
        ]
        rows += [_row(f"*{row}*", figures) for row, figures in first["rows"].items() if is_trivial(row)]
        yield _show(name, "", ["score", "n", first["kind"], "Pearson", "Spearman given length"], rows)


def _row(name: str, figures: Mapping[str, Any]) -> list[Any]:
    return [name, figures["n"], *(_interval(figures[key]) for key in ("agreement", "pearson", "given_length"))]


def _interval(figures: Sequence[float | None]) -> Interval:
    return Interval(*(math.nan if each is None else each for each in figures))

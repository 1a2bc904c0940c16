"""The published figures of each baseline beside those measured here, or why there is none. Measures nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnscore_assessment.agreement.report import NOTHING

Report = Mapping[str, Any]

CONVAI2, CONVAI2_PARTS = "convai2-grade", ("fitted on", "chosen on")
OTHERWISE_TRAINED = (
    "published blended with references, by BERT-base on DailyDialog's exchanges; here unreferenced, by MiniLM on "
    "dialogue_text"
)
BAR = "a bar of Figure 4, without a number"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One figure of one system. `here` finds it in the system's report; None where it was not measured."""

    system: str
    figure: str
    published: float | str
    here: Callable[[Report], float | None]
    why: str
    """Why the two differ, or why nothing here compares."""


def _convai2(score: str) -> Callable[[Report], float | None]:
    """The mean over both parts of GRADE's turns of ConvAI2, weighted by turns."""

    def find(report: Report) -> float | None:
        parts = [report["development"].get(f"{CONVAI2} ({part})") for part in CONVAI2_PARTS]
        rows = [found["rows"][score] for found in parts if found is not None]
        known = [(row["n"], row["agreement"][0]) for row in rows if row["agreement"][0] is not None]
        turns = sum(count for count, _ in known)
        return sum(count * value for count, value in known) / turns if turns else None

    return find


def _adversarial(kind: str, score: str) -> Callable[[Report], float | None]:
    def find(report: Report) -> float | None:
        found: float | None = report.get("adversarial", {}).get(kind, {}).get(score, {}).get("accuracy")
        return found

    return find


def _tested(labels: str, test_set: str) -> Callable[[Report], float | None]:
    def find(report: Report) -> float | None:
        found: float = report["training"]["tested"][labels][test_set]["balanced_accuracy"][0]
        return found

    return find


def _thumbs(report: Report) -> float | None:
    found = report["development"].get("convai-thumbs (chosen on)")
    value: float | None = None if found is None else found["rows"]["3p"]["agreement"][0]
    return value


def _classifier(system: str) -> list[Comparison]:
    """Paper 004's bars, and the same pairs under the corrected labels, which the paper does not have."""
    return [
        Comparison(
            system=f"{system}, {labels} labels",
            figure=f"{name}: balanced accuracy",
            published=BAR if labels == "published" else "none: the paper's labels alone",
            here=_tested(labels, test_set),
            why="no number to measure against",
        )
        for labels in ("published", "corrected")
        for name, test_set in (("ConvAI test", labels), ("pairs of AMT raters", "judged"))
    ]


COMPARISONS: Mapping[str, Sequence[Comparison]] = {
    "ruber": (
        *(
            Comparison(
                system="ruber: unreferenced",
                figure=f"DailyDialog++ test, {kind} responses: accuracy",
                published=accuracy,
                here=_adversarial(kind, "unreferenced"),
                why="published is trained on DailyDialog++'s own random responses; here on dialogue_text, without "
                "DailyDialog",
            )
            for kind, accuracy in (("random", 0.783), ("adversarial", 0.650))
        ),
        Comparison(
            system="ruber",
            figure="600 pairs of DailyDialog: Spearman",
            published=0.30,
            here=lambda _: None,
            why="the set is held back, so that nobody tunes to it",
        ),
    ),
    "ctx-ruber": (
        Comparison(
            system="ctx-ruber",
            figure="GRADE's turns of ConvAI2: Spearman",
            published=0.31,
            here=_convai2("ctx-ruber"),
            why=OTHERWISE_TRAINED,
        ),
    ),
    "pone": (
        Comparison(
            system="pone",
            figure="GRADE's turns of ConvAI2: Spearman",
            published=0.37,
            here=_convai2("pone"),
            why=OTHERWISE_TRAINED,
        ),
    ),
    "usr": (
        Comparison(
            system="usr",
            figure="GRADE's turns of ConvAI2: Spearman",
            published=0.50,
            here=_convai2("usr"),
            why="published by RoBERTa-base tuned on Topical-Chat, with the context for a fact; here by MiniLM, without "
            "facts, whose head for masked words is new",
        ),
    ),
    "3p": (
        Comparison(
            system="3p",
            figure="Alexa's turns (RUI-3P): Spearman",
            published=0.28,
            here=lambda _: None,
            why="Amazon's own turns, never released",
        ),
        Comparison(
            system="3p",
            figure="ConTurE: Spearman",
            published=0.11,
            here=lambda _: None,
            why="the set is held back, so that nobody tunes to it",
        ),
        Comparison(
            system="3p",
            figure="ConvAI's thumbs (chosen on): AUC",
            published="none",
            here=_thumbs,
            why="the nearest that is at hand",
        ),
    ),
    "svm": _classifier("svm"),
    "bi-rnn": _classifier("bi-rnn"),
}
"""Of ConvAI2: DialEvalMetrics (Yeh et al. 2021). Of DailyDialog++: the predictions that its authors released. Of
DailyDialog's pairs: Ghazarian et al. 2020, Table 5. Of 3P: Ghazarian et al. 2022."""


def compare_published(reports: Sequence[Report], full: Sequence[Report] = ()) -> list[list[str]]:
    """A header, and cells of a row per figure; with reports of the `full` size their figures stand beside the small."""
    header = ["system", "figure", "published", "here", "distance"]
    larger = {report["name"]: report for report in full}
    if larger:
        header += ["full size", "distance"]
    rows = [[*header, "why"]]
    for report in reports:
        for each in COMPARISONS[report["name"]]:
            published = each.published if isinstance(each.published, str) else f"{each.published:.3f}"
            cells = [each.system, each.figure, published, *_set_beside(each, report)]
            if larger:
                cells += _set_beside(each, larger.get(report["name"]))
            rows.append([*cells, each.why])
    return rows


def _set_beside(each: Comparison, report: Report | None) -> list[str]:
    """The figure here and its distance from the published one."""
    here = None if report is None else each.here(report)
    if here is None:
        return [NOTHING, NOTHING]
    return [f"{here:.3f}", NOTHING if isinstance(each.published, str) else f"{here - each.published:+.3f}"]
